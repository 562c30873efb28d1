"""Forward: what was admitted leaves as the bytes it came in.

Contiguous parts leave as one slice, and the channel sends all slices of a turn with one system call. A message is handled when the
broker's socket has taken its bytes. Until then the limiter's credit towards the forwarder stays spent, and so the reader feels a slow
broker.
"""

from __future__ import annotations

from gateway.counting.accounts import Accounts
from gateway.pipeline.conversation import Conversation
from gateway.pipeline.empties import NO_ITEMS, added
from gateway.pipeline.parts import REQUEST
from gateway.pipeline.pipeline import Batch, Handler
from gateway.transport.channel import Channel
from gateway.transport.channel_states import WRITE_FAILED
from limiter.columns import Columns
from limiter.credit import Credit


class Forward(Handler):
    """Puts `conversation.outbox` on the upstream channel."""

    def __init__(self, conversation: Conversation, upstream: Channel, credit: Credit, accounts: Accounts) -> None:
        self.unsent = 0  # messages whose bytes the socket has not taken yet
        self.lost = 0  # messages whose bytes it never will: the broker's connection has failed
        self.upstream = upstream
        self.conversation = conversation
        self.credit = credit  # the limiter's towards us
        self.messages = 0  # forwarded since the session began
        self.accounts = accounts
        self.first_mark = 0  # upstream.queued behind the first of them
        self.first_count = 0
        self.marks: list[tuple[int, int]] = NO_ITEMS  # the same of the rest, latest last: rarely any

    def carry(self, batch: Batch) -> bool:
        outbox = self.conversation.outbox
        if not outbox:
            return True
        upstream = self.upstream
        messages = 0
        data = outbox[0].data
        start = outbox[0].start
        end = start
        for part in outbox:
            if part.kind == REQUEST:
                count = part.count
                each = part.messages
                messages += count if each <= 1 else count * each
                if part.columns is not None:
                    self._count_columns(part.columns)
                else:
                    key = part.key
                    assert key is not None
                    tally = key.tally
                    tally.messages += count * each
                    tally.bytes += count * part.size
                    if not key.dirty:
                        self.accounts.note(key)
                    if part.copies is not None:
                        tally.copies += count * len(part.copies)
                    if part.flight is not None:
                        part.flight.since = batch.now
            if part.data is data and part.start == end:
                end = part.end
            else:
                upstream.queue(data, start, end)
                data = part.data
                start = part.start
                end = part.end
        upstream.queue(data, start, end)
        self.conversation.outbox = []
        if messages:
            self.messages += messages
            self.credit.spend(messages, batch.now)
            if upstream.write_state == WRITE_FAILED:
                self.lost += messages
                self.credit.handle(messages, batch.now, blocked=False)
                return True
            if self.unsent == 0:
                self.first_mark = upstream.queued
                self.first_count = messages
            else:
                self.marks = added(self.marks, (upstream.queued, messages))
            self.unsent += messages
        return True

    def _count_columns(self, columns: Columns) -> None:
        for of_key in columns.sums:
            key = of_key.key
            tally = key.tally
            tally.messages += of_key.count - of_key.refused
            tally.bytes += of_key.size - of_key.refused_bytes
            if not key.dirty:
                self.accounts.note(key)

    def acknowledge(self, now: int) -> None:
        """Grant credit for what the broker's socket has taken since the last call."""
        handled = self.unsent
        if handled == 0:
            return
        sent = self.upstream.sent
        if sent != self.upstream.queued:
            handled = self._take_marks(sent)
            if handled == 0:
                return
        else:
            if self.upstream.write_state == WRITE_FAILED:
                self.lost += handled - self._take_marks(sent)
            self.marks.clear()
        self.unsent -= handled
        self.credit.handle(handled, now, blocked=False)

    def _take_marks(self, sent: int) -> int:
        """The messages before `sent`; their marks are taken off."""
        if self.first_mark > sent:
            return 0
        handled = self.first_count
        gone = 0
        for mark, count in self.marks:
            if mark > sent:
                self.first_mark = mark
                self.first_count = count
                gone += 1
                break
            handled += count
            gone += 1
        del self.marks[:gone]
        return handled
