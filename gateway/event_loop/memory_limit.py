"""The limit of the process's memory: what the kernel would kill it for, and the steps taken on the way there.

The watermarks (`memory_watermark.py`) bound what connections keep. The process is more than that: connections themselves, names, rules, a
heap with holes. So its size is compared with what it may have: `memory.limit`, or the least of the control group's limit, the machine's
memory and RLIMIT_AS. Each step takes what harms least, as in Envoy's overload manager:

======  =========================================================================================================
85 %    time-outs of handshakes, of idle connections and of unfinished frames are a quarter; free heap goes back
90 %    as above both watermarks: publishers are not read, nor brokers of clients that do not read; consumers go on
92 %    new connections are refused, in the protocol's words
97 %    four times a second the connection that keeps most is closed, in the protocol's words
======  =========================================================================================================

A step ends when the size is three points below it.
"""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway.event_loop.heap import give_back_heap

if TYPE_CHECKING:
    from gateway.admission import ConnectionSlots
    from gateway.event_loop.memory_watermark import MemoryWatermark
    from gateway.event_loop.sweeper import Sweeper
    from gateway.session.shared import Shared

STEPS: Final = (85, 90, 92, 97)  # percent of the limit
IMPATIENT, STOPPING, REFUSING, CLOSING = range(1, 5)  # `step`: how many of STEPS are taken
DOING: Final = (
    "time-outs are a quarter",
    "publishers are not read",
    "new connections are refused",
    "the connections that keep most are closed",
)
HYSTERESIS: Final = 3  # points
PATIENCE_DIVISOR: Final = 4
CLOSE_EVERY_NS: Final = 200_000_000  # between two connections that are closed: below a tick; sweeps that read much look within them, too
TRIM_EVERY_NS: Final = 2_000_000_000  # between two requests to the heap to give back what is free; each may take some milliseconds
# The same far from the limit, where the process has grown by so much since: what stays free in the middle of the heap looked like a leak.
TRIM_GROWN_EVERY_NS: Final = 60_000_000_000
TRIM_GROWN_BYTES: Final = 4 << 20
PARENT_BYTES: Final = 64 << 20  # that the parent of several workers takes, or a part of all there is; idle it has 43 MiB (a guess)
PARENT_DIVISOR: Final = 16
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
UNLIMITED: Final = 1 << 60  # control groups of version 1 write about 2**63 for no limit
STATM: Final = Path("/proc/self/statm")
CGROUPS: Final = Path("/sys/fs/cgroup")


class MemoryLimit:
    """Takes the steps. `limit` in bytes; None: there is none."""

    def __init__(self, limit: int | None, shared: Shared, memory: MemoryWatermark, slots: ConnectionSlots) -> None:
        self.limit = limit
        self.shared = shared
        self.memory = memory
        self.slots = slots
        self.size = 0  # bytes of the process, at the last check
        self.step = 0
        self._closed_at = 0
        self._trimmed_at = 0
        self._trimmed_size = 0  # bytes of the process, its least since then

    def check(self, sweeper: Sweeper, now: int) -> bool:
        """Look, and act; whether the step has changed. On each tick, before the watermarks are looked at."""
        virtual = 0
        with suppress(OSError):  # then the last known size holds
            self.size, virtual = sizes()
        share = 0.0 if self.limit is None else self.size / self.limit
        address_space = resource.getrlimit(resource.RLIMIT_AS)[0]
        if self.limit is not None and 0 < address_space < UNLIMITED:
            share = max(share, virtual / address_space)
        before = self.step
        self.step = sum(share * 100 >= mark - (HYSTERESIS if number < before else 0) for number, mark in enumerate(STEPS))
        if self.step or before:
            self._act(sweeper, now)
        self._trim(now)
        return self.step != before

    def _act(self, sweeper: Sweeper, now: int) -> None:
        self.shared.patience_divisor = self.slots.patience_divisor = PATIENCE_DIVISOR if self.step >= IMPATIENT else 1
        self.memory.pressed = self.step >= STOPPING
        self.slots.closed_because = self.words() if self.step >= REFUSING else ""
        if self.step >= CLOSING and now - self._closed_at >= CLOSE_EVERY_NS:
            self._closed_at = now
            self.memory.close_largest(sweeper, now)

    def _trim(self, now: int) -> None:
        self._trimmed_size = min(self._trimmed_size, self.size)
        grown = self.step > 0 or self.size - self._trimmed_size >= TRIM_GROWN_BYTES
        if grown and now - self._trimmed_at >= (TRIM_EVERY_NS if self.step else TRIM_GROWN_EVERY_NS):
            self._trimmed_at = now
            give_back_heap()
            with suppress(OSError):
                self._trimmed_size = sizes()[0]

    def words(self) -> str:
        return f"this gateway is short of memory ({self.size >> 20} of {(self.limit or 0) >> 20} MiB are used); try again later"

    def doing(self) -> str:
        """What the steps taken mean, for operators."""
        return "; ".join(DOING[: self.step])

    def __repr__(self) -> str:
        return f"<MemoryLimit step={self.step} {self.size}/{self.limit}>"


def sizes() -> tuple[int, int]:
    """Resident and virtual size of this process, in bytes. Raises OSError."""
    virtual, resident = os.pread(_opened(STATM, os.getpid()), 128, 0).split()[:2]
    return int(resident) * PAGE_BYTES, int(virtual) * PAGE_BYTES


@cache
def _opened(file: Path, process: int) -> int:
    """Open for good: where no file can be opened any more (EMFILE, ENFILE) the size is known all the same. Raises OSError."""
    del process  # whose size it is, whoever reads it
    return os.open(file, os.O_RDONLY | os.O_CLOEXEC)


def require_sizes() -> None:
    """Raise OSError, for operators, where this process cannot read its own size: then no limit of its memory would hold."""
    try:
        sizes()
    except OSError as error:
        raise OSError(f"{error.filename}: {error.strerror}: the gateway reads there how much memory it uses; mount /proc") from None


def find_limit(workers: int = 1) -> int:
    """What each of so many workers may have of the control group's or the machine's memory, in bytes. Several have a parent beside them."""
    machine = os.sysconf("SC_PHYS_PAGES") * PAGE_BYTES
    found = min([machine, *cgroup_limits(_own_cgroups())])
    if workers > 1:
        found -= min(max(PARENT_BYTES, found // PARENT_DIVISOR), found // 2)
    return found // workers


def cgroup_limits(cgroups: str, root: Path = CGROUPS) -> list[int]:
    """The limits of the control groups named in `cgroups` (the text of /proc/self/cgroup) and of all above them, of either version."""
    found: list[int] = []
    for line in cgroups.splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0":
            folder, name = root, "memory.max"
        elif "memory" in controllers.split(","):
            folder, name = root / "memory", "memory.limit_in_bytes"
        else:
            continue
        parts = [part for part in path.split("/") if part not in ("", "..")]  # ".." where the namespace has another root
        for depth in range(len(parts) + 1):
            with suppress(OSError, ValueError):  # not mounted here, or "max"
                limit = int(folder.joinpath(*parts[:depth], name).read_text())
                found += [limit] if 0 < limit < UNLIMITED else []
    return found


def _own_cgroups() -> str:
    try:
        return Path("/proc/self/cgroup").read_text()
    except OSError:
        return ""
