"""What a queue of the spool is made of: batches of parts, and the files they stand in."""

from __future__ import annotations

from gateway.pipeline.parts import Part
from gateway.spool.disk import READ, Job, SpoolDisk
from gateway.spool.durable import serial_of
from gateway.spool.records import decode_all
from gateway.spool.removals import place_of
from limiter.keys import Key


class KeyWaiting:
    """Messages of one key that wait in a queue, or in a batch of it."""

    __slots__ = ("bytes", "key", "messages")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.messages = 0
        self.bytes = 0


class Batch:
    """Parts that are written and read together."""

    __slots__ = ("cost", "counts", "durable", "end", "job", "offset", "parts", "rule", "segment", "size", "taken", "whole", "written")

    def __init__(
        self, parts: list[Part], cost: int, size: int, segment: Segment, job: Job, rule: str, counts: dict[str, KeyWaiting]
    ) -> None:
        self.parts = parts  # empty once written
        self.cost = cost  # bytes of memory, as the budget counts them
        self.size = size  # bytes on disk
        self.segment = segment
        self.job = job  # its write
        self.rule = rule  # which it counts for
        self.counts = counts  # its messages, by the text of their key when they came
        self.offset = 0  # in its file
        self.durable = False
        self.taken = False  # before it was written
        self.written = False
        self.end = 0  # of a durable one, as the next: `SpoolQueue.gone` once all of it is settled
        self.whole = True  # it ends with a message

    def place(self) -> int:
        """Where it begins in durable files (`removals.py`); 0: it is in none."""
        return place_of(self.segment.serial, self.offset) if self.durable else 0


class WaitingBatch:
    """Where parts wait that a copy is made of: in memory (`parts`, of which none is changed), or in a file that is kept for it."""

    __slots__ = ("batch", "length", "name", "offset", "originals", "parts", "place")

    def __init__(self, parts: list[Part], batch: Batch | None = None) -> None:
        self.parts = [still(part) for part in parts]
        self.originals = list(parts)  # on the loop only: their places may change
        self.batch = batch
        self.name = "" if batch is None else batch.segment.name
        self.offset = 0 if batch is None else batch.offset
        self.length = 0 if batch is None else batch.size
        self.place = 0 if batch is None else batch.place()

    def read(self, disk: SpoolDisk, ordering_key: int) -> list[Part]:
        """The parts; those out of a file have no keys. On any thread. Raises OSError, DamagedError."""
        if self.batch is None:
            return self.parts
        job = Job(None, READ, self.name, self.offset, self.length)
        disk.read_now(job)
        return decode_all(job.data, ordering_key, lambda _: None, self.place)


def still(part: Part) -> Part:
    """A copy of what a part is now, which nobody changes."""
    data = part.data[part.start : part.end]
    copied = Part(part.kind, part.ordering_key, data, 0, len(data), part.key, part.count, part.messages, part.size, part.complete)
    copied.unanswered = part.unanswered
    return copied


class Segment:
    """One file. `batches` of it are still to be taken out; it may be deleted when there are none, and none is being written."""

    __slots__ = ("batches", "durable", "name", "removed", "serial", "size", "writes")

    def __init__(self, name: str, *, durable: bool = False) -> None:
        self.name = name  # "": it is deleted, or is to be replayed
        self.durable = durable
        self.serial = serial_of(name) if durable else 0
        self.size = 0  # bytes, of batches written and being written
        self.removed = 0  # bytes that say what of it is given up, in the file beside it
        self.batches = 0
        self.writes = 0
