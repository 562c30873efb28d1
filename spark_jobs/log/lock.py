"""The lock on a local log: while the job holds it, no gateway's keeper compresses, compacts or deletes a file.

A keeper works under one lock (`docs/access-log.md`), and the job takes the same one. Gateways go on writing: only closed files rest. Files
of a log elsewhere do not change: shipped files stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from common.log_files import durable
from spark_jobs.storage.location import Location

# Seconds to wait for the lock; after them the job reads without it, as in a folder that it may not write to (a guess).
WAIT_S: Final = 60.0


@contextmanager
def lock_log(log: Location, wait_s: float = WAIT_S) -> Iterator[bool]:
    """Hold the lock while the block lasts. Yields whether it is held: the files are then known to stay. False is no fault: a file that goes
    at just that moment ends the run, which can be repeated."""
    with ExitStack() as stack:
        yield log.is_local and _take_lock(log, wait_s, stack)


def _take_lock(log: Location, wait_s: float, stack: ExitStack) -> bool:
    try:
        stack.enter_context(durable.lock(log.local, wait_s))
    except OSError:  # somebody has it for longer, the folder is not this user's, or its file system knows no locks
        return False
    return True
