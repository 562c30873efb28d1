"""Paging: what all paged queues have in memory is kept near `memory.target`; the largest goes to the disk first.

A queue writes its `tail` by itself once that is as large as its share. A share becomes smaller as queues become more, and tails that were
made before keep their size; so all together may be more than `memory.target`. Once what is in memory comes to two thirds of it, tails are
written, the largest first, until it is half: in batches, as RabbitMQ's paging does. The last third is for what is on its way to the disk.
While that is slower than its senders and all is more than `memory.target`, a sender with something on its way is not read (`over`).

No queue is looked for: queues stand in classes by the size of their tails, and change class only when it has grown by `least`. A tail
below `least` stays where it is: the batch that it would become takes as much memory.

Everything here is called on the event loop.
"""

from __future__ import annotations

from typing import Final

CLASSES: Final = 64  # of sizes; the last one has all that is larger
LEAST_BATCHES: Final = 16  # with less memory each write would stop its sender (a guess)


class PageableQueue:
    """What `Paging` sees of a queue."""

    def __init__(self) -> None:
        self.tail_cost = 0  # bytes of memory that the tail takes
        self.size_class = 0  # where the queue stands; 0: nowhere

    def page_out(self) -> bool:
        """Send the tail to the disk; False where that cannot be just now."""
        raise NotImplementedError


class Paging:
    """Of one process. Bytes of memory, as budgets count them."""

    def __init__(self, target: int, least: int) -> None:
        self.least = least  # that are worth a batch
        self.tails = 0  # of messages that have come last
        self.writing = 0  # of those on their way to the disk
        self.read_ahead = 0  # of those read back, or just being read, and not yet taken out
        self.paged = 0  # tails that were written before they had their queue's share, since the start
        self.classes: list[dict[PageableQueue, None]] = [{} for _ in range(CLASSES + 1)]
        self.highest = 0  # no class above it has a queue
        self.take_target(target)

    def take_target(self, target: int) -> None:
        """It holds from the next message on; what is less than LEAST_BATCHES of them counts as so much."""
        self.target = max(target, LEAST_BATCHES * self.least)
        self.high = self.target * 2 // 3
        self.low = self.target // 2

    def total(self) -> int:
        """All that is in memory."""
        return self.tails + self.writing + self.read_ahead

    def over(self) -> bool:
        """Whether that is more than it should be: the disk is slower than the senders."""
        return self.tails + self.writing + self.read_ahead > self.target

    def may_read_ahead(self) -> bool:
        """Whether there is memory for what is not needed yet."""
        return self.tails + self.read_ahead <= self.high

    def grow_tail(self, queue: PageableQueue, size: int) -> None:
        """The tail of `queue` has grown by `size`."""
        self.tails += size
        self.offer(queue)
        if self.tails + self.read_ahead > self.high:
            self.page_out()

    def offer(self, queue: PageableQueue) -> None:
        """`queue` stands where it belongs by the size of its tail."""
        size_class = min(queue.tail_cost // self.least, CLASSES)
        if size_class != queue.size_class:
            self._move(queue, size_class)

    def drop_tail(self, queue: PageableQueue, size: int) -> None:
        """The tail of `queue`, of `size`, is a new one."""
        self.tails -= size
        if queue.size_class:
            self._move(queue, 0)

    def read(self, size: int) -> None:
        """So much more, or (below zero) less, is read ahead."""
        self.read_ahead += size
        if size > 0 and self.tails + self.read_ahead > self.high:
            self.page_out()

    def page_out(self) -> None:
        """Write the largest tails. A queue that cannot write its own is not asked again before it has grown, or there is room."""
        while self.highest > 0 and self.tails + self.read_ahead > self.low:
            queues = self.classes[self.highest]
            if not queues:
                self.highest -= 1
                continue
            queue = next(iter(queues))
            if queue.page_out():
                self.paged += 1
            if queue.size_class:
                self._move(queue, 0)

    def _move(self, queue: PageableQueue, size_class: int) -> None:
        if queue.size_class:
            del self.classes[queue.size_class][queue]
        queue.size_class = size_class
        if size_class:
            self.classes[size_class][queue] = None
            self.highest = max(self.highest, size_class)

    def __repr__(self) -> str:
        return f"<Paging tails={self.tails} writing={self.writing} read_ahead={self.read_ahead} target={self.target}>"
