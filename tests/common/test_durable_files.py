"""Files that survive: which steps are taken, in which order, and what stands there when one of them fails."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from admin.store.snapshots import Snapshots, publication
from common.durable_files import FileSystem, ReadOnlyFiles, append, previous, replace
from limiter.quota_snapshot import Quota, Snapshot

REPLACED = ["open", "write", "sync", "close", "rename", "sync_folder"]


class Recorded(FileSystem):
    """`steps` are those that were taken; the one of number `failing` fails. Three bytes are written at a time."""

    def __init__(self, failing: int = -1) -> None:
        self.steps: list[str] = []
        self.failing = failing
        self.open_files = 0

    def _step(self, name: str) -> None:
        self.steps.append(name)
        if len(self.steps) - 1 == self.failing:
            raise OSError(errno.ENOSPC, "No space left on device")

    def open(self, path: Path, flags: int) -> int:
        self._step("open")
        self.open_files += 1
        return super().open(path, flags)

    def write(self, handle: int, data: bytes) -> int:
        if self.steps[-1] != "write":
            self._step("write")
        return super().write(handle, data[:3])

    def sync(self, handle: int) -> None:
        self._step("sync")
        super().sync(handle)

    def close(self, handle: int) -> None:
        super().close(handle)
        self.open_files -= 1
        self.steps.append("close")

    def link(self, path: Path, to: Path) -> None:
        self._step("link")
        super().link(path, to)

    def rename(self, path: Path, to: Path) -> None:
        self._step("rename")
        super().rename(path, to)

    def unlink(self, path: Path) -> None:
        self.steps.append("unlink")
        super().unlink(path)

    def sync_folder(self, path: Path) -> None:
        self._step("sync_folder")
        super().sync_folder(path)


def test_a_file_is_replaced_by_a_draft_that_is_on_the_disk_before_it_has_its_name(tmp_path: Path) -> None:
    files, path = Recorded(), tmp_path / "state"
    replace(files, path, b"the first bytes", keep_previous=True)
    assert files.steps == REPLACED, "there was nothing to keep"
    files.steps.clear()
    replace(files, path, b"others", keep_previous=True)
    assert files.steps == ["open", "write", "sync", "close", "unlink", "link", "rename", "sync_folder"]
    assert (path.read_bytes(), previous(path).read_bytes()) == (b"others", b"the first bytes")
    replace(files, path, b"third", keep_previous=True)
    replace(files, path, b"4")
    assert (path.read_bytes(), previous(path).read_bytes()) == (b"4", b"others"), "as long as nobody says that it is kept"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["state", "state.previous"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("failing", [0, 1, 2, 5, 6, 7])
def test_a_replacement_that_fails_leaves_the_old_bytes_and_no_draft(tmp_path: Path, failing: int) -> None:
    path = tmp_path / "state"
    path.write_bytes(b"old")
    files = Recorded(failing)
    with pytest.raises(OSError, match="No space left"):
        replace(files, path, b"new", keep_previous=True)
    assert path.read_bytes() == (b"new" if files.steps[-1] == "sync_folder" else b"old")
    assert not (tmp_path / "state.draft").exists()
    assert files.open_files == 0
    (tmp_path / "state.draft").write_bytes(b"a long draft of a process that was killed")
    replace(FileSystem(), path, b"next")
    assert path.read_bytes() == b"next"


def test_what_is_added_is_on_the_disk_and_stands_at_the_end(tmp_path: Path) -> None:
    files, path = Recorded(), tmp_path / "lines"
    append(files, path, b"one line\n")
    append(files, path, b"another\n")
    assert path.read_bytes() == b"one line\nanother\n"
    assert files.steps == ["open", "write", "sync", "close"] * 2
    with pytest.raises(OSError, match="No space left"):
        append(Recorded(2), path, b"third\n")


def test_no_link_is_followed_and_no_program_that_is_started_has_the_file(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"")
    (tmp_path / "lines").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic link"):
        append(FileSystem(), tmp_path / "lines", b"x")
    handle = FileSystem().open(tmp_path / "elsewhere", os.O_RDONLY)
    assert not os.get_inheritable(handle)
    os.close(handle)


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("open", (os.O_WRONLY,)), ("open", (os.O_RDWR | os.O_CREAT,)), ("link", ("to",)), ("rename", ("to",)), ("unlink", ()),
        ("truncate", (0,)), ("sync_folder", ()),
    ],
)  # fmt: skip
def test_a_folder_of_another_process_is_only_read(tmp_path: Path, call: str, arguments: tuple[Any, ...]) -> None:
    path = tmp_path / "state"
    path.write_bytes(b"kept")
    files = ReadOnlyFiles()
    with pytest.raises(OSError, match="another process has it") as raised:
        getattr(files, call)(path, *(tmp_path / each if each == "to" else each for each in arguments))
    assert raised.value.errno == errno.EROFS
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"kept"]
    handle = files.open(path, os.O_RDONLY)
    assert os.read(handle, 10) == b"kept"
    os.close(handle)


def test_a_snapshot_is_durable_before_it_is_named_and_written_once(tmp_path: Path) -> None:
    files = Recorded()
    kept, published = (
        Snapshots(tmp_path, files),
        publication(Snapshot("2026-03-02T00:00:00Z", "t", quotas=(Quota("amqp", "%2F/a/b", (5.0, 50)),))),
    )
    kept.keep(published)
    assert files.steps == ["sync_folder", *REPLACED], "the new folder's own name, too"
    assert stat.S_IMODE(kept.folder.stat().st_mode) == 0o700
    kept.keep(published)
    assert len(files.steps) == 1 + len(REPLACED)
    kept.path(published.sha256).write_bytes(b"damaged")
    kept.keep(published)
    assert files.steps[1 + len(REPLACED) :] == REPLACED, "published again it is whole again"
    found = kept.read(published.sha256)
    assert found is not None
    assert (found.data, list(found.by_topic.values())) == (published.data, list(published.snapshot.quotas))
    kept.drop([published.sha256, "gone"])
    assert kept.read(published.sha256) is None
