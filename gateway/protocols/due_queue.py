"""Due queue: of the requests that lead a line, the one that is due next.

Requests over a limit wait in lines, one for each key, and only the first of a line, its **head**, is judged again. The naive way to find
the next one, a look at every head, costs a connection with a thousand waiting keys a thousand looks at every turn. So the heads lie in a
heap by the time they are due. A head that leads no more (it was put behind another) is not searched for in the heap, which would cost the
same: its entry stays, and is dropped when it comes up.

What it costs: a heap entry and a dictionary entry for each line, 200 bytes, and a logarithm of their number for each change.
"""

from __future__ import annotations

from heapq import heappop, heappush

from gateway.pipeline.parts import Part
from limiter.limits import NEVER


class HeldRequest(Part):
    """A request that may wait here.

    The constructors of its subclasses set both attributes to 0; a constructor here would be one more call for each request.
    """

    __slots__ = ("due", "order")

    due: int  # while held: monotonic ns at which to judge it again
    order: int  # place among the held requests of its connection; 0: was never held


class DueQueue:
    """The heads of one connection's lines; `next_due` says when the first of them is due. Lines are the caller's to keep."""

    __slots__ = ("_heads", "_heap", "_last_order", "next_due")

    def __init__(self) -> None:
        self.next_due = NEVER  # monotonic ns
        self._heads: dict[int, HeldRequest] = {}  # by order
        self._heap: list[tuple[int, int]] = []  # (due, order) of the heads, and of what leads no more
        self._last_order = 0

    def number(self, request: HeldRequest) -> None:
        """Give `request` its place in the order of coming, which it keeps when it is held again."""
        if request.order == 0:
            self._last_order += 1
            request.order = self._last_order

    def lead(self, request: HeldRequest) -> None:
        """`request` leads its line from now on, and is due at `request.due`."""
        self._heads[request.order] = request
        heappush(self._heap, (request.due, request.order))
        self._refresh()

    def leads(self, request: HeldRequest) -> bool:
        return request.order in self._heads

    def give_way(self, request: HeldRequest) -> None:
        """`request` leads its line no more, if it did."""
        if self._heads.pop(request.order, None) is not None:
            self._refresh()

    def take(self) -> HeldRequest:
        """Take the head that is due first. There must be one."""
        head = self._heads.pop(heappop(self._heap)[1])
        self._refresh()
        return head

    def clear(self) -> None:
        """Nothing leads a line any more."""
        self._heads.clear()
        self._heap.clear()
        self.next_due = NEVER

    def _refresh(self) -> None:
        """Drop what leads no more from the front of the heap, and say when the next head is due."""
        heap = self._heap
        while heap:
            due, order = heap[0]
            head = self._heads.get(order)
            if head is not None and head.due == due:
                self.next_due = due
                return
            heappop(heap)
        self.next_due = NEVER

    def __repr__(self) -> str:
        return f"<DueQueue {len(self._heads)} heads, next due {'never' if self.next_due == NEVER else self.next_due}>"
