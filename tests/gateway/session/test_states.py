"""The states of a session and of its channels: only the steps and combinations of the tables occur, and every step of the tables does."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.session.ending import close_gracefully, send_close
from gateway.session.graceful_close import begin_graceful_close, finish_graceful_close
from gateway.session.session import Session
from gateway.session.states import BROKER_LEGAL, CLIENT_LEGAL, CLOSING, DRAINING, HALF_CLOSED, OPEN, OVER, STEPS
from gateway.transport.channel import Channel
from gateway.transport.channel_states import FIN_SENT, LEGAL, READ_FAILED, READ_STEPS, WRITE_FAILED, WRITE_STEPS
from support.amqp import frames as amqp
from support.rocketmq.frames import send
from support.wires.wires import Wires, assert_legal


class Walk:
    """One session, driven by events from without. Every state it settles in is remembered."""

    def __init__(self, wires: Wires, protocol: str) -> None:
        self.wires = wires
        self.protocol = protocol
        self.client, self.broker = wires.connect(protocol)
        self.session = wires.session()
        self.seen = [OPEN]

    def run(self, events: list[str]) -> list[int]:
        for event in events:
            if self.session.state == OVER:
                break
            EVENTS[event](self)
            self.look()
            for _ in range(4):
                self.wires.sweep()
                self.look()
        return self.seen

    def look(self) -> None:
        state = self.session.state
        if state != self.seen[-1]:
            assert state in STEPS[self.seen[-1]], (self.seen, state)
            self.seen.append(state)

    def attempt(self, what: Callable[[Session, int], None]) -> None:
        self.wires.sweeper.attempt(self.session, partial(what, self.session, self.wires.now()))
        self.wires.sweeper.end(self.session)

    def client_asks(self) -> None:
        self.say(self.client, amqp.greeting(channels=(1,)) if self.protocol == "amqp" else send("orders", opaque=1))

    def say(self, end: socket.socket, data: bytes) -> None:
        with suppress(OSError):  # this end is closed, or the gateway's is
            end.sendall(data)

    def finish(self, end: socket.socket) -> None:
        with suppress(OSError):
            end.shutdown(socket.SHUT_WR)

    def tick(self, seconds: float) -> None:
        self.wires.elapse(seconds, self.look)


EVENTS: dict[str, Callable[[Walk], None]] = {
    "client asks": Walk.client_asks,
    "client sends garbage": lambda walk: walk.say(walk.client, b"\xff" * 64),
    "client finishes": lambda walk: walk.finish(walk.client),
    "client goes": lambda walk: walk.client.close(),
    "broker sends garbage": lambda walk: walk.say(walk.broker, b"\xff" * 64),
    "broker finishes": lambda walk: walk.finish(walk.broker),
    "broker goes": lambda walk: walk.broker.close(),
    "drain": lambda walk: walk.session.begin_drain(),
    "graceful close": lambda walk: walk.attempt(lambda session, now: begin_graceful_close(session, "test", "drain", now)),
    "its deadline": lambda walk: walk.attempt(finish_graceful_close),
    "close gracefully": lambda walk: walk.attempt(lambda session, now: close_gracefully(session, "test", "admin", now)),
    "close": lambda walk: walk.attempt(lambda session, now: send_close(session, "test", "admin", now)),
    "abort": lambda walk: walk.attempt(lambda session, _: session.abort("gateway_error", "test")),
    "a second": lambda walk: walk.tick(1),
    "a long time": lambda walk: walk.tick(20),
}
# How each step of the table comes about.
WAYS = {
    (OPEN, HALF_CLOSED): ["graceful close", "its deadline"],
    (OPEN, DRAINING): ["drain"],
    (OPEN, CLOSING): ["close"],
    (OPEN, OVER): ["abort"],
    (HALF_CLOSED, CLOSING): ["graceful close", "its deadline", "broker goes"],
    (HALF_CLOSED, OVER): ["graceful close", "its deadline", "abort"],
    (DRAINING, HALF_CLOSED): ["client asks", "graceful close", "drain", "its deadline"],
    (DRAINING, CLOSING): ["drain", "close"],
    (DRAINING, OVER): ["drain", "abort"],
    (CLOSING, OVER): ["close", "client goes", "broker goes"],
}


@pytest.fixture
def walk() -> Iterator[Walk]:
    with Wires() as wires:
        yield Walk(wires, "rocketmq")


@pytest.mark.parametrize("step", [(old, new) for old, following in STEPS.items() for new in following])
def test_every_step_of_the_table_occurs(walk: Walk, step: tuple[int, int]) -> None:
    assert step in itertools.pairwise(walk.run(WAYS[step]))


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(["amqp", "rocketmq"]), st.lists(st.sampled_from(sorted(EVENTS)), max_size=8))
def test_whatever_happens_a_session_takes_only_steps_of_the_table(protocol: str, events: list[str]) -> None:
    with Wires() as wires:
        walk = Walk(wires, protocol)
        walk.run(events)
        walk.run(["abort"])
        assert walk.seen[-1] == OVER
        assert [error for _, error in wires.ended] == [None]


@pytest.mark.parametrize("step", sorted({*itertools.product(STEPS, STEPS)} - {(old, new) for old in STEPS for new in STEPS[old]}))
def test_a_step_that_the_table_does_not_have_raises(walk: Walk, step: tuple[int, int]) -> None:
    old, new = step
    walk.session.state = old
    with pytest.raises(AssertionError, match="cannot become"):
        walk.session.become(new)
    walk.session.state = OPEN


@pytest.mark.parametrize(
    "step", sorted({*itertools.product(WRITE_STEPS, WRITE_STEPS)} - {(a, b) for a in WRITE_STEPS for b in WRITE_STEPS[a]})
)
def test_writing_takes_no_step_that_the_table_does_not_have(step: tuple[int, int]) -> None:
    old, new = step
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = Channel(ours)
        channel.write_state = old
        with pytest.raises(AssertionError, match="cannot become"):
            channel._step_writing(new)


@pytest.mark.parametrize("step", sorted({*itertools.product(READ_STEPS, READ_STEPS)} - {(a, b) for a in READ_STEPS for b in READ_STEPS[a]}))
def test_reading_takes_no_step_that_the_table_does_not_have(step: tuple[int, int]) -> None:
    old, new = step
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = Channel(ours)
        channel.read_state = old
        with pytest.raises(AssertionError, match="cannot become"):
            channel._end_reading(new)


def test_the_tables_agree_with_each_other() -> None:
    assert {*itertools.product(READ_STEPS, WRITE_STEPS)} >= LEGAL
    assert [write for read, write in LEGAL if read == READ_FAILED] == [WRITE_FAILED]
    for table in (CLIENT_LEGAL, BROKER_LEGAL):
        assert table.keys() == STEPS.keys()
        assert all(combinations <= LEGAL for combinations in table.values())
    assert {new for following in STEPS.values() for new in following} == STEPS.keys() - {OPEN}


def test_a_combination_that_the_tables_do_not_have_is_noticed(walk: Walk) -> None:
    walk.session.client.write_state = FIN_SENT
    with pytest.raises(AssertionError):
        assert_legal(walk.session)
    walk.session.client.write_state = 0
