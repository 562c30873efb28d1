"""Sessions at rest: looked at as seldom as may be, and in time all the same. Time passes by the sessions' clock only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway.assembly import Place
from gateway.memory import MemoryWatch
from support import amqp
from support.amqp_link import Link
from support.wires import Wires

S = 1_000_000_000
TICKS = 24  # 6 s


@pytest.fixture
def wires() -> Iterator[Wires]:
    with Wires() as made:
        yield made


def looks(wires: Wires, link: Link, seconds: float) -> int:
    """How many ticks of the next `seconds` look at the session."""
    seen = {link.session.heartbeats.ticked_at}
    wires.elapse(seconds, lambda: seen.add(link.session.heartbeats.ticked_at))
    return len(seen) - 1


def test_who_is_at_rest_is_looked_at_each_third_tick_and_who_has_just_said_something_each_time(wires: Wires) -> None:
    link = Link(wires, heartbeat=60)
    assert looks(wires, link, 1) == 4
    wires.elapse(2)
    assert TICKS / 4 <= looks(wires, link, 6) <= TICKS / 2, "a third; real time goes on meanwhile"
    link.say(amqp.HEARTBEAT)
    assert looks(wires, link, 1) == 4


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
    client, broker = wires.connect("amqp", place=Place("here", "amqp", 1 << 24, 10 * S, idle_ns=5 * S + S // 10))
    client.sendall(amqp.greeting(channels=(1,)))
    wires.run(0.003)
    broker.sendall(amqp.broker_opens())
    wires.run()
    wires.elapse(4)
    assert wires.session().cause == ""
    wires.elapse(1.5)
    assert wires.session().cause == "idle"


def test_what_a_session_at_rest_keeps_counts_and_so_does_what_comes_then(wires: Wires) -> None:
    link = Link(wires, heartbeat=60)
    watch = MemoryWatch(1 << 30, wires.shared)
    message = amqp.publish(1, "a", b"x" * 1000)
    link.say(message[:10])
    wires.elapse(3)
    assert link.session.rests_until > 0
    watch.look(wires.sweeper, wires.now())
    held = watch.held
    assert held == link.session.buffered() > 0
    link.say(message[10:12])
    watch.look(wires.sweeper, wires.now())
    assert watch.held == link.session.buffered() != held
