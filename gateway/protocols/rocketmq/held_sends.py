"""Held sends: requests of one connection that wait for their limit (`gateway/waiting/lines.py`).

Only the request that was refused waits; other keys on the connection pass it by. Within a key it is first come, first served: a later send
that the judge lets pass goes behind the held ones, already paid for, or an asynchronous producer would see its messages swapped. So a line
is what a key's sends are in; one that is too large to be kept whole passes it by.

Bound: the session stops reading its client at `hold_bytes`, so at most that, one read and one batch frame wait here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.pipeline.conversation import Conversation
from gateway.pipeline.parts import Part
from gateway.protocols.rocketmq.polls.held import HeldPolls
from gateway.protocols.rocketmq.requests import Sends, restored
from gateway.waiting.line import Line
from gateway.waiting.lines import Lines
from limiter.keys import Key

PART_OVERHEAD: Final = 1100  # bytes: part 304, place 48, opaques 64, bytes object 33, line 312, numbers and entries 340; one for each key


class HeldSends(Lines):
    """Those of one connection; `lines` are named by their keys."""

    def __init__(self, conversation: Conversation, polls: HeldPolls, forward: Callable[[Part], None]) -> None:
        super().__init__(conversation, PART_OVERHEAD)
        self.polls = polls
        self.forward = forward

    def line_of(self, part: Part) -> Line | None:
        return self.lines.get(part.key) if self.lines and isinstance(part, Sends) and not part.streamed else None

    def line_for(self, key: Key) -> Line:
        """The line of `key`, a new one where nothing waits."""
        line = self.lines.get(key)
        return Line(key) if line is None else line

    def pass_on(self, part: Part) -> None:
        self.forward(part)

    def next_due(self) -> int:
        due = super().next_due()
        return due if self.conversation.frame_left else min(due, self.polls.due_queue.next_due)

    def restore(self, part: Part) -> Part:
        return part if isinstance(part, Sends) else restored(part)  # it may not have left memory

    def may_leave_memory(self, part: Part) -> bool:
        """What comes once something is spooled (`postpone`), which is one-way. Not what was judged in the batch with the first of it: its
        client may wait for an answer."""
        return part.rule is None and part.passed == 0

    def describe(self, line: Line) -> str:
        key = line.name
        return key.text if isinstance(key, Key) else str(key)
