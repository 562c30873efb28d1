"""Steps on files that hold after a crash at any moment: written aside, synced, renamed, and only then is the old one removed."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

LOCK: Final = ".keeper.lock"  # at the log's root


class BusyError(OSError):
    """Another process works on this directory's files."""


@contextmanager
def lock(directory: Path) -> Iterator[None]:
    """The one right to change closed files of `directory`. Raises BusyError, OSError."""
    path = directory / LOCK
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError(f"{directory}: another process compresses or compacts these files; try again when it is done") from None
        yield
    finally:
        os.close(descriptor)


def temporary(path: Path) -> Path:
    """Where `path` is written before it has its name."""
    return path.with_name(path.name + ".tmp")


def finish(file: IO[bytes], path: Path) -> None:
    """Give what was written to `temporary(path)` (the open `file`) its name, on disk for good."""
    file.flush()
    os.fsync(file.fileno())
    file.close()
    rename(temporary(path), path)


def rename(source: Path, target: Path) -> None:
    source.rename(target)
    sync_folder(target.parent)


def remove(path: Path) -> None:
    """What is not there any more is removed."""
    path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write(path: Path, data: bytes) -> None:
    """Whole or not at all; replaces. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = temporary(path)
    try:
        file = aside.open("wb")
        file.write(data)
        finish(file, path)
    except OSError:
        remove(aside)
        raise
