"""Forward: what the broker's socket has taken is handled, what it never will is lost, message by message. Over a real socket pair."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from gateway.counting.accounts import Accounts
from gateway.pipeline.handlers.forward import Forward
from gateway.pipeline.parts import PLAIN, REQUEST, Part
from gateway.pipeline.pipeline import Batch
from gateway.transport.channel import Channel
from limiter.credit import Credit
from limiter.judge import Judge
from limiter.rules.rule_set import RuleSet
from limiter.topics import amqp_topic
from support.wires.conversations import Talk

SIZE = 100_000  # bytes of a message: a socket pair takes two of them at once, and no more
ALL = 1_000  # credit


class Session:
    """A Forward with its channel; the peer reads when it is told."""

    def __init__(self) -> None:
        ours, self.peer = socket.socketpair()
        self.channel = Channel(ours)
        self.credit = Credit(ALL, 1)
        self.conversation = Talk("amqp").conversation
        self.forward = Forward(self.conversation, self.channel, self.credit, Accounts())
        judge = Judge(RuleSet(()))
        self.key = judge.key(judge.origin("amqp", "here", "10.0.0.7", "shop", b"/", 1), b"orders", amqp_topic(b"/", b"", b"orders"))
        self.ends: list[int] = []  # of each message, in the stream

    def send(self, count: int, messages: int = 1, size: int = SIZE) -> None:
        """One part of so many requests of `messages` each, in a turn of its own."""
        data = bytes(count * size)
        self.conversation.outbox = [Part(REQUEST, 1, data, 0, len(data), self.key, count, messages, size)]
        self.ends += [self.channel.queued + len(data)] * (count * messages)
        assert self.forward.carry(Batch(None, b"", 1))

    def turn(self) -> None:
        self.channel.writable = True  # what the loop does on EPOLLOUT
        self.channel.flush(1)
        self.forward.acknowledge(1)

    def waiting(self) -> int:
        return sum(end > self.channel.sent for end in self.ends)


@pytest.fixture
def session() -> Iterator[Session]:
    found = Session()
    yield found
    found.channel.close()
    found.peer.close()


def test_a_message_is_handled_when_the_socket_has_taken_its_last_byte(session: Session) -> None:
    for number in range(12):
        session.send(1 + number % 2, 1 + number % 3)
    seen = set()
    while session.channel.backlog:
        session.turn()
        seen.add(session.forward.unsent)
        assert session.forward.unsent == session.waiting() == ALL - session.credit.credit
        session.peer.recv(30_000)
    session.turn()
    assert session.forward.unsent == 0
    assert session.credit.credit == ALL
    assert len(seen) > 5, "they are handled one after the other"
    assert session.forward.lost == 0


def test_of_several_messages_the_one_that_ends_where_the_socket_stopped_is_handled(session: Session) -> None:
    for _ in range(6):
        session.send(1)
    for taken, left in ((session.ends[1], 4), (session.ends[3] - 1, 3), (session.ends[4], 1)):
        session.channel.sent = taken
        session.forward.acknowledge(1)
        assert session.forward.unsent == session.waiting() == left


def test_what_is_forwarded_is_counted_with_its_messages_and_bytes(session: Session) -> None:
    session.send(3, 4, 10)
    session.send(2, 1, 50)
    tally = session.key.tally
    assert (tally.messages, tally.bytes, session.forward.messages) == (14, 130, 14)
    assert session.key.dirty


def test_what_a_broken_connection_has_not_taken_is_lost_and_nothing_else(session: Session) -> None:
    for _ in range(10):
        session.send(2)
    session.turn()
    session.peer.recv(3 * SIZE)
    session.channel.writable = True
    session.channel.flush(1)  # it takes more, and fails before the next turn has looked
    waiting = session.waiting()
    assert 0 < waiting < session.forward.unsent < 20
    session.peer.close()
    session.turn()
    session.turn()
    assert (session.forward.lost, session.forward.unsent, session.credit.credit) == (waiting, 0, ALL)
    session.send(3, 2)
    assert (session.forward.lost, session.forward.unsent, session.credit.credit) == (waiting + 6, 0, ALL)


def test_neighbours_leave_as_one_slice_and_others_in_order(session: Session) -> None:
    data, other = b"0123456789", b"abcdef"
    pieces = ((data, 0, 3), (data, 3, 5), (data, 7, 9), (other, 0, 2), (data, 9, 10))
    session.conversation.outbox = [Part(PLAIN, 1, bytes_, start, end, None, 0, 0, 0) for bytes_, start, end in pieces]
    assert session.forward.carry(Batch(None, b"", 1))
    session.turn()
    assert session.peer.recv(100) == b"0123478ab9"
    assert session.conversation.outbox == []
