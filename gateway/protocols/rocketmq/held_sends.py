"""Held sends: requests of one connection that wait for their limit.

Only the request that was refused waits; other keys on the connection pass it by. Within a key first come, first served: a later send
that the judge lets pass queues behind the held ones, already paid for, or an asynchronous producer would see its messages swapped.
A part keeps its place (`order`) when it is judged again and refused again.

What it costs: one heap entry per key that waits, one list per such key, and each part its objects, which are counted in `bytes`
(PART_OVERHEAD), or many small sends would take several times their budget. Bound: the session stops reading its client at `hold_bytes`,
so at most that, one read and one batch frame wait here.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

from gateway.pipeline.parts import NEVER
from gateway.protocols.rocketmq.requests import Sends
from limiter.keys import Key

PART_OVERHEAD: Final = 640  # bytes: part 180, opaques 100, bytes object 33, list 90, two dictionary entries 170, heap entry 70 (getsizeof)


class HeldSends:
    """Parts that wait, per key in order; `next_due` says when the first may be judged again."""

    def __init__(self) -> None:
        self.bytes = 0
        self.messages = 0
        self.blocking = 0  # parts for whose sake the client is not read
        self.next_due = NEVER
        self.queues: dict[Key, list[Sends]] = {}
        self.heads: dict[int, Sends] = {}  # by order: the first of each queue
        self.heap: list[tuple[int, int]] = []  # (due, order) of heads, and of what no longer is one
        self.last_order = 0

    def hold(self, part: Sends, due: int, *, blocking: bool) -> None:
        """Keep `part` in its place among its key's; its turn comes at `due`, or when those before it have gone."""
        part.copy_out()
        part.due = due
        part.blocking = blocking
        self._insert(part)

    def goes_behind(self, part: Sends) -> bool:
        """Whether `part`, which may pass, would overtake a held one of its key."""
        key = part.key
        assert key is not None
        queue = self.queues.get(key)
        return queue is not None and (part.order == 0 or part.order > queue[0].order)

    def queue_behind(self, part: Sends, *, paid: bool = True) -> None:
        """Keep `part`, judged and passed, until those before it have gone; not `paid`: then it is judged again."""
        part.copy_out()
        part.paid = paid
        part.due = NEVER if paid else 0
        self._insert(part)

    def take_due(self, now: int, room: int) -> list[Sends]:
        """Take the first of each key whose time has come and what may follow at once; about `room` requests that are to be judged."""
        taken: list[Sends] = []
        requests = 0
        while self.next_due <= now and requests < room:
            part = self.heads.pop(heappop(self.heap)[1])
            key = part.key
            assert key is not None
            queue = self.queues[key]
            while queue and (queue[0].paid or (queue[0].due <= now and requests < room)):
                part = queue.pop(0)
                taken.append(part)
                self._count(part, -1)
                if not part.paid:
                    requests += part.count
            if queue:
                self._lead(queue[0])
            else:
                del self.queues[key]
            self._refresh()
        return taken

    def abandon(self) -> list[Sends]:
        """Everything held, in the order it came."""
        parts = [part for queue in self.queues.values() for part in queue]
        parts.sort(key=order_of)
        self.queues.clear()
        self.heads.clear()
        self.heap.clear()
        self.bytes = 0
        self.messages = 0
        self.blocking = 0
        self.next_due = NEVER
        return parts

    def _insert(self, part: Sends) -> None:
        key = part.key
        assert key is not None
        if part.order == 0:
            self.last_order += 1
            part.order = self.last_order
        self._count(part, 1)
        queue = self.queues.get(key)
        if queue is None:
            queue = []
            self.queues[key] = queue
        place = len(queue)
        while place > 0 and queue[place - 1].order > part.order:
            place -= 1
        if place == 0:
            if queue:
                del self.heads[queue[0].order]  # its heap entry is now of something that does not lead: _refresh drops it
            self._lead(part)
        queue.insert(place, part)
        self._refresh()

    def _lead(self, part: Sends) -> None:
        self.heads[part.order] = part
        heappush(self.heap, (part.due, part.order))

    def _refresh(self) -> None:
        """Drop heap entries of parts that no longer lead their queue, and say when the next is due."""
        heap = self.heap
        while heap:
            due, order = heap[0]
            part = self.heads.get(order)
            if part is not None and part.due == due:
                self.next_due = due
                return
            heappop(heap)
        self.next_due = NEVER

    def _count(self, part: Sends, sign: int) -> None:
        self.bytes += sign * (part.end - part.start + PART_OVERHEAD)
        self.messages += sign * part.count * part.messages
        if part.blocking:
            self.blocking += sign

    def __repr__(self) -> str:
        return f"<HeldSends {self.messages} messages, {self.bytes} bytes, {len(self.queues)} keys>"


def order_of(part: Sends) -> int:
    return part.order
