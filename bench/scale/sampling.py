"""What the kernel knows of running processes: processor time, resident memory, descriptors, threads. Each for a whole process tree."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

from support.processes import processor_seconds, resident_bytes, tree

MIB = 2**20


@dataclass(frozen=True)
class Sample:
    """One look at a process tree. Processes that end meanwhile take their processor time with them."""

    at: float  # monotonic seconds
    processor_s: float
    resident: int  # bytes
    descriptors: int
    threads: int
    machine_s: float  # processor time of everything on this machine since it started


def machine_seconds() -> float:
    """All processors' time since the machine started that was not idled away (/proc/stat: user nice system idle iowait ...).

    What is busy for less than a tick of 10 ms is often missing from the other columns; idling is counted exactly.
    """
    idle, waiting = Path("/proc/stat").read_text().split("\n", 1)[0].split()[4:6]
    processors = os.cpu_count() or 1
    return processors * time.clock_gettime(time.CLOCK_BOOTTIME) - (int(idle) + int(waiting)) / os.sysconf("SC_CLK_TCK")


def look(pid: int) -> Sample:
    processor_s, resident, descriptors, threads = 0.0, 0, 0, 0
    for one in tree(pid):
        with contextlib.suppress(OSError):
            processor_s += processor_seconds(one)
            resident += resident_bytes(one)
            descriptors += len(list(Path(f"/proc/{one}/fd").iterdir()))
            threads += len(list(Path(f"/proc/{one}/task").iterdir()))
    return Sample(time.monotonic(), processor_s, resident, descriptors, threads, machine_seconds())
