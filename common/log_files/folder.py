"""A folder of this machine as a target: a disk, or a mount of anything."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from common.log_files import durable
from common.log_files.manifest import sha256_of
from common.log_files.targets import FAILED, REFUSED, Stored, TargetError


class Folder:
    """A folder as a target."""

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self.url = self._path.as_uri()

    def within(self, directory: Path) -> bool:
        return self._path.resolve().is_relative_to(directory.resolve())

    def _at(self, name: str) -> Path:
        return self._path / name

    def stat(self, name: str, size: int) -> Stored | None:
        path = self._at(name)
        try:
            found = path.stat().st_size
            return Stored(found, sha256_of(path) if found == size else "")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._fault(error) from error

    def put(self, name: str, path: Path, sha256: str) -> None:
        target = self._at(name)
        aside = durable.name_temporary(target)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with path.open("rb") as source, aside.open("w+b") as copy:
                shutil.copyfileobj(source, copy, 1 << 20)
                copy.flush()
                os.fsync(copy.fileno())
                if sha256_of(aside) != sha256:
                    durable.remove(aside)
                    raise TargetError(FAILED, f"{target}: what was written reads otherwise; look at that disk or mount")
                durable.finish(copy, target)
        except OSError as error:
            raise self._fault(error) from error

    def put_bytes(self, name: str, data: bytes) -> None:
        try:
            durable.write(self._at(name), data)
        except OSError as error:
            raise self._fault(error) from error

    def get(self, name: str) -> bytes | None:
        try:
            return self._at(name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._fault(error) from error

    def _fault(self, error: OSError) -> TargetError:
        if isinstance(error, PermissionError):
            return TargetError(REFUSED, f"{error.filename or self._path}: {error.strerror}; let this user write there")
        return TargetError(FAILED, f"{error.filename or self._path}: {error.strerror or error}; free space, or look at that disk or mount")
