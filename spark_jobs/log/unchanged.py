"""Keeps the files of a local log as they are while the job reads them: nothing beside it compresses, compacts or deletes any meanwhile.

A gateway's keeper does that under one lock (`docs/access-log.md`), which is taken here, too. Gateways go on to write; only the file's
closed neighbours rest. Of a log elsewhere the files do not change: what was shipped stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from common.log_files import durable
from spark_jobs.storage.location import Location

# Seconds; for whoever has the lock; then the job reads without it, as it would of a folder it may not write to (a guess).
WAIT_S: Final = 60.0


@contextmanager
def unchanged(log: Location, wait_s: float = WAIT_S) -> Iterator[bool]:
    """Whether the files are known to stay. False is no fault: a file that goes at just that moment ends the run, which can be repeated."""
    with ExitStack() as stack:
        yield log.is_local and _locked(log, wait_s, stack)


def _locked(log: Location, wait_s: float, stack: ExitStack) -> bool:
    try:
        stack.enter_context(durable.lock(log.local, wait_s))
    except OSError:  # somebody has it for longer, the folder is not this user's, or its file system knows no locks
        return False
    return True
