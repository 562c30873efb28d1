"""Decode: bytes to parts, never more than there is credit for.

The naive way decodes all of a read and queues what cannot go on; then a paused reader overshoots by one read per connection. Instead
the undecoded rest stays bytes (`rest`) and decoding stops at `room`, so a connection holds at most one read plus one incomplete frame.
Small pieces of a large frame are collected without joining them each time (`need`), or a client that sends one byte at a time would
cost a copy of the frame per byte.
"""

from __future__ import annotations

from typing import Final

from gateway.accounts import Accounts
from gateway.conversation import Conversation
from gateway.messages import REQUEST, Part
from gateway.pipeline import Batch, Handler
from limiter.credit import Credit

REQUESTS_PER_TURN: Final = 512  # fairness between sessions, as Netty's maxMessagesPerRead; 512 short messages are about 0.2 ms
WINDOW_NS: Final = 100_000_000  # access log's max_100ms_messages


class Decode(Handler):
    """Turns a batch's bytes into parts; keeps what it could not decode yet."""

    def __init__(self, conversation: Conversation, credit: Credit, accounts: Accounts) -> None:
        self.conversation = conversation
        self.credit = credit  # of the reader towards the limiter: how many requests may be decoded
        self.accounts = accounts
        self.rest = b""  # undecoded bytes, joined
        self.later: list[bytes] = []  # bytes after `rest`, not worth joining before `conversation.need` are there
        self.later_bytes = 0
        self.pending = False  # decoding stopped for want of room: call again without new bytes

    def carry(self, batch: Batch) -> bool:
        data = batch.data
        if self.rest or self.later:
            data = self._join(data)
            if not data:
                return True
        parts = batch.parts
        position = 0
        room = min(self.credit.credit, REQUESTS_PER_TURN)
        size = len(data)
        if room > 0 and size > 0:
            position = self.conversation.decode(data, 0, room, parts)
        self.rest = data[position:] if position else data
        batch.data = b""
        requests = self._receive(parts, batch.now)
        self.pending = size > position and len(self.rest) >= self.conversation.need and (requests >= room or position > 0)
        return True

    def _join(self, data: bytes) -> bytes:
        """All undecoded bytes with `data` behind them, or b"" while too few to get further."""
        if data:
            self.later.append(data)
            self.later_bytes += len(data)
        if not self.pending and len(self.rest) + self.later_bytes < self.conversation.need:
            return b""
        joined = b"".join([self.rest, *self.later]) if self.later else self.rest
        self.later = []
        self.later_bytes = 0
        self.rest = b""
        return joined

    def _receive(self, parts: list[Part], now: int) -> int:
        """Count what was offered; return the number of requests."""
        requests = 0
        window = now // WINDOW_NS
        for part in parts:
            if part.kind == REQUEST:
                key = part.key
                assert key is not None
                requests += part.count
                if not key.dirty:
                    self.accounts.note(key)
                key.tally.receive(part.count * part.messages, window)
        return requests

    def undecoded(self) -> int:
        """Bytes kept here."""
        return len(self.rest) + self.later_bytes
