"""`process_*`, as every exporter has them (Prometheus' client libraries: the process collector)."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Final

from gateway.telemetry.exposition import single

PAGE: Final = os.sysconf("SC_PAGE_SIZE")  # bytes
TICKS: Final = os.sysconf("SC_CLK_TCK")  # per second
START_FIELD: Final = 19  # of /proc/PID/stat behind the command's name: ticks from boot to the start (proc(5), field 22)


@cache
def started_at(pid: int) -> float:
    """Unix time at which a process began."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    ticks = int(stat.rpartition(")")[2].split()[START_FIELD])
    boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)  # not of /proc/stat, which systemd's ProcSubset=pid hides
    return boot + ticks / TICKS


def process_lines() -> Iterator[str]:
    virtual, resident = Path("/proc/self/statm").read_text(encoding="ascii").split()[:2]
    return chain(
        single("process_resident_memory_bytes", int(resident) * PAGE),
        single("process_virtual_memory_bytes", int(virtual) * PAGE),
        single("process_cpu_seconds_total", time.process_time()),
        single("process_open_fds", len(os.listdir("/proc/self/fd")) - 1),  # noqa: PTH208  -- 2 us; without the one that lists them
        single("process_max_fds", resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
        single("process_start_time_seconds", started_at(os.getpid())),
    )
