"""The log tells of a spool that cannot be written, and of its recovery, once each."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from gateway.lifecycle.spool_watch import SpoolWatch
from gateway.spool.disk import WRITE, Job, SpoolDisk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SpoolDisk]:
    found = SpoolDisk(tmp_path / "spool", 1 << 20, 1 << 20, threads=False)
    yield found
    found.close(1.0)


def test_trouble_and_its_end_are_told_once_each(disk: SpoolDisk, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    watch = SpoolWatch(disk)
    watch.look()
    disk.directory.write_text("a file where the directory should be")
    disk.submit(Job(None, WRITE, "1"))
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
