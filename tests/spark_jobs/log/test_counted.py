"""The mark of a counted day is what the gateway's retention goes by."""

from __future__ import annotations

from pathlib import Path

from common.log_files.marks import Counted
from spark_jobs.days import Day
from spark_jobs.log.counted import mark_counted
from spark_jobs.storage.location import Location


def test_the_gateway_reads_which_hours_are_counted(tmp_path: Path) -> None:
    day = Day("2026-11-20", "Asia/Kolkata")  # half an hour off UTC's hours
    log = Location.of("log", tmp_path)
    assert mark_counted(log, day.date, day.start, day.end) == ""
    first = day.start // 3600 * 3600
    found = Counted(tmp_path)
    assert [found.covers(first + 3600 * hour) for hour in (0, 1, 23, 24)] == [False, True, True, False]
    next_day = Day("2026-11-21", "Asia/Kolkata")
    mark_counted(log, next_day.date, next_day.start, next_day.end)
    mark_counted(log, next_day.date, next_day.start, next_day.end)
    assert Counted(tmp_path).covers(first + 3600 * 24)


def test_a_log_that_is_elsewhere_is_not_marked() -> None:
    assert mark_counted(Location.of("log", "s3a://bucket/log"), "2026-11-20", 0, 86400) == ""


def test_a_log_that_cannot_be_written_is_told_and_no_failure(tmp_path: Path) -> None:
    (tmp_path / "counted").touch()
    assert "gateways there keep it for longer" in mark_counted(Location.of("log", tmp_path), "2026-11-20", 0, 86400)
