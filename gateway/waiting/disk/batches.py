"""What a paged queue is made of: batches of parts, and the files they stand in."""

from __future__ import annotations

from gateway.pipeline.parts import Part
from gateway.waiting.disk.waiting_disk import DiskJob
from gateway.waiting.disk.waiting_messages import KeyCount


class DiskBatch:
    """Parts that are written and read together."""

    __slots__ = ("cost", "counts", "job", "offset", "parts", "rule", "rules", "segment", "size", "taken")

    def __init__(self, parts: list[Part], cost: int, size: int, segment: Segment, job: DiskJob, rule: str, rules: int) -> None:
        self.parts = parts  # empty once written
        self.cost = cost  # bytes of memory, as the budget counts them
        self.size = size  # bytes on disk
        self.segment = segment
        self.job = job  # its write
        self.rule = rule  # which it counts for
        self.rules = rules  # `PagedQueue.rules` when it was written
        self.counts: dict[str, KeyCount] = {}  # its messages, once they are on disk only
        self.offset = job.offset  # in its file
        self.taken = False  # before it was written


class Segment:
    """One file. `batches` of it are still to be taken out; it may be deleted when there are none, and none is being written."""

    __slots__ = ("batches", "name", "size", "writes")

    def __init__(self, name: str) -> None:
        self.name = name  # "": it is deleted
        self.size = 0  # bytes, of batches written and being written
        self.batches = 0
        self.writes = 0
