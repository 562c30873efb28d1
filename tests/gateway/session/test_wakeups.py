"""Nothing that waits is forgotten, and nothing that must not wait is waited for: timers, drain, bounds before a client is known."""

from __future__ import annotations

import time
from typing import Any

import pytest
from pamqp import commands

from gateway.event_loop.sweeper import MAX_STALE_TIMERS
from gateway.session.states import CLOSING
from gateway.transport.channel import Channel
from limiter.limits import NEVER, Limit, Rate
from limiter.rules.rule_set import Match, Rule
from support.amqp import frames as amqp
from support.wires.wires import Wires

AMQP = Match(protocol="amqp")
SECOND = 1_000_000_000


def limited(rate: int = 1, **more: Any) -> Rule:
    return Rule("limited", AMQP, limit=Limit(messages=Rate(rate), messages_burst=20), open_for_ns=0, **more)


@pytest.mark.parametrize("threads", [0, 1])
def test_messages_due_at_the_same_moment_as_those_just_taken_are_not_forgotten(threads: int) -> None:
    """Two keys on one channel: one take stops between them, and both were held at one moment. Over TCP: nothing else wakes the session."""
    with Wires(limited(1000), threads=threads) as wires:
        client, ours_client = wires.tcp_pair()
        broker, ours_broker = wires.tcp_pair()
        wires.join("amqp", Channel(ours_client), Channel(ours_broker))
        client.sendall(amqp.greeting(heartbeat=60, channels=(1, 2)))
        wires.run(0.003)
        broker.sendall(amqp.broker_opens())
        wires.run()
        if threads:  # until the judge is trusted: its verdicts then come within the sweep
            number = 0
            while wires.executor.judged_inline <= 3:
                client.sendall(amqp.publish(2, f"warm-{number}"))
                wires.run(0.001)
                number += 1
        wires.received(broker)
        client.sendall(b"".join(amqp.publish(1, f"k{number}", b"x") * 40 for number in range(10)))
        client.sendall(amqp.method(0, commands.Connection.Close(200, "bye", 0, 0)))
        arrived: list[tuple[int, str]] = []

        def all_there() -> bool:
            arrived.extend((frame.channel, frame.name) for frame in amqp.read(wires.received(broker)))
            return (0, "Connection.Close") in arrived

        wires.until(all_there)
        assert arrived.count((1, "Basic.Publish")) == 400  # those on channel 2 were to warm up, and may have been held


@pytest.mark.parametrize("between", [NEVER, 1_000], ids=["while the judge has what is held", "while something else is due before"])
def test_a_moment_that_comes_and_goes_has_not_a_timer_each_time(between: int) -> None:
    """A message requeued with `backoff: 1h`, and other traffic on its connection: 500 timers a second were kept for an hour."""
    with Wires() as wires:
        for _ in range(3):
            wires.connect("amqp")
        wires.run(0.003)
        sweeper, now = wires.sweeper, wires.now()
        for number, session in sweeper.sessions.items():
            session.budget.next_due = now + 3600 * SECOND + number
            sweeper._settle(session, now)
        changing = wires.session(2)
        due = changing.due
        for _ in range(5 * MAX_STALE_TIMERS):
            changing.budget.next_due = min(now + between, NEVER)
            sweeper._settle(changing, now)
            changing.budget.next_due = due
            sweeper._settle(changing, now)
        assert len(sweeper._timers) < 2 * MAX_STALE_TIMERS
        sweeper._take_timers(due)
        assert [session.queued for session in sweeper.sessions.values()] == [True, True, False]
        sweeper._take_timers(due + 1)
        assert all(session.queued for session in sweeper.sessions.values())


def test_an_announced_frame_is_bounded_by_the_listener_whatever_the_client_says_in_tune_ok() -> None:
    with Wires() as wires:
        client, broker = wires.connect("amqp")
        broker.sendall(amqp.broker_start())
        client.sendall(amqp.greeting(frame_max=0xFFFF_FFFF, user="nobody"))
        wires.run(0.003)
        session = wires.session()
        client.sendall(b"\x01\x00\x00" + (1 << 30).to_bytes(4, "big") + bytes(10_000))
        wires.run()
        assert session.decode.undecoded() <= session.listener_config.max_frame
        (close,) = [frame for frame in amqp.read(wires.received(client)) if frame.name == "Connection.Close"]
        assert isinstance(close.value, commands.Connection.Close)
        assert close.value.reply_code == 501


def test_a_drain_waits_for_the_end_of_a_frame_that_flows_through() -> None:
    with Wires() as wires:
        client, broker = wires.connect("amqp")
        client.sendall(amqp.greeting(channels=(1,), frame_max=1 << 20))
        wires.run(0.003)
        broker.sendall(amqp.broker_opens())
        wires.run()
        message = amqp.publish(1, "a", b"x" * 300_000, cut=300_000)
        client.sendall(message[:100_000])
        wires.run()
        session = wires.session()
        session.begin_drain()
        assert not session.drained(wires.now(), 0)
        client.sendall(message[100_000:])
        arrived = bytearray()

        def drained() -> bool:
            arrived.extend(wires.received(broker))
            return session.drained(wires.now(), 0)

        wires.until(drained)
        assert (bytes(arrived) + wires.received(broker)).endswith(message)


def test_a_handshake_that_does_not_end_does_not_hold_up_a_drain() -> None:
    with Wires() as wires:
        client, broker = wires.connect("amqp")
        broker.sendall(amqp.broker_start())
        client.sendall(amqp.greeting(channels=(1,), heartbeat=0) + amqp.publish(1, "a"))
        wires.run()
        session = wires.session()
        session.begin_drain()
        assert not session.drained(wires.now(), 0)
        wires.elapse(11)
        assert session.state >= CLOSING


def test_connection_blocked_is_not_sent_before_the_broker_has_let_the_client_in() -> None:
    with Wires(limited(action="delay")) as wires:
        client, broker = wires.connect("amqp")
        wires.shared.memory_full = True
        broker.sendall(amqp.broker_start())
        wires.run(0.003)
        client.sendall(amqp.greeting(heartbeat=0, channels=(1,), capabilities={"connection.blocked": True}) + amqp.publish(1, "a"))
        wires.run()
        assert amqp.names(wires.received(client)) == ["Connection.Start"]


def test_the_time_a_sweep_took_is_not_slept_again() -> None:
    """A busy machine may wake it late, not each time: it sleeps anew for the sweep's 300 ms, or it does not."""
    served: list[float] = []
    with Wires() as wires:
        wires.at_end = lambda *_: time.sleep(0.3)
        while len(served) < 10 and (not served or min(served) >= 0.6):
            client, broker = wires.connect("rocketmq")
            wires.run()
            client.close()
            broker.close()
            began = time.monotonic()
            wires.sweeper.serve(time.monotonic_ns() + 400_000_000)
            served.append(time.monotonic() - began)
            assert len(wires.ended) == len(served)
            assert served[-1] >= 0.4
    assert min(served) < 0.6, served
