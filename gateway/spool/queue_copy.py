"""QueueCopy: a copy of what waits in one queue of the spool, with what is held before it, for an operator's order.

Runs on a thread but where it says otherwise. It takes what waited when it was asked, in order. What a message is in its protocol, and how
a line of the file tells it, is for the subclass to say (`_publishes`, `lines`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from gateway.pipeline.parts import REQUEST, Part
from gateway.pipeline.spool_orders import OnLoop, SpoolCopy, SpoolOrder
from gateway.spool.batches import WaitingBatch
from gateway.spool.queue import SpoolQueue
from gateway.spool.records import BATCH, RECORD
from gateway.spool.removals import Range

HEADS: Final = (RECORD.size, BATCH.size + RECORD.size)  # bytes between the data of two records of a file, in a batch or where one begins


class WaitingPart:
    """A part as it was when the copy was ordered: the loop may change the part meanwhile. `ours`: of the topic; `original`: in memory."""

    __slots__ = ("complete", "count", "data", "kind", "messages", "original", "ours", "place", "unanswered")

    def __init__(self, part: Part, original: Part | None = None, *, ours: bool) -> None:
        self.kind = part.kind
        self.data = part.data[part.start : part.end]
        self.count = int(part.count)
        self.messages = int(part.messages)  # of each request
        self.complete = part.complete
        self.unanswered = part.unanswered
        self.ours = ours
        self.original = original
        self.place = part.place + part.start if part.place and part.replays else 0


class QueueCopy(SpoolCopy):
    """`held` in memory before its queue, then the queue's batches. `order` is for the messages of the topic."""

    def __init__(self, order: SpoolOrder, held: list[WaitingPart], queue: SpoolQueue) -> None:
        super().__init__(order)
        self.held = held
        self.queue = queue
        self.at = queue.messages.gone  # place of the first message of `batches`
        self.batches: list[WaitingBatch] = queue.hold_files()
        self.places: list[Range] = []  # of what was found in durable files
        self.originals: list[Part] = []  # of what was found in memory
        self.removed = 0  # of these, and then of `places`

    def release(self) -> None:
        """On the loop: the files may go."""
        self.queue.release_files(self.batches)
        self.batches = []

    def remove(self, most: int, on_synced: Callable[[], None]) -> bool:
        first = self.removed
        self.removed += most
        behind = max(first - len(self.originals), 0)
        places = self.places[behind : max(self.removed - len(self.originals), 0)]
        self.queue.remove_all(self.originals[first : self.removed], places, on_synced)
        return self.removed < len(self.originals) + len(self.places)

    def is_ours(self, data: bytes, on_loop: OnLoop) -> bool:
        """Whether a request that comes from the queue, and begins so, is of the topic."""
        raise NotImplementedError

    def note(self, part: WaitingPart) -> None:
        """All messages that begin in `part` are whole."""
        if part.original is not None:
            self.originals.append(part.original)
        elif part.place:
            end = part.place + len(part.data)
            if self.places and part.place - self.places[-1][1] in HEADS:  # one behind the other: one range
                self.places[-1] = (self.places[-1][0], end)
            else:
                self.places.append((part.place, end))

    def parts(self, on_loop: OnLoop) -> Iterator[WaitingPart]:
        """What waited, in order, up to the last message that the order is for."""
        yield from self.held
        at = self.at
        for batch in self.batches:
            for index, part in enumerate(batch.read(self.queue.disk, self.queue.ordering_key)):
                ours = False
                if part.kind == REQUEST:
                    if at >= self.order.place:
                        return
                    ours = at >= self.order.begins and self.is_ours(part.data, on_loop)
                    at += int(part.count) * int(part.messages)
                yield WaitingPart(part, batch.originals[index] if batch.batch is None else None, ours=ours)
