"""Sessions at rest: looked at as seldom as may be, and in time all the same. Time passes by the sessions' clock only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pamqp import commands

from gateway.event_loop.memory_watermark import MemoryWatermark
from gateway.session.listener_config import ListenerConfig
from limiter.limits import Limit
from limiter.rules.rule_set import Rule
from support.amqp import frames as amqp
from support.amqp.link import Link
from support.rocketmq import frames as rocketmq
from support.wires.wires import Wires

S = 1_000_000_000


@pytest.fixture
def wires() -> Iterator[Wires]:
    with Wires() as made:
        yield made


def looks(wires: Wires, link: Link, seconds: float) -> int:
    """How many ticks of the next `seconds` look at the session."""
    seen = {link.session.heartbeats.ticked_at}
    wires.elapse(seconds, lambda: seen.add(link.session.heartbeats.ticked_at))
    return len(seen) - 1


def test_an_idle_session_is_not_looked_at_and_an_active_one_at_each_tick(wires: Wires) -> None:
    link = Link(wires, heartbeat=60)
    assert looks(wires, link, 0.5) == 2
    wires.elapse(2)
    assert looks(wires, link, 6) == 0
    link.say(amqp.HEARTBEAT)
    assert looks(wires, link, 0.5) == 2


def test_a_session_with_nothing_due_is_looked_at_each_half_a_minute(wires: Wires) -> None:
    link = Link(wires, heartbeat=1200)
    wires.elapse(3)
    assert 9 <= looks(wires, link, 300) <= 40, "ten rests, each with a look or two at its end"


def test_the_slot_of_an_unanswered_send_is_free_on_time() -> None:
    with Wires(Rule("few", per="topic", limit=Limit(concurrent=5), algorithm="concurrency")) as wires:
        client, _ = wires.connect("rocketmq")
        client.sendall(rocketmq.send("orders", b"x", opaque=1))
        wires.run()
        wires.elapse(9)
        assert wires.judge.states(wires.now())[0].in_flight == 1
        assert wires.session().idle_until == 0
        wires.elapse(2)
        assert wires.judge.states(wires.now())[0].in_flight == 0
        wires.elapse(2)
        assert wires.session().idle_until > 0


def test_a_client_that_is_not_read_does_not_rest_so_its_silence_does_not_count(wires: Wires) -> None:
    link = Link(wires, heartbeat=4)
    link.session.decode.credit.spend(link.session.decode.credit.credit, wires.now())
    for _ in range(12):
        wires.elapse(1)
        link.broker.sendall(amqp.HEARTBEAT)
    assert link.session.idle_until == 0
    assert link.session.cause == ""


def test_a_publisher_that_obeys_is_told_soon_that_it_is_blocked_no_more(wires: Wires) -> None:
    """It says nothing meanwhile, and nothing is sent: nothing but the ticks can tell it."""
    client, broker = wires.connect("amqp")
    client.sendall(amqp.greeting(capabilities={"connection.blocked": True}, heartbeat=60, channels=(1,)))
    wires.run(0.003)
    broker.sendall(amqp.broker_opens() + amqp.method(1, commands.Channel.OpenOk()))
    wires.run(0.003)
    client.sendall(amqp.publish(1, "a"))
    wires.connect("rocketmq")
    wires.run()
    wires.received(client)
    hog = wires.session(2).conversation
    watch = MemoryWatermark(250_000, wires.shared)

    def look() -> None:
        watch.check(wires.sweeper, wires.now())
        wires.run(0.002)

    hog.budget.held_bytes = 300_000
    wires.elapse(3, look)
    assert "Connection.Blocked" in [frame.name for frame in amqp.read(wires.received(client))]
    hog.budget.held_bytes = 0
    wires.elapse(1, look)
    assert "Connection.Unblocked" in [frame.name for frame in amqp.read(wires.received(client))]
    wires.elapse(2, look)
    assert wires.session().idle_until > 0


def test_a_client_that_is_slower_than_its_beats_rests_all_the_same(wires: Wires) -> None:
    link = Link(wires, heartbeat=20)
    link.answer(amqp.HEARTBEAT)
    wires.elapse(11)
    assert link.at_broker() == b""
    assert link.session.idle_until > 0
    link.say(amqp.HEARTBEAT)
    assert link.at_broker() == amqp.HEARTBEAT


def test_a_process_that_stood_still_blames_no_session_at_rest(wires: Wires) -> None:
    link = Link(wires, heartbeat=20)
    wires.elapse(4)
    assert link.session.idle_until > 0
    wires.stand_still(300)
    wires.elapse(1)
    assert link.session.cause == ""
    wires.elapse(45)
    assert link.session.cause in {"heartbeat", "broker_heartbeat"}, "from then on its silence counts"


def test_an_idle_session_that_ends_is_gone_with_what_it_kept(wires: Wires) -> None:
    link = Link(wires, heartbeat=60)
    link.say(amqp.publish(1, "a", b"x" * 1000)[:10])
    wires.elapse(3)
    assert link.session.idle_until > 0
    assert wires.sweeper.buffered() > 0
    link.client.close()
    link.broker.close()
    wires.run()
    assert not wires.sweeper.sessions
    assert wires.sweeper.buffered() == 0
    wires.elapse(40)


def test_a_beat_is_sent_when_it_is_due_although_the_session_rests(wires: Wires) -> None:
    link = Link(wires, heartbeat=20)
    link.at_client()
    wires.elapse(8)
    assert link.at_client() == b""
    wires.elapse(2.75)
    assert link.at_client() == amqp.HEARTBEAT


def test_a_silent_broker_is_dead_on_time_although_the_session_rests(wires: Wires) -> None:
    link = Link(wires, heartbeat=20)
    for _ in range(9):
        wires.elapse(4)
        link.say(amqp.HEARTBEAT)
    assert link.session.cause == ""
    wires.elapse(5)
    assert link.session.cause == "broker_heartbeat"


def test_an_idle_connection_ends_on_time_although_it_rests(wires: Wires) -> None:
    client, broker = wires.connect("amqp", config=ListenerConfig("here", "amqp", 1 << 24, 10 * S, idle_ns=5 * S + S // 10))
    client.sendall(amqp.greeting(channels=(1,)))
    wires.run(0.003)
    broker.sendall(amqp.broker_opens())
    wires.run()
    wires.elapse(4)
    assert wires.session().cause == ""
    wires.elapse(1.5)
    assert wires.session().cause == "idle"


def test_bytes_kept_by_a_session_at_rest_count_and_so_do_bytes_that_arrive_then(wires: Wires) -> None:
    link = Link(wires, heartbeat=60)
    watch = MemoryWatermark(1 << 30, wires.shared)
    message = amqp.publish(1, "a", b"x" * 1000)
    link.say(message[:10])
    wires.elapse(3)
    assert link.session.idle_until > 0
    watch.check(wires.sweeper, wires.now())
    held = watch.held
    assert held == link.session.buffered() > 0
    link.say(message[10:12])
    watch.check(wires.sweeper, wires.now())
    assert watch.held == link.session.buffered() != held
