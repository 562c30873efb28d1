"""Forward: what was admitted leaves as the bytes it came in.

Contiguous parts leave as one slice; the channel sends all slices of a turn with one system call. The forwarder has handled a request
when the broker's socket has taken its bytes; until then the limiter's credit towards it stays spent, and that pressure travels back to
the reader.
"""

from __future__ import annotations

from collections import deque

from gateway.accounts import Accounts
from gateway.channel import Channel
from gateway.conversation import Conversation
from gateway.messages import REQUEST
from gateway.pipeline import Batch, Handler
from limiter.credit import Credit


class Forward(Handler):
    """Puts `conversation.onward` on the upstream channel."""

    def __init__(self, conversation: Conversation, upstream: Channel, credit: Credit, accounts: Accounts) -> None:
        self.conversation = conversation
        self.upstream = upstream
        self.credit = credit  # the limiter's towards us
        self.accounts = accounts
        self.messages = 0  # requests forwarded since the session began
        self.marks: deque[tuple[int, int]] = deque()  # (upstream.queued after it, requests): not yet taken by the socket

    def carry(self, batch: Batch) -> bool:
        onward = self.conversation.onward
        if not onward:
            return True
        upstream = self.upstream
        requests = 0
        data = onward[0].data
        start = onward[0].start
        end = start
        for part in onward:
            if part.kind == REQUEST:
                key = part.key
                assert key is not None
                count = part.count
                requests += count
                tally = key.tally
                tally.messages += count * part.messages
                tally.bytes += count * part.size
                if not key.dirty:
                    self.accounts.note(key)
            if part.data is data and part.start == end:
                end = part.end
            else:
                upstream.queue(data, start, end)
                data = part.data
                start = part.start
                end = part.end
        upstream.queue(data, start, end)
        self.conversation.onward = []
        if requests:
            self.messages += requests
            self.credit.spend(requests, batch.now)
            self.marks.append((upstream.queued, requests))
        return True

    def acknowledge(self, now: int) -> None:
        """Grant credit for what the broker's socket has taken since the last call."""
        marks = self.marks
        if not marks:
            return
        sent = self.upstream.sent
        handled = 0
        while marks and marks[0][0] <= sent:
            handled += marks.popleft()[1]
        if handled:
            self.credit.handle(handled, now, blocked=False)
