"""QueueFiles: the files of one queue. Batches are written to the last one; a file is deleted as a whole, when nothing of it is needed.

Durable batches have files of their own, whose names and beginnings tell the next process whose messages they are (`durable.py`).

Everything here is called on the event loop. The work itself is a `Job` of the spool's threads (`disk.py`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from gateway.clock import now_ns
from gateway.pipeline.parts import PLAIN, Part
from gateway.spool.batches import Batch, KeyWaiting, Segment
from gateway.spool.disk import DELETE, MARK, READ, WRITE, Job, Orphan, SpoolDisk
from gateway.spool.durable import CLOCK, SUFFIX, head_of
from gateway.spool.records import BATCH, RECORD, encode
from gateway.spool.removal_writer import RemovalWriter
from gateway.spool.removals import place_of

SEGMENT_BYTES: Final = 16 << 20  # after which a new file begins; a file is deleted as a whole, when all of it was read (a guess)


class QueueFiles:
    """Of one queue, which owns the jobs: it hands them back where they change what is here."""

    def __init__(self, disk: SpoolDisk, owner: object, origin: dict[str, str]) -> None:
        self.disk = disk
        self.owner = owner
        self.origin = origin  # whose messages durable files have, for the replay
        self.segment: Segment | None = None  # that is being written
        self.removals = RemovalWriter(disk, owner)

    def write(self, parts: list[Part], cost: int, size: int, rule: str, counts: dict[str, KeyWaiting], end: int, *, durable: bool) -> Batch:
        """The batch of `parts`, on its way to the disk. `end`: bytes of parts that have come to its queue so far."""
        disk = self.disk
        segment = self.segment
        head = b""
        if segment is None or segment.size >= SEGMENT_BYTES or segment.durable != durable:
            self.end_segment()
            name = disk.new_name()
            if durable:
                name += SUFFIX
                clock = str(time.time_ns() - now_ns())
                head = head_of({**self.origin, "queue": self.origin.setdefault("queue", name), CLOCK: clock})
            segment = self.segment = Segment(name, durable=durable)
            if durable:
                self.removals.segments[segment.serial] = segment
        job = Job(self.owner, WRITE, segment.name, segment.size, size, parts)
        batch = Batch(parts, cost, size, segment, job, rule, counts)
        job.batch = batch
        batch.offset = segment.size + len(head)
        if durable:
            job.durable = batch.durable = True
            job.data = head + encode(parts)  # now: parts are cut where only some of their messages may pass
            place = place_of(segment.serial, batch.offset) + BATCH.size
            for part in parts:
                place += RECORD.size
                part.place = place - part.start
                place += part.end - part.start
            batch.end = end
            last = parts[-1]
            batch.whole = last.kind == PLAIN or last.complete
        disk.add(rule, size)
        segment.size += len(head) + size
        segment.batches += 1
        segment.writes += 1
        disk.used += len(head) + size
        disk.submit(job)
        return batch

    def read(self, batch: Batch) -> Job:
        """The job that reads `batch`, on its way."""
        job = Job(self.owner, READ, batch.segment.name, batch.offset, batch.size)
        self.disk.submit(job)
        return job

    def consume(self, batch: Batch) -> None:
        """`batch` is not needed on the disk any more."""
        self.disk.add(batch.rule, -batch.size)
        batch.segment.batches -= 1
        self.delete_if_over(batch.segment)

    def mark(self, batch: Batch) -> None:
        """Write into its file that all up to the end of `batch`, which is consumed, was handed on."""
        if batch.segment.name:
            self.disk.submit(Job(self.owner, MARK, batch.segment.name, batch.offset + batch.size))

    def delete_if_over(self, segment: Segment) -> None:
        """Delete a file that nothing more is written to, and of which nothing is needed."""
        if segment.batches == 0 and segment.writes == 0 and segment is not self.segment and segment.name:
            job = Job(self.owner, DELETE, segment.name, 0, segment.size)
            segment.name = ""
            if segment.durable:
                self.removals.segments.pop(segment.serial, None)
            self.disk.submit(job)

    def end_segment(self) -> None:
        """Nothing more is written to the last file."""
        segment = self.segment
        if segment is not None:
            self.segment = None
            self.delete_if_over(segment)

    def leave_behind(self, batches: Iterable[Batch]) -> None:
        """The queue is over: `batches`, in order, and with them all of its files that are left, are to be replayed."""
        first: Batch | None = None
        names: list[str] = []
        size = 0
        for batch in batches:
            if first is None:
                first = batch
            segment = batch.segment
            self.disk.add(batch.rule, -batch.size)
            if segment.name:
                names.append(segment.name)
                size += segment.size
                segment.name = ""
        self.removals.segments.clear()
        self.segment = None
        if first is not None:
            self.disk.orphans.append(Orphan(names, first.offset, size))

    def __repr__(self) -> str:
        return f"<QueueFiles segment={None if self.segment is None else self.segment.name!r}>"
