"""LimitDeliveries: the way back, from the broker to the client, as far as it is limited.

Most of what a broker sends passes without a stop. Deliveries that a rule limits wait in the conversation (`Conversation.ask`) for a
verdict. They go to the same judge, on the same executor, as a batch of their own. A session has at most one such batch with the judge
and reads nothing from its broker meanwhile, so nothing overtakes. What is refused stays parked in the conversation, which says when to
ask again (`HeldBudget.ask_due`).
"""

from __future__ import annotations

from typing import Final

from gateway.counting.accounts import WINDOW_NS, Accounts
from gateway.pipeline.conversation import Conversation
from gateway.pipeline.empties import NO_ITEMS
from gateway.pipeline.pipeline import Batch

MIN_READ_BYTES: Final = 4096  # of one read near the bound of what may be parked: some progress, little overshoot; a guess


class LimitDeliveries:
    """Carries deliveries to the judge and back, and counts them."""

    def __init__(self, conversation: Conversation, accounts: Accounts, hold_bytes: int) -> None:
        self.conversation = conversation
        self.budget = conversation.budget
        self.accounts = accounts
        self.hold_bytes = hold_bytes  # how much may be parked (memory.per_connection)
        self.batch: Batch | None = None  # under way with the judge

    def ask(self, owner: object, now: int) -> Batch | None:
        """A batch to be submitted to the judge now; None where there is nothing to ask, or a batch is with the judge."""
        if self.batch is not None or self.budget.ask_due > now:
            return None
        parts = self.conversation.ask(now)
        if not parts:
            return None
        batch = Batch(owner, b"", now)
        batch.requests = parts
        self.batch = batch
        return batch

    def resume(self, now: int) -> None:
        """The judge has looked at `batch`."""
        self.batch = None
        self.conversation.deliver(now)

    def may_read(self, *, memory_full: bool, last_words: bool) -> bool:
        """Whether to read the broker. `last_words`: it has closed, and what is in the socket is all that is left."""
        if self.batch is not None:
            return False
        parked = self.budget.parked_bytes
        return parked == 0 or last_words or (parked < self.hold_bytes and not memory_full)

    def read_bytes(self, most: int) -> int:
        """How much to read from the broker at once, `most` at most: little near the bound, or one read would go far beyond it."""
        parked = self.budget.parked_bytes
        return most if parked == 0 else min(most, max(self.hold_bytes - parked, MIN_READ_BYTES))

    def count(self, now: int) -> None:
        """Enter into the accounts what the conversation has reported."""
        reports = self.conversation.reports
        window = now // WINDOW_NS
        for delivered in reports.delivered:
            tally = self.accounts.tally_of(delivered.key)
            if delivered.received:
                tally.receive(delivered.received, window)
            tally.messages += delivered.forwarded
            tally.bytes += delivered.size
            tally.redelivered += delivered.redelivered
        reports.delivered = NO_ITEMS

    def __repr__(self) -> str:
        state = "asking" if self.batch is not None else "idle"
        return f"<LimitDeliveries {state} parked={self.budget.parked_messages}>"
