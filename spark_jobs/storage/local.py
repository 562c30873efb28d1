"""The storage of this machine's file system: plain Python, no JVM."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from common.durable_files import sync_folder
from spark_jobs.storage.location import Location
from spark_jobs.storage.storage import StoredFile


class LocalStorage:
    """`storage.Storage` for `file:` locations. OSError as the system raises it, with the path."""

    def read(self, location: Location) -> bytes:
        return location.local.read_bytes()

    def write(self, location: Location, data: bytes) -> None:
        write_durably(location.local, data)

    def list(self, folder: Location) -> list[StoredFile]:
        return [_entry(folder, each) for each in _scan(folder.local)]

    def files(self, folder: Location) -> Iterator[StoredFile]:
        return iter(sorted(_walk(folder)))

    def remove(self, location: Location) -> None:
        path = location.local
        if path.is_dir() and not path.is_symlink():
            _remove_folder(path)
        else:
            path.unlink(missing_ok=True)

    def checksum(self, entry: StoredFile) -> str | None:
        with entry.location.local.open("rb") as file:
            return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"

    def __repr__(self) -> str:
        return "<LocalStorage>"


def _scan(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda each: each.name)
    except FileNotFoundError:
        return []


def _entry(folder: Location, each: os.DirEntry[str]) -> StoredFile:
    """A file that vanishes between listing and looking is listed with size 0: its reader meets FileNotFoundError and looks again."""
    is_folder = each.is_dir()
    size = modified_ms = 0
    with contextlib.suppress(FileNotFoundError):
        found = each.stat()
        size, modified_ms = 0 if is_folder else found.st_size, found.st_mtime_ns // 1_000_000
    return StoredFile(folder.child(each.name), each.name, size, modified_ms, is_folder)


def _walk(folder: Location) -> Iterator[StoredFile]:
    for each in _scan(folder.local):
        entry = _entry(folder, each)
        if not entry.is_folder:
            yield entry
        elif not each.is_symlink():  # a link could lead back here
            yield from _walk(entry.location)


def _remove_folder(path: Path) -> None:
    while path.exists():  # a folder that another run fills meanwhile is tried again; one that cannot be removed raises
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            continue


def write_durably(path: Path, data: bytes) -> None:
    """Replace `path` in one step, on disk before this returns. An OSError names it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise
    finally:
        partial.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_below(folder: Path) -> None:
    """See all files below `folder`, and their names, on the disk."""
    for path, _, names in os.walk(folder):
        for name in names:
            with (Path(path) / name).open("rb") as file:
                os.fsync(file.fileno())
        sync_folder(Path(path))
