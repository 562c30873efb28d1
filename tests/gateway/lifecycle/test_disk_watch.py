"""The log tells of a spool that cannot be written, and of its recovery, once each."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import trio

from gateway.lifecycle.disk_watch import DiskWatch, delete_left_behind
from gateway.waiting.disk.left_behind import LeftBehind
from gateway.waiting.disk.waiting_disk import LOCK, WRITE, DiskJob, WaitingDisk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[WaitingDisk]:
    found = WaitingDisk(tmp_path / "spool", 1 << 20, 1 << 20, threads=False)
    yield found
    found.close(1.0)


def test_trouble_and_its_end_are_told_once_each(disk: WaitingDisk, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    watch = DiskWatch(disk)
    watch.look()
    disk.directory.write_text("a file where the directory should be")
    disk.submit(DiskJob(None, WRITE, "1"))
    for _ in range(3):
        disk.work(WRITE)
        watch.look()
    disk.directory.unlink()
    for _ in range(2):
        disk.work(WRITE)
        watch.look()
    told = [(record.levelname, cast(Any, record).fields) for record in caplog.records if record.getMessage() == "spool_trouble"]
    assert [level for level, _ in told] == ["ERROR", "INFO"]
    assert str(disk.directory) in told[0][1]["err"]
    assert "free some space" in told[0][1]["remedy"]
    assert told[1][1]["err"] == f"over: {told[0][1]['err']}"


async def test_what_is_left_behind_is_told_at_the_start_and_only_deleted_later(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for own, file in (("12-0123abcd", "1"), ("13-0123abcd", "1.durable"), ("14-0123abcd", "2.durable")):
        (tmp_path / own).mkdir()
        (tmp_path / own / file).write_bytes(b"12345")
    (tmp_path / "15-0123abcd" / LOCK).mkdir(parents=True)
    for tells in (True, False):
        caplog.clear()
        await delete_left_behind(tmp_path, tells=tells)
        told = {record.getMessage(): cast(Any, record).fields for record in caplog.records}
        assert sorted(told) == (["spool_left_behind", "spool_not_ours", "spool_unreadable"] if tells else [])
        if tells:
            assert (told["spool_left_behind"]["files"], told["spool_left_behind"]["bytes"]) == (1, 5)
            assert told["spool_not_ours"]["folders"] == f"{tmp_path}/13-0123abcd, {tmp_path}/14-0123abcd"
            assert "delete the folder" in told["spool_not_ours"]["remedy"]
            assert told["spool_unreadable"]["folder"] == f"{tmp_path}/15-0123abcd"
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["13-0123abcd", "14-0123abcd", "15-0123abcd"]


async def test_a_stop_does_not_wait_for_a_disk_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, goes_on, over = trio.Event(), threading.Event(), threading.Event()

    def hang(_: Path) -> LeftBehind:
        trio.from_thread.run_sync(begun.set)
        goes_on.wait(10)
        over.set()
        return LeftBehind()

    monkeypatch.setattr("gateway.lifecycle.disk_watch.clear_left_behind", hang)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(delete_left_behind, tmp_path)
        await begun.wait()
        nursery.cancel_scope.cancel()
    assert not over.is_set()
    goes_on.set()
    await trio.to_thread.run_sync(over.wait)
