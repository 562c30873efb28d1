"""Steps on files that hold after a crash at any moment: written aside, synced, renamed, and only then is the old one removed."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from common.durable_files import sync_folder

LOCK: Final = ".keeper.lock"  # at the log's root
LOOK_S: Final = 0.1  # seconds; between two tries to get the lock


class BusyError(OSError):
    """Another process works on this directory's files."""


@contextmanager
def lock(directory: Path, wait_s: float = 0.0) -> Iterator[None]:
    """The one right to change closed files of `directory`. Raises BusyError when another has it for longer than `wait_s`; OSError."""
    path = directory / LOCK
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)  # NFS locks only what is open for writing
    except PermissionError:  # another user's, whose files are only read here
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        until = time.monotonic() + wait_s
        while not _locked(descriptor):
            if time.monotonic() >= until:
                raise BusyError(f"{directory}: another process reads, compresses or compacts these files; try again when it is done")
            time.sleep(LOOK_S)
        yield
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def name_temporary(path: Path) -> Path:
    """Where `path` is written before it has its name."""
    return path.with_name(path.name + ".tmp")


def finish(file: IO[bytes], path: Path) -> None:
    """Give what was written to `name_temporary(path)` (the open `file`) its name, on disk for good."""
    file.flush()
    os.fsync(file.fileno())
    file.close()
    rename(name_temporary(path), path)


def rename(source: Path, target: Path) -> None:
    source.rename(target)
    sync_folder(target.parent)


def remove(path: Path) -> None:
    """What is not there any more is removed."""
    path.unlink(missing_ok=True)


def write(path: Path, data: bytes) -> None:
    """Whole or not at all; replaces. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = name_temporary(path)
    try:
        with aside.open("wb") as file:
            file.write(data)
            finish(file, path)
    except OSError:
        remove(aside)
        raise
