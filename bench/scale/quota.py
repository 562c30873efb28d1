"""A process held to a part of a core by the kernel (control groups, version 1 or 2), where this user may do that."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from types import TracebackType

PERIOD_US = 10_000  # short, so that a process that has used its part up does not stand still for long
ONE = Path("/sys/fs/cgroup/cpu")
TWO = Path("/sys/fs/cgroup")


def root() -> Path | None:
    """Where groups with a quota of processor time can be made."""
    if (ONE / "cgroup.procs").exists():
        return ONE if os.access(ONE, os.W_OK) else None
    control = TWO / "cgroup.subtree_control"
    return TWO if os.access(TWO, os.W_OK) and control.exists() and "cpu" in control.read_text().split() else None


class Quota:
    """Holds process `pid` and all its threads to `share` of one core. A context manager; leaving it sets the process free."""

    @staticmethod
    def possible() -> bool:
        return root() is not None

    def __init__(self, pid: int, share: float) -> None:
        found = root()
        if found is None:
            raise PermissionError("no control group can be made here")
        self._root = found
        self._group = found / f"sluice-bench-{os.getpid()}-{pid}"
        self._pid = pid
        self._quota_us = round(share * PERIOD_US)

    def __enter__(self) -> Quota:
        self._group.mkdir()
        if self._root == ONE:
            (self._group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (self._group / "cpu.cfs_quota_us").write_text(str(self._quota_us))
        else:
            (self._group / "cpu.max").write_text(f"{self._quota_us} {PERIOD_US}")
        (self._group / "cgroup.procs").write_text(str(self._pid))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with contextlib.suppress(OSError):  # it may have ended
            (self._root / "cgroup.procs").write_text(str(self._pid))
        for _ in range(100):
            with contextlib.suppress(OSError):  # busy for a moment after the last process has left
                self._group.rmdir()
                return
            time.sleep(0.01)
