"""Held sends: requests of one connection that wait for their limit (`gateway/waiting/lines.py`).

Only the request that was refused waits; other keys on the connection pass it by. Within a key it is first come, first served: a later send
that the judge lets pass goes behind the held ones, already paid for, or an asynchronous producer would see its messages swapped. So a line
is what a key's sends are in; one that is too large to be kept whole passes it by. Polls wait beside them (`polls/held.py`).

Bound: the session stops reading its client at `hold_bytes`, so at most that, one read and one batch frame wait here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.pipeline.actions.holding import REJUDGE_WITHIN_NS
from gateway.pipeline.context import ConversationContext
from gateway.pipeline.held_budget import HeldBudget
from gateway.pipeline.parts import Part
from gateway.pipeline.reports import Reports
from gateway.protocols.rocketmq.polls.polls import Polls
from gateway.protocols.rocketmq.request_reply import shortest_ttl_ns
from gateway.protocols.rocketmq.requests import Poll, Sends, restore_sends
from gateway.waiting.line import Line
from gateway.waiting.lines import IN_MEMORY, Lines
from limiter.keys import Key

PART_OVERHEAD: Final = 1100  # bytes: part 264, `Held` 72, opaques 64, bytes object 33, line 312, numbers and entries 340; one for each key
PATIENCE_NS: Final = 2_500_000_000  # clients give a request up after 3 s (docs/design/limiter.md 4)


class HeldSends(Lines):
    """Those of one connection. A line is named by what is the same of all keys that its sends ever have: live changes bring others."""

    def __init__(
        self, context: ConversationContext, budget: HeldBudget, reports: Reports, polls: Polls, forward: Callable[[Part], None]
    ) -> None:
        super().__init__(context, budget, reports, PART_OVERHEAD)
        self.patience_ns = PATIENCE_NS
        self.polls = polls
        self.poll_bytes = 0  # of held polls, as the budget has it
        self.forward = forward

    # ---- what a protocol says --------------------------------------------------------------------------------------

    def name_of(self, part: Part) -> object:
        key = part.key
        return None if key is None else (key.operation, key.name, key.group, key.origin.user)

    def line_of(self, part: Part) -> Line | None:
        return self.by_name.get(self.name_of(part)) if self.by_name and isinstance(part, Sends) and not part.streamed else None

    def line_for(self, part: Part) -> Line | None:
        if not isinstance(part, Sends) or part.streamed or self.reports.close_reason:
            return None
        line = super().line_for(part)
        if line is not None:
            line.last_key = part.key
        return line

    def next_due(self) -> int:
        due = super().next_due()
        return due if self.budget.frame_left else min(due, self.polls.held.due_queue.next_due)

    def patience_with(self, part: Part) -> int:
        assert isinstance(part, Poll)
        terms = part.terms
        assert terms is not None
        return terms.patience_ns

    def may_page(self, part: Part) -> bool:
        """One-way sends alone: for all others the answer would come too late."""
        return isinstance(part, Sends) and part.one_way

    def would_overtake(self, part: Part) -> bool:
        line = self.by_name.get(self.name_of(part)) if self.by_name else None
        if not isinstance(part, Sends) or (part.one_way and not part.streamed) or line is None or line.paged is None:
            return False
        if line.parts:  # what it would overtake waits for this
            first = line.parts[0]
            part.rule = first.rule
            part.bucket = first.bucket
            part.wait_ns = first.wait_ns
        return True

    def key_of(self, line: Line, data: bytes) -> Key | None:
        return line.last_key

    def restore(self, part: Part) -> Part:
        return part if isinstance(part, Sends) else restore_sends(part)  # it may not have left memory

    def may_leave_memory(self, part: Part) -> bool:
        """What comes once something is paged (`postpone`), which is one-way. Not what was judged in the batch with the first of it: its
        client may wait for an answer."""
        return part.rule is None and part.passed == 0

    def describe(self, line: Line) -> str:
        return str(line.name) if line.last_key is None else line.last_key.text

    # ---- sends and polls -------------------------------------------------------------------------------------------

    def hold(self, part: Part, due: int, manner: int = IN_MEMORY) -> bool:
        if isinstance(part, Poll):
            if self.reports.close_reason:
                return False
            self.polls.hold(part, due)
            self.update_polls()
            return True
        assert isinstance(part, Sends)
        if part.streamed or self.reports.close_reason:
            return False
        if part.held is None or part.held.since == 0:  # it begins to wait
            ttl = shortest_ttl_ns(part)
            if ttl > 0:
                if part.wait_ns >= ttl:
                    return False
                part.deadline = min(part.deadline, due + ttl - min(part.wait_ns, REJUDGE_WITHIN_NS))
        return super().hold(part, due, manner)

    def may_wait(self, part: Sends) -> bool:
        """Whether `part` can be held for as long as it takes."""
        return not part.streamed and not self.reports.close_reason and shortest_ttl_ns(part) == 0

    def keep(self, line: Line, part: Part, due: int, *, blocking: bool = False) -> None:
        rule = part.rule
        if rule is not None and rule.backoff_ns is not None and part.again and part.gives_back():
            due = min(due + line.pause(rule.backoff_ns), part.deadline)
        super().keep(line, part, due, blocking=blocking)

    def take_requests(self, now: int, room: int, last: object = None) -> list[Part]:
        """Those of one key in the order they came, the paid ones behind them included."""
        taken = super().take_requests(now, room)
        if self.polls.held.due_queue.next_due <= now:
            taken.extend(self.polls.take_due(now, room))
            self.update_polls()
        return taken

    def update_polls(self) -> None:
        """Write what held polls count against the connection."""
        polls = self.polls
        budget = self.budget
        budget.held_bytes += polls.held.bytes - self.poll_bytes
        self.poll_bytes = polls.held.bytes
        budget.held_polls = polls.held.count
        budget.ask_due = polls.ask_due
        self.update_due()

    def first_waiting(self) -> Part | None:
        return super().first_waiting() or self.polls.held.longest()

    def forget_all(self) -> list[Part]:
        parts = super().forget_all()
        self.poll_bytes = 0
        parts.extend(self.polls.held.abandon())
        self.update_polls()
        return parts
