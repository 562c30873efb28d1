"""Files that survive: the few steps durability is made of, and the two ways they are put together.

Every step is one system call on one `FileSystem`, so that tests can make the n-th of them fail, or stop the world there.

    replace    write a draft ─ fsync it ─ link the old one as .previous ─ rename the draft over it ─ fsync the folder
    append     write at the end ─ fsync          (a crash leaves a prefix of what was written: the reader repairs)

A rename is atomic: at every moment the name leads to the whole old file or to the whole new one. Without the first fsync the name could
lead to an empty file after a power cut, without the second the rename itself could be lost.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import Final, NoReturn

PREVIOUS: Final = ".previous"
DRAFT: Final = ".draft"
UNWRITABLE: Final = (errno.EROFS, errno.EACCES, errno.EPERM)  # nothing can be stored, and trying again is no use


class FileSystem:
    """System calls on files, by their names. All of them block and raise OSError; none of them retries."""

    def open(self, path: Path, flags: int) -> int:
        return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def write(self, handle: int, data: bytes) -> int:
        return os.write(handle, data)

    def sync(self, handle: int) -> None:
        os.fsync(handle)

    def close(self, handle: int) -> None:
        os.close(handle)

    def link(self, path: Path, to: Path) -> None:
        os.link(path, to)

    def rename(self, path: Path, to: Path) -> None:
        path.rename(to)

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def truncate(self, path: Path, size: int) -> None:
        os.truncate(path, size)

    def sync_folder(self, path: Path) -> None:
        sync_folder(path)


class ReadOnlyFiles(FileSystem):
    """For a folder that another process has: nothing of it is changed. What would change it raises OSError (EROFS)."""

    def open(self, path: Path, flags: int) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR):
            self._refuse(path)
        return super().open(path, flags)

    def link(self, path: Path, to: Path) -> None:
        self._refuse(to)

    def rename(self, path: Path, to: Path) -> None:
        self._refuse(to)

    def unlink(self, path: Path) -> None:
        self._refuse(path)

    def truncate(self, path: Path, size: int) -> None:
        self._refuse(path)

    def sync_folder(self, path: Path) -> None:
        self._refuse(path)

    @staticmethod
    def _refuse(path: Path) -> NoReturn:
        raise OSError(errno.EROFS, "another process has it", str(path))


def sync_folder(path: Path) -> None:
    """See the names of a folder on the disk. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def previous(path: Path) -> Path:
    return path.with_name(path.name + PREVIOUS)


def write_file(files: FileSystem, path: Path, data: bytes, flags: int) -> None:
    """Write all of `data` and see it on the disk; the file's name is not yet (see `FileSystem.sync_folder`)."""
    handle = files.open(path, os.O_WRONLY | os.O_CREAT | flags)
    try:
        view = memoryview(data)
        while view:
            view = view[files.write(handle, bytes(view)) :]
        files.sync(handle)
    finally:
        files.close(handle)


def replace(files: FileSystem, path: Path, data: bytes, *, keep_previous: bool = False) -> None:
    """Make `path` hold `data`, durably. Raises OSError; then `path` holds the old bytes or, if only the last step failed, the new ones."""
    draft = path.with_name(path.name + DRAFT)
    try:
        write_file(files, draft, data, os.O_TRUNC)
        if keep_previous and path.exists():
            files.unlink(previous(path))
            files.link(path, previous(path))
        files.rename(draft, path)
    except OSError:
        with contextlib.suppress(OSError):  # the next draft truncates it
            files.unlink(draft)
        raise
    files.sync_folder(path.parent)


def append(files: FileSystem, path: Path, data: bytes) -> None:
    """Add `data` at the end of `path`, durably. Raises OSError; then a part of `data` may stand there."""
    write_file(files, path, data, os.O_APPEND)
