"""Credit between the stages of a connection, in messages and in bytes: what is forwarded while the broker's socket takes nothing."""

from __future__ import annotations

import contextlib
import socket

import pytest

from gateway.session.session import Session
from limiter.limits import Limit, Rate
from limiter.rules.rule_set import Match, Rule
from support.rocketmq import frames as rocketmq
from support.wires.wires import Wires

SECOND = 1_000_000_000
INITIAL = 400
MORE_AFTER = 200
READ = 256 * 1024  # bytes; of a side at once
PLENTY = 1 << 30
UNLIMITED = Rule("all", Match(), "topic", Limit(Rate(10**9, SECOND)))


class Stalled:
    """A session whose broker's socket is full of other bytes, so that it takes nothing more until `read` has made room."""

    def __init__(self, wires: Wires) -> None:
        self.wires = wires
        self.client, self.broker = wires.connect("rocketmq")
        wires.run(0.002)
        session = self.session
        filler = session.upstream.sock
        self.junk = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                self.junk += filler.send(b"\0" * 4096)
        with contextlib.suppress(BlockingIOError):
            while True:
                self.junk += filler.send(b"\0")

    @property
    def session(self) -> Session:
        return self.wires.session()

    def send(self, data: bytes) -> None:
        """All of it, while the gateway reads what it will; then let it read until it wants no more."""
        left = memoryview(data)
        self.client.setblocking(False)
        idle = 0
        while left and idle < 20:  # sweeps in which it took nothing
            idle += 1
            with contextlib.suppress(BlockingIOError):
                left = left[self.client.send(left) :]
                idle = 0
            self.wires.sweep()
        for _ in range(20):
            self.wires.sweep()
        self.left = left

    def read(self) -> bytes:
        """The broker reads on: everything, what the client had not got rid of included."""
        self.broker.setblocking(False)
        found = bytearray()
        idle = 0
        while idle < 20:
            idle += 1
            with contextlib.suppress(BlockingIOError):
                if self.left:
                    self.left = self.left[self.client.send(self.left) :]
                    idle = 0
            self.wires.sweep()
            with contextlib.suppress(BlockingIOError):
                while piece := self.broker.recv(1 << 20):
                    found += piece
                    idle = 0
        return bytes(found[self.junk :])


def messages(count: int, size: int) -> list[bytes]:
    return [rocketmq.send("orders", b"x" * size, opaque=number) for number in range(count)]


@pytest.mark.parametrize("size", [10, 300, 1024, 16 * 1024])
def test_as_many_messages_as_there_is_credit_for_are_forwarded_before_the_broker_takes_any(size: int) -> None:
    """Whatever their size, where the bytes allow it."""
    with Wires(UNLIMITED, backlog_bytes=PLENTY) as wires:
        stalled = Stalled(wires)
        sent = messages(1000, size)
        stalled.send(b"".join(sent))
        session = stalled.session
        assert session.forward.messages == INITIAL
        assert (session.forward.credit.credit, session.forward.credit.blocked) == (0, True)
        assert session.withheld()
        found = stalled.read()
        assert found == b"".join(sent), "all of them, once, in order"
        assert session.forward.messages == 1000
        assert not session.forward.credit.blocked


@pytest.mark.parametrize(("each", "forwarded"), [(100, 400), (150, 450), (1000, 1000)])
def test_a_batch_costs_what_it_has_messages_and_one_may_overdraw_the_account(each: int, forwarded: int) -> None:
    with Wires(UNLIMITED, backlog_bytes=PLENTY) as wires:
        stalled = Stalled(wires)
        body = rocketmq.batch_body(*[b"x" * 50] * each)
        sent = [rocketmq.send("orders", body, code=320, batch=True, opaque=number) for number in range(20)]
        stalled.send(b"".join(sent))
        session = stalled.session
        assert session.forward.messages == forwarded
        assert session.forward.credit.credit == INITIAL - forwarded
        assert stalled.read() == b"".join(sent)
        assert session.forward.messages == 20 * each
        assert session.forward.credit.credit > 0


@pytest.mark.parametrize("size", [1024, 16 * 1024])
def test_large_messages_are_bounded_by_their_bytes_instead(size: int) -> None:
    with Wires(UNLIMITED, backlog_bytes=READ) as wires:
        stalled = Stalled(wires)
        sent = messages(1000, size)
        stalled.send(b"".join(sent))
        session = stalled.session
        assert READ < session.upstream.backlog <= 2 * READ, "the bound, and what one read brings"
        assert session.forward.messages < INITIAL
        assert not session.forward.credit.blocked
        assert session.withheld()
        assert stalled.read() == b"".join(sent)


def test_credit_is_given_back_in_lots_as_the_broker_takes() -> None:
    with Wires(UNLIMITED, backlog_bytes=PLENTY) as wires:
        stalled = Stalled(wires)
        sent = messages(1000, 1024)
        stalled.send(b"".join(sent))
        session = stalled.session
        stalled.broker.setblocking(False)
        while session.forward.messages < 1000:
            with contextlib.suppress(BlockingIOError):
                stalled.broker.recv(4096)
            stalled.left = stalled.left[_sent(stalled.client, stalled.left) :]
            wires.sweep()
            taken = session.forward.messages - session.forward.unsent
            assert session.forward.messages <= INITIAL + taken // MORE_AFTER * MORE_AFTER


def _sent(client: socket.socket, left: memoryview) -> int:
    try:
        return client.send(left) if left else 0
    except BlockingIOError:
        return 0
