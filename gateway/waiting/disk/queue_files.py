"""QueueFiles: the files of one queue. Batches are written to the last one; a file is deleted as a whole, when nothing of it is needed.

Everything here is called on the event loop. The work itself is a `DiskJob` of the disk's threads (`waiting_disk.py`).
"""

from __future__ import annotations

from typing import Final

from gateway.pipeline.parts import Part
from gateway.waiting.disk.batches import DiskBatch, Segment
from gateway.waiting.disk.waiting_disk import DELETE, READ, WRITE, DiskJob, WaitingDisk

SEGMENT_BYTES: Final = 16 << 20  # after which a new file begins; a file is deleted as a whole, when all of it was read (a guess)


class QueueFiles:
    """Of one queue, which owns the jobs: it hands them back where they change what is here."""

    def __init__(self, disk: WaitingDisk, owner: object) -> None:
        self.disk = disk
        self.owner = owner
        self.segment: Segment | None = None  # that is being written

    def write(self, parts: list[Part], cost: int, size: int, rule: str, rules: int) -> DiskBatch:
        """The batch of `parts`, on its way to the disk."""
        disk = self.disk
        segment = self.segment
        if segment is None or segment.size >= SEGMENT_BYTES:
            self.end_segment()
            segment = self.segment = Segment(disk.new_name())
        job = DiskJob(self.owner, WRITE, segment.name, segment.size, size, parts)
        batch = DiskBatch(parts, cost, size, segment, job, rule, rules)
        job.batch = batch
        disk.add(rule, size)
        segment.size += size
        segment.batches += 1
        segment.writes += 1
        disk.used += size
        disk.submit(job)
        return batch

    def read(self, batch: DiskBatch) -> DiskJob:
        """The job that reads `batch`, on its way."""
        job = DiskJob(self.owner, READ, batch.segment.name, batch.offset, batch.size)
        self.disk.submit(job)
        return job

    def consume(self, batch: DiskBatch) -> None:
        """`batch` is not needed on the disk any more."""
        self.disk.add(batch.rule, -batch.size)
        batch.segment.batches -= 1
        self.delete_if_over(batch.segment)

    def delete_if_over(self, segment: Segment) -> None:
        """Delete a file that nothing more is written to, and of which nothing is needed."""
        if segment.batches == 0 and segment.writes == 0 and segment is not self.segment and segment.name:
            job = DiskJob(self.owner, DELETE, segment.name, 0, segment.size)
            segment.name = ""
            self.disk.submit(job)

    def end_segment(self) -> None:
        """Nothing more is written to the last file."""
        segment = self.segment
        if segment is not None:
            self.segment = None
            self.delete_if_over(segment)

    def __repr__(self) -> str:
        return f"<QueueFiles segment={None if self.segment is None else self.segment.name!r}>"
