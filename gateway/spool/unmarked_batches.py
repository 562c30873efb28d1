"""UnmarkedBatches: durable batches of one queue, from their write until they are marked off.

A batch is marked off when the broker has what is in it; until then a crash of the gateway, of the broker or of the connection between them
may lose what was forwarded, and the batch stays in its file. What is not marked off when the connection is over is to be replayed.

::

    begin (its write) ─► written (committed) ─► taken out (`batches`) ─► settled ─► with the broker's machine ─► read there ─► marked off

Everything here is called on the event loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from gateway.pipeline.held_budget import HeldBudget
from gateway.spool.batches import Batch
from gateway.spool.queue_files import QueueFiles

# Until a broker has read what its machine has, also one that is slow for a moment: longer than a drain gives a broker that does not answer
# its close (`gateway/lifecycle/drain.py`, RELEASE_S and CLOSE_S). A crash repeats what was forwarded in that time.
READ_NS: Final = 5_000_000_000


class UnmarkedBatches:
    """Of one queue. `empty`: whether nothing waits in it."""

    def __init__(self, budget: HeldBudget, files: QueueFiles, empty: Callable[[], bool]) -> None:
        self.budget = budget
        self.files = files
        self.empty = empty
        self.batches: deque[Batch] = deque()  # that were taken out
        self.kept = 0  # batches, wherever they are
        self.in_flight = 0  # of these, on their way to the disk
        self.handed = -1  # bytes the broker's machine must have, until all before `handed_gone` is safe; -1: nothing is looked for
        self.handed_at = 0  # monotonic ns
        self.handed_gone = 0  # as `SpoolQueue.gone` counts, as the next
        self.passed = 0  # all before it is safe
        self.given_up = False  # the channel is closed
        self.left = False  # the connection is over
        self.copies = 0  # that are being made of what waits: its files stay until they are over

    def begin(self, batch: Batch) -> None:
        """`batch` is on its way to the disk."""
        self.budget.held_bytes += batch.size
        self.files.disk.uncommitted += batch.size
        self.in_flight += 1
        self.kept += 1

    def written(self, batch: Batch) -> None:
        """`batch` is committed."""
        batch.job.data = b""
        self.budget.held_bytes -= batch.size
        self.files.disk.uncommitted -= batch.size
        self.in_flight -= 1

    def mark_off(self, gone: int, queued: int, acknowledged: int, now: int, *, read: bool) -> None:
        """As `SpoolQueue.mark_off`. `gone`: bytes of the queue's parts that are settled."""
        if 0 <= self.handed <= acknowledged and (read or now - self.handed_at >= READ_NS):
            self.passed = self.handed_gone
            self.handed = -1
        if self.batches and self.batches[0].end <= self.passed:
            self._mark()
        if self.handed < 0 and self.batches and self.batches[0].end <= gone and self.passed < gone:
            self.handed = queued
            self.handed_at = now
            self.handed_gone = gone
        if self.given_up and self.handed < 0:
            self.leave()

    def unsafe(self) -> bool:
        """Whether something is still to be marked off, or to be written."""
        return not self.left and (self.kept > 0 or self.given_up)

    def leave(self) -> None:
        """The connection, or the channel, is over: what is not marked off is to be replayed."""
        if not self.left:
            self.left = True
            self.finish_leaving()

    def finish_leaving(self) -> None:
        """Once all is written: what has not passed is an orphan."""
        if self.in_flight or self.files.removals.in_flight or self.copies:
            return
        self._mark()
        self.files.leave_behind(self.batches)
        self.batches.clear()

    def _mark(self) -> None:
        """Mark off what has passed, up to the end of a message."""
        count = 0
        waiting = len(self.batches)
        for number, batch in enumerate(self.batches, 1):
            if not batch.written or batch.end > self.passed:
                break
            if batch.whole or (number == waiting and self.empty()):  # the rest of that message came when nothing waited, past this queue
                count = number
        last: Batch | None = None
        for _ in range(count):
            last = self.batches.popleft()
            self.kept -= 1
            self.files.consume(last)
        if last is not None:
            self.files.mark(last)
        if not self.batches and self.empty():
            self.files.end_segment()

    def __repr__(self) -> str:
        return f"<UnmarkedBatches kept={self.kept} in_flight={self.in_flight} left={self.left}>"
