"""The part of a machine that a night takes, by the size of its log.

Spark's own defaults are those of a cluster: 1 GB of heap for the driver, which on a local master does all the work, 200 shuffle partitions,
and every stage planned anew. A small night needs none of that, a large one needs more heap and more, smaller, partitions. A cluster keeps
its own settings; `--driver-memory` and `--conf` beat the settings of this file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

GB: Final = 2**30
# Bytes of log; below it a Java that starts fast ends sooner: between 20 MB, measured, and a busy day (guess).
SMALL_BYTES: Final = 64 * 2**20
PLAIN_BYTES: Final = 512 * 2**20  # bytes of log; up to here a day on this machine is read without Spark (2026-11: 438 MB took 0.8 GB)
MIN_HEAP: Final = GB  # bytes; Spark itself takes some 300 MB of it
MAX_HEAP: Final = 4 * GB  # bytes; enough for 50 M lines (2026-11): lines stream through, only sums and sorts are held, and those spill
LOG_PER_HEAP: Final = 4  # bytes of log for which a byte of heap beyond MIN_HEAP is given (a guess that errs to the large side)
UNKNOWN_BYTES: Final = 4 * GB  # bytes of log, where its size is not known before Spark runs: a busy day (a guess)
PARTITION_BYTES: Final = 256 * 2**20  # bytes of log per shuffle partition: its sums are some 20 MB
MAX_PARTITIONS: Final = 400  # shuffle partitions of a day of 100 GB; more would be small files
PACKED: Final = {".parquet": 20, ".zst": 15, ".gz": 12}  # bytes of lines per byte of such a file (measured on generated logs, 2026-11)
CGROUP_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # files of containers, version 2 and 1


class Sizing(NamedTuple):
    """Settings of a session on a local master."""

    heap: int  # bytes
    partitions: int  # shuffle partitions
    adaptive: bool  # adaptive execution: worth its planning where partitions differ in size
    quick: bool  # a Java that starts faster and runs slower

    def settings(self) -> dict[str, str]:
        return {
            "spark.driver.memory": f"{self.heap >> 20}m",
            "spark.sql.shuffle.partitions": str(self.partitions),
            "spark.sql.adaptive.enabled": str(self.adaptive).lower(),
        }


def size_session(log_bytes: int, memory: int, cores: int) -> Sizing:
    """The settings for so many bytes of lines, on a machine with so much memory. Heap is at most half of it: Python's workers and the page
    cache need the rest."""
    wanted = min(MIN_HEAP + log_bytes // LOG_PER_HEAP, MAX_HEAP)
    heap = max(min(wanted, memory // 2), MIN_HEAP // 2)
    partitions = min(max(cores, -(-log_bytes // PARTITION_BYTES)), MAX_PARTITIONS)
    return Sizing(heap, partitions, partitions > 4 * cores, log_bytes < SMALL_BYTES)


def compute_plain_bytes(memory: int) -> int:
    """Up to how many bytes of log a day is read without Spark, on a machine with so much memory: it takes twice that much."""
    return min(PLAIN_BYTES, memory // 4)


def estimate_lines_bytes(files: Iterable[tuple[str, int]]) -> int:
    """About how many bytes of lines files of these names and sizes hold."""
    return sum(size * next((factor for suffix, factor in PACKED.items() if name.endswith(suffix)), 1) for name, size in files)


def read_machine_memory(meminfo: Path = Path("/proc/meminfo"), limits: Iterable[str | Path] = CGROUP_LIMITS) -> int:
    """Bytes of memory of this machine or, where that is less, of its container; 8 GB where nothing says."""
    found = [8 * GB]
    try:
        known = re.search(r"^MemTotal:\s+(\d+) kB", meminfo.read_text(), re.MULTILINE)
        found = [int(known[1]) * 1024] if known else found
    except OSError:
        pass
    for each in limits:
        try:
            text = Path(each).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            found.append(int(text))
    return min(found)


def parse_memory_option(text: str) -> str:
    """`--driver-memory` as Java's and Spark's own: `4g`, `512m`. Raises ValueError."""
    found = re.fullmatch(r"(\d+)\s*([kmgtKMGT])(?:i?[bB])?", text.strip())
    if found is None or int(found[1]) == 0:
        raise ValueError(f"--driver-memory: {text!r} is no size; write it like 4g or 512m")
    return f"{found[1]}{found[2].lower()}"


def parse_conf_options(texts: Iterable[str]) -> dict[str, str]:
    """`--conf NAME=VALUE` of Spark, each. Raises ValueError."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip().startswith("spark."):
            raise ValueError(f"--conf: {text!r} is no setting of Spark; write it like --conf spark.local.dir=/data/tmp")
        found[name.strip()] = value.strip()
    return found
