"""Keeps the files of a local log as they are while the job reads them: nothing beside it compresses, compacts or deletes any meanwhile.

A gateway's keeper does that under one lock (`docs/access-log.md`), which is taken here, too. Gateways go on to write; only the file's
closed neighbours rest. Of a log elsewhere the files do not change: what was shipped stays.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from spark_jobs.storage.location import Location

LOCK: Final = ".keeper.lock"
WAIT_S: Final = (
    60.0  # seconds; for whoever has the lock; then the job reads without it, as it would of a folder it may not write to (a guess)
)
LOOK_S: Final = 0.1  # seconds; between two tries


@contextmanager
def unchanged(log: Location, wait_s: float = WAIT_S) -> Iterator[bool]:
    """Whether the files are known to stay. False is no fault: a file that goes at just that moment ends the run, which can be repeated."""
    descriptor = _open(log)
    if descriptor is None:
        yield False
        return
    try:
        yield _locked(descriptor, time.monotonic() + wait_s)
    finally:
        os.close(descriptor)


def _open(log: Location) -> int | None:
    if not log.is_local:
        return None
    path = log.child(LOCK).local
    for flags in (os.O_RDONLY, os.O_RDONLY | os.O_CREAT):  # there, or to be made
        try:
            return os.open(path, flags | os.O_CLOEXEC, 0o644)
        except OSError:
            continue
    return None


def _locked(descriptor: int, until: float) -> bool:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(LOOK_S)
        except OSError:  # a file system without locks
            return False
        else:
            return True
