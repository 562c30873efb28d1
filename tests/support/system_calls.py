"""System calls of a running process that fail or take long, as long as it is wished: strace, which attaches to it and leaves it again."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.processes import Process

REMEDY = "this test needs strace and root: apt-get install strace"


@contextmanager
def injected(pid: int, calls: str, fault: str, log: Path) -> Iterator[None]:
    """`calls`: names with commas between; `fault`: as strace's option `inject` has it, e.g. error=EIO or delay_enter=1500000 (µs)."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.fail(REMEDY)
    argv = [strace, "-f", "-p", str(pid), "-e", f"trace={calls}", "-e", f"inject={calls}:{fault}", "-o", "/dev/null"]
    with Process(argv, log=log) as tracer:
        tracer.wait_until(lambda: "attached" in tracer.output(), within=30, what=f"strace to attach ({REMEDY})")
        yield
