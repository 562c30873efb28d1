"""Decode: bytes to parts, never more than there is credit for.

The naive way decodes all of a read and queues what cannot go on. Then a paused reader overshoots by one read per connection. Instead
decoding stops at `room` and the rest stays bytes (`rest`): a connection holds at most one read and one incomplete frame. Small pieces of
a large frame are collected and joined once (`need`). Joined at each read, they would cost a copy of the frame per byte where a client
sends one byte at a time.

Nothing is decoded behind bad bytes (`fault`). What stood before them goes its way first, as it has at a broker.
"""

from __future__ import annotations

from typing import Final

from gateway.counting.accounts import WINDOW_NS, Accounts
from gateway.pipeline.conversation import Conversation
from gateway.pipeline.empties import NO_ITEMS, added
from gateway.pipeline.errors import ProtocolError
from gateway.pipeline.parts import REQUEST, Part
from gateway.pipeline.pipeline import Batch, Handler
from limiter.credit import Credit
from limiter.protocols import RETRY_PREFIX

MAX_MESSAGES_PER_TURN: Final = 512  # messages; fairness between sessions, as Netty's maxMessagesPerRead; 512 short ones take about 0.2 ms
# Pieces below the first are joined up to the second: each bytes object costs 33 more, so a client could trickle 40 times its bytes.
COALESCE_BELOW_BYTES: Final = 512  # a guess
COALESCE_UP_TO_BYTES: Final = 4096  # a guess
JOIN_REST_BELOW_BYTES: Final = 32_768  # a shorter rest is joined with the next read: cheaper than the read itself
BRIDGE_READ_ABOVE_BYTES: Final = (
    16_384  # a read so long is not joined with the rest: decoding what begins in it by itself is cheaper; a guess
)
MAX_BRIDGE_STEPS: Final = 6  # until that is whole: an AMQP publish needs five (method, a header's size, header, a body's size, body)
PRODUCE: Final = "produce"


class Decode(Handler):
    """Turns a batch's bytes into parts; keeps what it could not decode yet."""

    def __init__(self, conversation: Conversation, credit: Credit, accounts: Accounts, forwarder: Credit) -> None:
        self.conversation = conversation
        self.credit = credit  # of the reader towards the limiter: how many messages may be decoded
        self.forwarder = forwarder  # of the limiter towards the forwarder: no more than that, or it would be overdrawn by all that was read
        self.accounts = accounts
        self.rest = b""  # undecoded bytes from `at` on, joined
        self.at = 0  # where decoding goes on in `rest`; not 0 only while `pending`, so that what waits for room is not copied
        self.later: list[bytes] = NO_ITEMS  # bytes after `rest`, not worth joining before `conversation.need` are there
        self.later_bytes = 0
        self.pending = False  # decoding stopped because there was no room: it goes on without new bytes
        self.fault: ProtocolError | None = None  # of the client's bytes; its session acts on it
        self.publishes = False  # the client has sent messages of its own, beyond fetching them and sending back what it had fetched

    def carry(self, batch: Batch) -> bool:
        if self.fault is not None:
            batch.data = b""
            return True
        data = batch.data
        parts = batch.parts
        room = min(self.credit.credit, MAX_MESSAGES_PER_TURN)
        room = min(room, self.forwarder.credit)  # of three at once mypyc makes a call of Python's
        at = 0
        messages = 0
        try:
            if self.rest or self.later:
                if data and not self.pending and not self.later and len(self.rest) <= JOIN_REST_BELOW_BYTES:
                    if room > 0 and len(data) >= BRIDGE_READ_ABOVE_BYTES:
                        at = self._bridge(data, room, parts)
                        room -= count_room(parts)
                    if self.rest:
                        data = self.rest + data[at:]
                        at = 0
                elif self.pending and not data and not self.later:
                    data = self.rest
                    at = self.at
                else:
                    data = self._join(data)
                    if not data:
                        return True
            batch.data = b""
            self.pending = False
            size = len(data)
            position = at
            if room > 0 and size > at:
                position = self.conversation.decode(data, at, room, parts)
        except ProtocolError as error:
            self.fault = error.with_traceback(None)  # which would keep all that the frames keep
            self.forget()
            return True
        finally:
            messages = self._receive(batch, parts)
        left = size - position
        self.pending = self.conversation.postpones_decoding or (
            left > 0 and left >= self.conversation.need and (messages >= room or position > at)
        )
        if self.pending:
            self.rest = data
            self.at = position
        else:
            self.rest = data[position:] if left else b""
            self.at = 0
        return True

    def _bridge(self, data: bytes, room: int, parts: list[Part]) -> int:
        """Decode what begins in `rest` and ends in `data`: one request at most, perhaps a batch. Returns where the rest begins in it.

        The naive way joins both, which copies a long read only to complete one message: a tenth of what a stream costs (2026-11).
        """
        conversation = self.conversation
        at = 0
        for _ in range(MAX_BRIDGE_STEPS):
            end = at + conversation.need - len(self.rest)
            if end <= at or end > len(data):
                break
            joined = self.rest + data[at:end]
            at = end
            self.rest = joined[conversation.decode(joined, 0, room, parts) :]
            if not self.rest:
                break
        return at

    def _join(self, data: bytes) -> bytes:
        """All undecoded bytes with `data` behind them, or b"" while too few to get further."""
        if data:
            later = self.later
            if later and len(data) < COALESCE_BELOW_BYTES and len(later[-1]) < COALESCE_UP_TO_BYTES:
                later[-1] += data
            else:
                self.later = added(later, data)
            self.later_bytes += len(data)
        rest = self.rest[self.at :] if self.at else self.rest
        if not self.pending and len(rest) + self.later_bytes < self.conversation.need:
            return b""
        joined = b"".join([rest, *self.later]) if self.later else rest
        self.later = NO_ITEMS
        self.later_bytes = 0
        self.rest = b""
        self.at = 0
        return joined

    def _receive(self, batch: Batch, parts: list[Part]) -> int:
        """Count what was offered; return what it takes of the room: the messages, and one for a request without."""
        messages = 0
        window = batch.now // WINDOW_NS
        for part in parts:
            if part.kind == REQUEST:
                messages += part.count if part.messages <= 1 else part.count * part.messages
                if part.columns is not None:
                    batch.mixed = True
                    for of_key in part.columns.sums:
                        if not of_key.key.dirty:
                            self.accounts.note(of_key.key)
                        of_key.key.tally.receive(of_key.count, window)
                    continue
                key = part.key
                assert key is not None
                if not key.dirty:
                    self.accounts.note(key)
                key.tally.receive(part.count * part.messages, window)
        if messages and not self.publishes:
            self._look_for_publishes(parts)
        return messages

    def _look_for_publishes(self, parts: list[Part]) -> None:
        for part in parts:
            key = part.key
            if part.columns is not None:
                key = part.columns.sums[0].key
            if part.kind == REQUEST and key is not None and key.operation == PRODUCE and not key.text.startswith(RETRY_PREFIX):
                self.publishes = True
                return

    def forget(self) -> None:
        """Nothing of what is here is decoded any more."""
        self.rest = b""
        self.at = 0
        self.later = NO_ITEMS
        self.later_bytes = 0
        self.pending = False

    def undecoded(self) -> int:
        """Bytes kept here."""
        return len(self.rest) - self.at + self.later_bytes


def count_room(parts: list[Part]) -> int:
    """What they take of the room: the messages, and one for a request without."""
    messages = 0
    for part in parts:
        if part.kind == REQUEST:
            messages += part.count if part.messages <= 1 else part.count * part.messages
    return messages
