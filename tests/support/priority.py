"""The machine's processors before others, for what is timed: tests share two of them with other tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from support.processes import tree

PRIORITY: Final = -10


@contextmanager
def before_others(*pids: int) -> Iterator[bool]:
    """Give these processes, with all their descendants and threads, a higher priority; says whether that could be had."""
    threads = [int(task.name) for pid in pids for each in tree(pid) for task in Path(f"/proc/{each}/task").iterdir()]
    threads.append(os.getpid())
    before = {}
    try:
        with suppress(PermissionError, ProcessLookupError):
            for thread in threads:
                before[thread] = os.getpriority(os.PRIO_PROCESS, thread)
                os.setpriority(os.PRIO_PROCESS, thread, PRIORITY)
        yield len(before) == len(threads)
    finally:
        for thread, priority in before.items():
            with suppress(PermissionError, ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, thread, priority)
