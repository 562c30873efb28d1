"""How many connections all workers have together, so that caps on connections hold over all of them.

A client is admitted or refused at once: the event loop cannot wait for the parent's answer. So the counts lie in memory that all workers
share (a memfd of the parent's). Each worker writes a part of its own, and whoever admits adds up all parts. Checking and counting is done
under one lock, or two workers would admit the last one each. The kernel gives the lock back when its holder ends, and the parent clears
the part of a worker that has ended, whatever happened to it. A rate of new connections is one number for each listener, before the parts.

A part does not name what it counts. It is ROWS tables of WIDTH counters (a count-min sketch); a name has a counter in each table, by a hash
with a salt of this run, and the least of its sums holds. So it has a fixed size, needs no tidying, and never counts too little. It counts
too much where all ROWS counters of a name are shared with others: with 1,000 addresses connected that happens to one in ten million, with
10,000 to one in two thousand, and matters only if the others have as many connections as the cap allows. What the asking worker has itself
it counts exactly.

A worker that is stopped in the middle of counting would stop the others for good. So nobody waits longer than PATIENCE_S, and
then counts without the lock: for such a moment the caps may be passed by one connection for each worker.
"""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

ROWS: Final = 4
WIDTH: Final = 1 << 16  # counters of a table; a part is 1 MiB, of which only what is used is taken from memory
CELL: Final = 4  # bytes
SALT_BYTES: Final = 16
HEADER_BYTES: Final = 4 * mmap.PAGESIZE  # the salt, and cells of some 2,000 listeners
PART_BYTES: Final = ROWS * WIDTH * CELL
PATIENCE_S: Final = 0.005  # seconds; of waiting for whoever counts
PAUSE_S: Final = 0.00005  # seconds; between two looks, and as much again until the kernel wakes us; counting takes some 20 µs


class SharedCounts:
    """Counts of connections by listener, kind of cap and name. Implements `gateway.admission.OtherProcesses`."""

    def __init__(self, descriptor: int, workers: int, place: int = 0, listeners: Sequence[str] = ()) -> None:
        """`place`: which worker this is, from 1; 0: the parent, which counts nothing itself. `listeners`: the same in all processes."""
        self.descriptor = descriptor
        self._place = place
        self._memory = mmap.mmap(descriptor, HEADER_BYTES + workers * PART_BYTES)
        self._salt = self._memory[:SALT_BYTES]
        arrivals = memoryview(self._memory)[SALT_BYTES:HEADER_BYTES].cast("q")
        self._arrivals = {name: arrivals[at : at + 1] for at, name in enumerate(listeners[: len(arrivals)])}
        cells = memoryview(self._memory)[HEADER_BYTES:].cast("I")
        self._parts = [cells[at * ROWS * WIDTH : (at + 1) * ROWS * WIDTH] for at in range(workers)]
        self._own = self._parts[place - 1] if place else None
        self._depth = 0  # of `exclusive`

    @classmethod
    def create(cls, workers: int) -> SharedCounts:
        """For the parent: new ones, all at 0. Raises OSError."""
        descriptor = os.memfd_create("sluice-connections", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, HEADER_BYTES + workers * PART_BYTES)
        os.pwrite(descriptor, os.urandom(SALT_BYTES), 0)
        return cls(descriptor, workers)

    def clear(self, place: int) -> None:
        """A worker has ended, and with it all that it had."""
        begin = HEADER_BYTES + (place - 1) * PART_BYTES
        self._memory.madvise(mmap.MADV_REMOVE, begin, PART_BYTES)  # writing zeros would take a MiB of memory where little was used

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Nobody else counts meanwhile. May be nested."""
        locked = self._depth == 0 and self._lock()
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if locked:
                fcntl.lockf(self.descriptor, fcntl.LOCK_UN)

    def _lock(self) -> bool:
        until = 0.0
        while True:
            try:
                fcntl.lockf(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                now = time.monotonic()
                until = until or now + PATIENCE_S
                if now >= until:
                    return False
                time.sleep(PAUSE_S)
            else:
                return True

    def count_elsewhere(self, listener: str, kind: str, name: str) -> int:
        """How many the other workers have."""
        cells = self._cells(listener, kind, name)
        return min([sum([part[cell] for part in self._parts if part is not self._own]) for cell in cells])

    def add(self, listener: str, kind: str, name: str, number: int) -> None:
        """Count `number` connections (below 0: that are gone) for this worker."""
        assert self._own is not None, "the parent has no connections"
        for cell in self._cells(listener, kind, name):
            self._own[cell] += number

    def arrivals(self, listener: str) -> memoryview[int] | None:
        """The moment until which a listener's arrivals are paid for (`admission.ArrivalRate`). Read and written in `exclusive`."""
        return self._arrivals.get(listener)

    def _cells(self, listener: str, kind: str, name: str) -> list[int]:
        text = "\0".join((listener, kind, name)).encode(errors="surrogatepass")
        digest = hashlib.blake2b(text, digest_size=ROWS * CELL, salt=self._salt).digest()
        return [row * WIDTH + int.from_bytes(digest[row * CELL : (row + 1) * CELL], "little") % WIDTH for row in range(ROWS)]

    def __enter__(self) -> SharedCounts:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)

    def __repr__(self) -> str:
        return f"<SharedCounts {self._place} of {len(self._parts)}>"
