"""Due queue: of the lines of one connection, the one that is due next.

What is over a limit waits in lines, and only the first of a line is judged again. The naive way to find the next one, a look at every
line, costs a connection with a thousand of them a thousand looks at every turn. So the lines lie in a heap by the time they are due. A line
that is due at another time is not searched for in the heap, which would cost the same: its entry stays, and is dropped when it comes up.

What it costs: a heap entry and a dictionary entry for each line, 200 bytes, and a logarithm of their number for each change.
"""

from __future__ import annotations

from heapq import heappop, heappush

from gateway.pipeline.empties import NO_ENTRIES, NO_ITEMS, put
from limiter.limits import NEVER


class DueLine:
    """What may lie in a due queue. A subclass's constructor calls this one."""

    __slots__ = ("due_at", "number")

    def __init__(self) -> None:
        self.due_at = NEVER  # monotonic ns, as the queue has it; NEVER: it does not lie there
        self.number = 0  # place in the order of coming into the queue; 0: was never there


class DueQueue:
    """The lines of one connection that are due some time; `next_due` says when the first of them is."""

    __slots__ = ("_heap", "_last_number", "_lines", "next_due")

    def __init__(self) -> None:
        self.next_due = NEVER  # monotonic ns
        self._lines: dict[int, DueLine] = NO_ENTRIES  # by number
        self._heap: list[tuple[int, int]] = NO_ITEMS  # (due, number); of what is due at another time by now, too
        self._last_number = 0

    def set_due(self, line: DueLine, due: int) -> None:
        """`line` is due at `due` from now on; NEVER takes it out."""
        if due == line.due_at:
            return
        line.due_at = due
        if due == NEVER:
            self._lines.pop(line.number, None)
        else:
            if line.number == 0:
                self._last_number += 1
                line.number = self._last_number
            self._lines = put(self._lines, line.number, line)
            if not self._heap:
                self._heap = []
            heappush(self._heap, (due, line.number))
        self._refresh()

    def take(self) -> DueLine:
        """Take out the line that is due first. There must be one."""
        line = self._lines.pop(heappop(self._heap)[1])
        line.due_at = NEVER
        self._refresh()
        return line

    def clear(self) -> None:
        """Take out all."""
        for line in self._lines.values():
            line.due_at = NEVER
        self._lines.clear()
        self._heap.clear()
        self.next_due = NEVER

    def _refresh(self) -> None:
        """Drop what is due at another time from the front of the heap, and say when the next line is due."""
        heap = self._heap
        while heap:
            due, number = heap[0]
            line = self._lines.get(number)
            if line is not None and line.due_at == due:
                self.next_due = due
                return
            heappop(heap)
        self.next_due = NEVER

    def __repr__(self) -> str:
        return f"<DueQueue {len(self._lines)} lines, next due {'never' if self.next_due == NEVER else self.next_due}>"
