"""Disks that fail, processes that die, and power that is cut, at the n-th step."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from common.durable_files import FileSystem


class Crash(BaseException):
    """The process died here."""


class FaultyFiles(FileSystem):
    """Real files; once armed, the n-th step from then on goes wrong.

    kind "error": that step raises `error`, the next ones work. "broken": that step and all after it raise. "crash": that step and all
    after it raise Crash, as if the process were gone. A write that goes wrong has written half.
    """

    def __init__(self) -> None:
        self.steps: list[str] = []
        self._left = -1
        self._kind = ""
        self._error = errno.EIO
        self._gone = False

    def arm(self, step: int, kind: str, error: int = errno.EIO) -> None:
        self.steps.clear()
        self._left, self._kind, self._error, self._gone = step, kind, error, False

    def disarm(self) -> None:
        self._left, self._gone = -1, False

    def _step(self, name: str) -> bool:
        """Whether this step goes wrong."""
        self.steps.append(name)
        if self._gone:
            return True
        if self._left < 0:
            return False
        self._left -= 1
        if self._left >= 0:
            return False
        self._gone = self._kind != "error"
        return True

    def _fail(self) -> BaseException:
        return Crash() if self._kind == "crash" else OSError(self._error, os.strerror(self._error))

    def open(self, path: Path, flags: int) -> int:
        if self._step(f"open {path.name}"):
            raise self._fail()
        return super().open(path, flags)

    def write(self, handle: int, data: bytes) -> int:
        if self._step("write"):
            super().write(handle, data[: len(data) // 2])
            raise self._fail()
        return super().write(handle, data)

    def sync(self, handle: int) -> None:
        if self._step("sync"):
            raise self._fail()
        super().sync(handle)

    def link(self, path: Path, to: Path) -> None:
        if self._step(f"link {to.name}"):
            raise self._fail()
        super().link(path, to)

    def rename(self, path: Path, to: Path) -> None:
        if self._step(f"rename {to.name}"):
            raise self._fail()
        super().rename(path, to)

    def unlink(self, path: Path) -> None:
        if self._step(f"unlink {path.name}"):
            raise self._fail()
        super().unlink(path)

    def truncate(self, path: Path, size: int) -> None:
        if self._step(f"truncate {path.name}"):
            raise self._fail()
        super().truncate(path, size)

    def sync_folder(self, path: Path) -> None:
        if self._step(f"sync folder {path.name}"):
            raise self._fail()
        super().sync_folder(path)


class PowerCut(FaultyFiles):
    """As FaultyFiles, and `cut` takes back what was not synced: the bytes of files, and (or not) the names in folders.

    A disk may keep names and lose bytes or the other way round, so both are tried.
    """

    def __init__(self, spare: Path) -> None:
        super().__init__()
        self._spare = spare
        self._spare.mkdir()
        self._handles: dict[int, Path] = {}
        self._synced: dict[int, int] = {}  # inode -> bytes that are safe
        self._undo: list[tuple[Path, Path, Path | None, Path | None]] = []  # (folder, name, where it was moved from, old file)
        self._count = 0

    def _keep(self, path: Path) -> Path | None:
        if not path.exists():
            return None
        self._count += 1
        os.link(path, self._spare / str(self._count))
        return self._spare / str(self._count)

    def open(self, path: Path, flags: int) -> int:
        existed = path.exists()
        handle = super().open(path, flags)
        if not existed:
            self._undo.append((path.parent, path, None, None))
        self._handles[handle] = path
        inode = os.fstat(handle).st_ino
        size = os.fstat(handle).st_size
        self._synced[inode] = min(self._synced.get(inode, size), size)
        return handle

    def sync(self, handle: int) -> None:
        super().sync(handle)
        self._synced[os.fstat(handle).st_ino] = os.fstat(handle).st_size

    def link(self, path: Path, to: Path) -> None:
        super().link(path, to)
        self._undo.append((to.parent, to, None, None))

    def rename(self, path: Path, to: Path) -> None:
        kept = self._keep(to)
        super().rename(path, to)
        self._undo.append((to.parent, to, path, kept))

    def unlink(self, path: Path) -> None:
        kept = self._keep(path)
        super().unlink(path)
        if kept is not None:
            self._undo.append((path.parent, path, None, kept))

    def sync_folder(self, path: Path) -> None:
        super().sync_folder(path)
        self._undo = [undo for undo in self._undo if undo[0] != path]

    def cut(self, *, names: bool) -> None:
        """The power goes; with `names` folders lose what was not synced, else files only."""
        if names:
            for _, path, source, kept in reversed(self._undo):
                if source is not None:
                    path.rename(source)
                path.unlink(missing_ok=True)
                if kept is not None:
                    os.link(kept, path)
        for folder in {path.parent for path in self._handles.values()}:
            for path in folder.iterdir():
                safe = self._synced.get(path.stat().st_ino)
                if safe is not None and path.stat().st_size > safe:
                    os.truncate(path, safe)
