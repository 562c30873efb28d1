"""While the job reads a local log, a gateway's keeper beside it waits; and where it cannot, the job reads all the same."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from common.log_files import durable
from common.log_files.keeper import Order, WorkPace, keep_files
from spark_jobs.log.lock import lock_log
from spark_jobs.storage.location import Location
from support.log_files import NOON, log_file


def test_a_keeper_waits_for_the_job(tmp_path: Path) -> None:
    path = log_file(tmp_path)
    order = Order(str(tmp_path), "gzip", 10**9, 1 << 40, "age")
    with lock_log(Location.of("log", tmp_path)) as stays:
        assert stays
        assert keep_files(order, NOON + 7200, WorkPace(0)).busy
        assert path.exists()
    assert keep_files(order, NOON + 7200, WorkPace(0)).compressed_files == 1


def test_the_job_does_not_wait_for_ever(tmp_path: Path) -> None:
    log_file(tmp_path)
    with durable.lock(tmp_path), lock_log(Location.of("log", tmp_path), wait_s=0.0) as stays:
        assert not stays


def test_a_log_elsewhere_or_without_a_lock_is_read_all_the_same(tmp_path: Path) -> None:
    for place in ("s3a://bucket/log", str(tmp_path / "none")):
        with lock_log(Location.of("log", place)) as stays:
            assert not stays


def test_a_job_that_may_only_read_there_keeps_the_files_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log_file(tmp_path)
    with durable.lock(tmp_path):
        pass
    as_owner = os.open

    def as_somebody_else(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & (os.O_RDWR | os.O_WRONLY):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return as_owner(path, flags, mode)

    monkeypatch.setattr(os, "open", as_somebody_else)
    with lock_log(Location.of("log", tmp_path)) as stays:
        assert stays
        assert keep_files(Order(str(tmp_path), "gzip", 10**9, 1 << 40, "age"), NOON + 7200, WorkPace(0)).busy
