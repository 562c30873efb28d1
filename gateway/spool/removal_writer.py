"""Writes down, for one queue, which messages of its durable files are given up (`removals.py`).

What an operator gives up is written at once, and is told when it is on the medium. What is given up when its turn comes, for its age or by
a rule, gathers while a removal is on its way, as batches do. A file with nothing left in it does not wait for that: it is deleted, which
makes the room that its removals may wait for, and what is still written beside it is deleted afterwards.

Everything here is called on the event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway.spool.disk import DELETE, WRITE, Job, SpoolDisk
from gateway.spool.durable import SUFFIX
from gateway.spool.removals import Range, by_file, encode_removal, removed_name

if TYPE_CHECKING:
    from gateway.spool.batches import Segment


class Removal:
    """Messages that are given up together. `left`: writes that are not done."""

    __slots__ = ("left", "on_synced")

    def __init__(self, on_synced: Callable[[], None] | None) -> None:
        self.left = 0
        self.on_synced = on_synced


class RemovalWriter:
    """Of one queue, which owns the jobs: it hands them back (`done`)."""

    def __init__(self, disk: SpoolDisk, owner: object) -> None:
        self.disk = disk
        self.owner = owner
        self.segments: dict[int, Segment] = {}  # durable files that are there, by their number
        self.in_flight = 0  # writes
        self.gathered: list[Range] = []  # places, to be written next

    def add(self, first: int, end: int) -> None:
        """What stands at these places is given up."""
        self.gathered.append((first, end))
        if self.in_flight == 0:
            self._write_gathered()

    def write(self, places: list[Range], on_synced: Callable[[], None] | None) -> None:
        """What stands at these places is given up: write it now. `on_synced` is called when it is on the medium."""
        removal = Removal(on_synced)
        for serial, ranges in by_file(places).items():
            segment = self.segments.get(serial)
            if segment is None:  # all of it was handed on
                continue
            job = Job(self.owner, WRITE, removed_name(f"{serial}{SUFFIX}"), segment.removed)
            job.durable = job.removes = True
            job.data = encode_removal(ranges)
            job.batch = removal
            segment.removed += len(job.data)
            removal.left += 1
            self.in_flight += 1
            self.disk.submit(job)
        if removal.left == 0 and on_synced is not None:
            on_synced()

    def done(self, job: Job) -> None:
        """A write is done."""
        removal = job.batch
        assert isinstance(removal, Removal)
        serial = int(job.name.partition(".")[0])
        if serial not in self.segments:  # it is deleted; what was written beside it goes, too
            self.disk.submit(Job(self.owner, DELETE, f"{serial}{SUFFIX}"))
        self.in_flight -= 1  # from here on the queue may be over, and its files another's
        removal.left -= 1
        if removal.left == 0 and removal.on_synced is not None:
            removal.on_synced()
        if self.in_flight == 0:
            self._write_gathered()

    def _write_gathered(self) -> None:
        if self.gathered:
            places = self.gathered
            self.gathered = []
            self.write(places, None)

    def __repr__(self) -> str:
        return f"<RemovalWriter in_flight={self.in_flight} gathered={len(self.gathered)}>"
