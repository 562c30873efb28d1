"""A command, and what all its processes took: also those that it leaves to others to wait for, and those that nobody waits for.

Linux adds a process's time to its parent's when the parent waits for it. Spark's daemon of Python's workers ignores SIGCHLD instead: the
workers end without a trace, and with them a fifth of a small night's time (11 of 62 CPU-s, 2026-11). So these are looked at while they
live, and what each had taken at the last look counts.
"""

from __future__ import annotations

import ctypes
import os
import re
import resource
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple

PR_SET_CHILD_SUBREAPER: Final = 36  # linux/prctl.h: orphans below us become our children, so we see their times when they end
PAGE: Final = os.sysconf("SC_PAGE_SIZE")
TICKS: Final = os.sysconf("SC_CLK_TCK")  # per second, in /proc
IGNORES_CHILDREN: Final = 1 << (signal.SIGCHLD - 1)  # in SigIgn of /proc/PID/status
SAMPLE_S: Final = 0.2  # between two looks at memory and times: what a process takes in its last so many seconds may be missed


class Took(NamedTuple):
    """What a command took, with all processes it started."""

    wall_s: float
    cpu_s: float
    peak_bytes: int  # resident memory of all of them at a time; shared pages count in each
    output: str


def run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Took:
    """Run it to its end, and to the end of all it started. Raises subprocess.CalledProcessError."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    before, began = _children(), monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})})
    looks = _Looks()
    over = threading.Event()
    watch = threading.Thread(target=looks.until, args=(over,), daemon=True)
    watch.start()
    output, _ = process.communicate()
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
    over.set()
    watch.join()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, output)
    return Took(monotonic() - began, _children() - before + sum(looks.unwaited.values()), looks.peak_bytes, output)


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class _Looks:
    """What is seen of the processes below this one from time to time."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self.unwaited: dict[int, float] = {}  # CPU-s of those whose parent will not wait for them, by their ids

    def until(self, over: threading.Event) -> None:
        while not over.wait(SAMPLE_S):
            below = list(processes_below(os.getpid()))
            self.peak_bytes = max(self.peak_bytes, sum(each.resident for each in below))
            self.unwaited |= {each.pid: each.cpu_s for each in below if _ignores_children(each.parent)}


class Process(NamedTuple):
    """As /proc has it."""

    pid: int
    parent: int
    cpu_s: float
    resident: int  # bytes


def processes_below(root: int) -> Iterator[Process]:
    """All processes below `root`."""
    children: dict[int, list[Process]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        each = Process(int(folder.name), int(words[1]), (int(words[11]) + int(words[12])) / TICKS, int(words[21]) * PAGE)
        children.setdefault(each.parent, []).append(each)
    left = [root]
    while left:
        found = children.get(left.pop(), [])
        yield from found
        left += [each.pid for each in found]


def _ignores_children(pid: int) -> bool:
    """Whether Linux forgets the children of this process when they end; of one that is gone: no."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    known = re.search(r"^SigIgn:\s*([0-9a-f]+)", text, re.MULTILINE)
    return known is not None and bool(int(known[1], 16) & IGNORES_CHILDREN)
