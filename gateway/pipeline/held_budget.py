"""What counts against one connection: how much its conversation holds, and when something of it is due.

The conversation writes these numbers as it takes and gives; the session, the heartbeats, the drain and the status page read them. The
session stops reading the client when `held_bytes + reply_bytes` reaches `memory.per_connection`, and the broker when `parked_bytes` does.
So a number that is too low lets a client fill the gateway's memory, and one that never comes down stops a connection for good.
"""

from __future__ import annotations

from limiter.limits import NEVER


class HeldBudget:
    """One connection's. `Conversation.budget`."""

    def __init__(self) -> None:
        # In the order in which a turn of the session looks at them, see `Session`.
        self.next_due = NEVER  # monotonic ns; when `take_due` has something to judge again
        self.ask_due = NEVER  # monotonic ns; when `ask` has deliveries to judge
        self.blocking = 0  # held parts that keep the client from being read, and one for `held_back`
        self.held_bytes = 0  # of held parts
        self.reply_bytes = 0  # of the gateway's own replies that wait for a place in the broker's stream; they count as held
        self.parked_bytes = 0  # of deliveries that a rule keeps from the client
        self.held_back = False  # the gateway as a whole is short of memory, and this client publishes
        self.frame_left = 0  # bytes the client still owes of the frame the broker stands in; nothing held may go before them
        self.unanswered_bytes = 0  # of refused contents still coming in that are kept for their answer
        self.held_messages = 0  # in held parts
        self.held_polls = 0  # requests for messages, and requeues, that a rule keeps here; no messages, given up without harm at a close
        self.paged_queues = 0  # of its ordering keys, those with something to page; each may keep its share of memory
        self.paging_bytes = 0  # of `held_bytes`, those on their way to the disk
        self.paged_bytes = 0  # of held parts that are on disk only, and not in `held_bytes`; `held_messages` counts them
        self.parked_messages = 0  # deliveries that a rule keeps from the client

    def hold_back(self, *, yes: bool) -> None:
        """The client is not read, or no longer held back, because the gateway as a whole is short of memory; counts in `blocking`."""
        if yes != self.held_back:
            self.held_back = yes
            self.blocking += 1 if yes else -1

    def waiting(self) -> int:
        """How much a rule keeps here: messages, requests for messages, deliveries."""
        return self.held_messages + self.held_polls + self.parked_messages

    def total_bytes(self) -> int:
        """All that it keeps in memory."""
        return self.held_bytes + self.parked_bytes + self.reply_bytes + self.unanswered_bytes

    def __repr__(self) -> str:
        return f"<HeldBudget held={self.held_messages} parked={self.parked_messages} bytes={self.total_bytes()} due={self.next_due}>"
