"""The gateway's side of keeping its log's files: the child it starts, and how it tells what that did."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any, cast

import pytest

from common.log_files.compression import chunks
from common.log_files.keeper import Order, Report, be_quiet
from common.log_files.marks import Shipments
from common.log_files.names import look
from config import load
from config.lints import lint
from control_plane import log_keeping
from control_plane.log_keeping import LogKeeping
from gateway.telemetry.exposition import families
from support.idle_standalone import idle, written
from support.log_files import NOON, log_file, log_text

CONFIGURATION = """
listeners: [{{name: one, protocol: rocketmq, bind: 127.0.0.1:0, upstream: 127.0.0.1:1}}]
access_log: {log}
rules: [{{name: all, match: {{protocol: rocketmq}}, limit: {{messages: 1000/s}}}}]
"""


def keeping(directory: Path, log: str = "{directory: log}") -> LogKeeping:
    file = directory / "sluice.yaml"
    file.write_text(CONFIGURATION.format(log=log))
    return LogKeeping(load(file))


def events(caplog: pytest.LogCaptureFixture, name: str) -> list[dict[str, Any]]:
    return [vars(record)["fields"] for record in caplog.records if record.getMessage() == name]


async def test_a_child_compresses_what_is_over(tmp_path: Path) -> None:
    log_file(tmp_path / "log", NOON - 86400 * 3000)  # years ago
    kept = keeping(tmp_path, "{directory: log, keep: 36500d, compress: gzip}")
    assert kept.order is not None
    await kept.round(kept.order)
    assert kept.report.compressed_files == 1
    (file,) = look(tmp_path / "log").files
    assert b"".join(chunks(file.path, file.form)).count(b"\n") == log_text().count("\n")
    told = "".join(families(kept.samples()))
    assert f"sluice_access_log_bytes {file.size}\n" in told
    assert "\nsluice_access_log_unshipped_files " not in told


async def test_the_child_imports_nothing_from_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gateway").mkdir()
    (tmp_path / "gateway" / "__init__.py").write_text("raise SystemExit('imported')")
    (tmp_path / "json.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    kept = keeping(tmp_path)
    assert kept.order is not None
    await kept.round(kept.order)
    assert kept.failures == 0


async def test_a_child_that_fails_is_told_with_its_words(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kept = keeping(tmp_path)
    log_file(tmp_path)
    await kept.round(Order(str(tmp_path), "off", cast(Any, "a month"), 0, "age"))
    (told,) = events(caplog, "access_log_keeping_failed")
    assert "ended with 1" in told["err"]
    assert kept.failures == 1


async def test_no_log_no_rounds(tmp_path: Path) -> None:
    kept = keeping(tmp_path, "off")
    await kept.run()
    assert kept.samples() == {}


def test_what_is_held_is_a_warning_until_it_is_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sluice")
    kept = keeping(tmp_path)
    for _ in range(3):
        kept.take(Report(held_files=2, held_bytes=5 << 20, waits_for="shipped"))
    (told,) = events(caplog, "access_log_held")
    assert "`sluice log ship` does not run" in told["remedy"]
    (warning,) = kept.warnings()
    assert warning.startswith("access log: 5MiB in 2 files should be deleted and may not")
    kept.take(Report(held_files=2, held_bytes=5 << 20, waits_for="counted"))
    assert "`sluice quotas nightly`" in kept.warnings()[0]
    kept.take(Report())
    assert kept.warnings() == []


def test_deletions_and_faults_are_told_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sluice")
    kept = keeping(tmp_path)
    kept.take(Report(deleted_files=3, deleted_bytes=100, deleted_to="2026-11-20T05", faults=["no room"], closed=["dt=1/hr=2/x.jsonl"]))
    kept.take(Report(deleted_files=1, deleted_bytes=10, deleted_to="2026-11-20T06", faults=["no room"]))
    kept.take(Report(busy=True, deleted_bytes=5))
    assert [told["to"] for told in events(caplog, "access_log_deleted")] == ["2026-11-20T05", "2026-11-20T06"]
    assert len(events(caplog, "access_log_keeping_failed")) == 1
    assert len(events(caplog, "access_log_closed")) == 1
    told = "".join(families(kept.samples()))
    assert "sluice_access_log_deleted_bytes_total 110\n" in told
    assert "sluice_access_log_keeping_failures_total 2\n" in told


def test_which_codec_is_used_is_said_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "sluice")
    monkeypatch.setattr("common.log_files.compression.find_spec", lambda _: None)
    monkeypatch.setattr("config.lints.find_spec", lambda _: None)
    for word in ("auto", "zstd", "gzip"):
        kept = keeping(tmp_path, f"{{directory: log, compress: {word}}}")
        assert kept.order is not None
        kept._say_how(kept.order)
        (*_, told) = events(caplog, "access_log_kept")
        assert told["compress"] == "gzip"
        assert ("remedy" in told, "note" in told) == (word == "zstd", word == "auto"), "a default that falls back is no fault"
        assert "gzip is used" in f"{told.get('note')} {told.get('remedy')}" or word == "gzip"
        assert ("sluice-gateway[zstd]" in f"{told}") == (word != "gzip")
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING", "INFO"]
    file = tmp_path / "sluice.yaml"
    file.write_text(CONFIGURATION.format(log="{compress: zstd}"))
    assert [problem.path for problem in lint(load(file))] == ["access_log.compress"]


def test_unshipped_files_are_shown_once_something_is_shipped(tmp_path: Path) -> None:
    log_file(tmp_path)
    kept = keeping(tmp_path)
    kept.take(Report(unshipped_files=0, oldest=NOON))
    told = "".join(families(kept.samples()))
    assert "sluice_access_log_unshipped_files 0\n" in told
    assert f"sluice_access_log_oldest_hour_timestamp_seconds {NOON}\n" in told
    assert not Shipments(tmp_path).begun


@pytest.mark.parametrize("log", ["{directory: log}", "off"])
def test_a_gateway_shows_what_is_kept(tmp_path: Path, log: str) -> None:
    with idle(written(tmp_path, CONFIGURATION.format(log=log))) as standalone:
        standalone.log_keeping.take(Report(held_files=1, held_bytes=7, bytes=70))
        told = "".join(standalone.metrics({}))
        assert ("\nsluice_access_log_bytes 70\n" in told) == (log != "off")
        assert standalone.warnings() == standalone.status().warnings == standalone.log_keeping.warnings()
        assert standalone.log_keeping.run in list(standalone.tasks())


def test_the_child_stands_behind_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def refused(*_: object) -> None:
        asked.append("idle")
        raise PermissionError

    monkeypatch.setattr(os, "nice", asked.append)
    monkeypatch.setattr(os, "sched_setscheduler", refused)
    be_quiet()
    assert asked == [19, "idle"]
    assert log_keeping.ROUND_S >= 60
