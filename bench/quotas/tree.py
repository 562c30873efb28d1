"""A command, and what all its processes took: also those that it leaves to others to wait for, as Spark does with Python's workers."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple

PR_SET_CHILD_SUBREAPER: Final = 36  # linux/prctl.h: orphans below us become our children, so we see their times when they end
PAGE: Final = os.sysconf("SC_PAGE_SIZE")
SAMPLE_S: Final = 0.2  # between two looks at the memory


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
    peak = [0]
    over = threading.Event()
    watch = threading.Thread(target=_watch, args=(peak, over), daemon=True)
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
    return Took(monotonic() - began, _children() - before, peak[0], output)


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _watch(peak: list[int], over: threading.Event) -> None:
    while not over.wait(SAMPLE_S):
        peak[0] = max(peak[0], resident_below(os.getpid()))


def resident_below(root: int) -> int:
    """Bytes of resident memory of all processes below `root`."""
    children: dict[int, list[tuple[int, int]]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(words[1]), []).append((int(folder.name), int(words[21]) * PAGE))
    total, left = 0, [root]
    while left:
        for pid, size in children.get(left.pop(), ()):
            total += size
            left.append(pid)
    return total
