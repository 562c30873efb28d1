"""What processes that are gone have left in the directory of what waits: it is deleted, since nobody was told that it had arrived.

A process that is gone has left its directory, whose lock is free then. A build that was never released kept some messages in files that
were to outlive it (`*.durable`): a directory that has such files is left alone, and told.

Called on a thread; nothing here knows the event loop.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

from gateway.waiting.disk.waiting_disk import LOCK, OWN, delete_files

KEPT: Final = (".durable", ".removed")  # how names end of what that build would still need


class LeftBehind:
    """What a look has found: `files` of `size` bytes were deleted."""

    def __init__(self) -> None:
        self.files = 0
        self.size = 0
        self.kept: list[Path] = []  # directories with files of that build
        self.faults: dict[Path, str] = {}  # directories that cannot be looked at, or not emptied, and why


def clear_left_behind(directory: Path) -> LeftBehind:
    """Delete what processes that are gone have left in `directory`, and nothing else."""
    found = LeftBehind()
    try:
        left = sorted(each for each in directory.iterdir() if OWN.fullmatch(each.name))
    except FileNotFoundError:  # nothing was ever paged
        return found
    except OSError as error:
        found.faults[directory] = str(error)
        return found
    for own in left:
        try:
            _clear(own, found)
        except (BlockingIOError, FileNotFoundError):  # another process has it, or has just deleted it
            pass
        except OSError as error:
            found.faults[own] = str(error)
    return found


def _clear(own: Path, found: LeftBehind) -> None:
    descriptor = os.open(own / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while its process lives
        if os.fstat(descriptor).st_ino != (own / LOCK).stat().st_ino:  # deleted by another process, in between
            return
        files = list(own.iterdir())
        if any(file.name.endswith(KEPT) for file in files):
            found.kept.append(own)
            return
        paged = [file for file in files if file.name.isdecimal()]
        found.size += sum(file.lstat().st_size for file in paged)
        found.files += len(paged)
        delete_files(own)
    finally:
        os.close(descriptor)
