"""A session is drained when nothing of it is under way any more: each place where a message may be is asked for alone."""

from __future__ import annotations

import socket
import threading

from limiter.request import Request
from support.amqp import frames as amqp
from support.amqp.link import Link
from support.processes import HANG_S
from support.rocketmq.frames import response, send
from support.wires.conversations import rule
from support.wires.wires import Decide, Wires

LARGE = bytes(50_000)


def drained(wires: Wires) -> bool:
    """Whether it is, as if both sides had been quiet for a minute."""
    return wires.session().drained(wires.now() + 60_000_000_000, 1)


def test_a_drain_waits_for_delayed_sends_though_the_broker_has_answered_all_that_it_has() -> None:
    with Wires(rule("delay", messages=1, burst=1, protocol="rocketmq", topic="orders")) as wires:
        client, broker = wires.connect("rocketmq")
        client.sendall(send(opaque=1) + send(opaque=2))
        wires.run()
        broker.sendall(response(1))
        wires.run()
        assert wires.received(broker) == send(opaque=1)
        wires.session().begin_drain()
        assert not drained(wires)
        wires.elapse(1.25)
        assert wires.received(broker) == send(opaque=2)
        assert not drained(wires)
        broker.sendall(response(2))
        wires.run()
        assert drained(wires)


def test_a_drain_waits_for_delayed_publishes() -> None:
    with Wires(rule("delay", messages=1, burst=1, protocol="amqp")) as wires:
        link = Link(wires, channels=(1,))
        link.say(amqp.publish(1, "orders") * 2)
        wires.session().begin_drain()
        assert not drained(wires)
        wires.elapse(1.25)
        assert drained(wires)
        assert amqp.names(wires.received(link.broker)).count("Basic.Publish") == 2


def test_a_drain_waits_for_the_judge() -> None:
    asked, goes_on = threading.Event(), threading.Event()

    def slow(decide: Decide) -> Decide:
        def judged(requests: list[Request], now: int) -> None:
            asked.set()
            assert goes_on.wait(HANG_S)
            decide(requests, now)

        return judged

    with Wires(rule(messages=1000, protocol="rocketmq"), threads=1, wrap=slow) as wires:
        client, broker = wires.connect("rocketmq")
        client.sendall(send(opaque=1, one_way=True))
        wires.until(asked.is_set)
        wires.session().begin_drain()
        assert not drained(wires)
        goes_on.set()
        wires.until(lambda: drained(wires))
        assert wires.received(broker) == send(opaque=1, one_way=True)


def test_a_drain_waits_until_each_side_has_taken_what_is_for_it() -> None:
    with Wires() as wires:
        client, broker = wires.connect("rocketmq")
        session = wires.session()
        for said, source, target, channel in (
            (send(body=LARGE, one_way=True), client, broker, session.upstream),
            (response(7, body=LARGE), broker, client, session.client),
        ):
            while not channel.backlog:
                assert drained(wires)
                source.sendall(said)
                wires.run(0.002)
            while channel.backlog:
                assert not drained(wires)
                target.recv(1 << 12)
                wires.sweep()
            assert drained(wires)


def test_a_drain_waits_for_what_a_client_that_is_gone_has_left_to_read() -> None:
    with Wires() as wires:
        client, broker = wires.connect("rocketmq")
        said = send(one_way=True) * 300
        client.sendall(said)
        client.shutdown(socket.SHUT_WR)
        arrived = b""
        seen = 0
        while len(arrived) < len(said):
            wires.sweep()
            arrived += wires.received(broker)
            if len(arrived) < len(said):
                seen += 1
                assert not drained(wires)
        assert seen
