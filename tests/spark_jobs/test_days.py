"""Days of a time zone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from spark_jobs.commands import list_day_files
from spark_jobs.days import Day, yesterday
from spark_jobs.storage.location import Location


def test_a_day_of_utc() -> None:
    day = Day("2026-11-20")
    assert (day.start, day.end, day.weekday, day.hour_count) == (1795132800, 1795132800 + 86_400, 4, 24)
    assert day.partitions[0] == ("2026-11-20", "00")
    assert len(day.partitions) == 24
    assert list(day.hour_of(np.array([day.start, day.start + 3599, day.end - 1]))) == [0, 0, 23]
    assert day.before(20).date == "2026-10-31"


def test_a_day_of_another_zone_begins_at_its_midnight_and_overlaps_two_dates() -> None:
    day = Day("2026-11-20", "Asia/Kolkata")  # 5:30 before UTC
    assert day.start == Day("2026-11-20").start - 5.5 * 3600
    assert (day.partitions[0], day.partitions[-1], len(day.partitions)) == (("2026-11-19", "18"), ("2026-11-20", "18"), 25)
    assert list(day.hour_of(np.array([day.start, day.start + 1800]))) == [0, 0]


@pytest.mark.parametrize(("date", "hours"), [("2026-03-29", 23), ("2026-10-25", 25), ("2026-10-26", 24)])
def test_days_on_which_clocks_are_changed(date: str, hours: int) -> None:
    day = Day(date, "Europe/Berlin")
    assert (day.hour_count, day.seconds) == (hours, hours * 3600)
    assert int(day.hour_of(np.array([day.end - 1]))[0]) == hours - 1


@pytest.mark.parametrize("date", ["yesterday", "20261120", "2026-02-30", ""])
def test_what_is_no_date_is_refused(date: str) -> None:
    with pytest.raises(ValueError, match=r"--date: .* is not a day like"):
        Day(date)


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "../etc/passwd", "Europe"])
def test_a_zone_that_nobody_knows_is_refused(zone: str) -> None:
    with pytest.raises(ValueError, match=r"time_zone: .* is unknown"):
        Day("2026-11-20", zone)


def test_yesterday_is_of_the_time_zone() -> None:
    assert yesterday("Pacific/Kiritimati").calendar >= yesterday("UTC").calendar >= yesterday("Pacific/Niue").calendar


def test_as_many_files_are_announced_as_the_day_of_its_zone_is_read_from(tmp_path: Path) -> None:
    """With a time zone 23 files were announced and 25 read."""
    for hour in ("2026-11-19/hr=22", "2026-11-19/hr=23", "2026-11-20/hr=00", "2026-11-20/hr=22", "2026-11-20/hr=23", "2026-11-21/hr=00"):
        folder = tmp_path / f"dt={hour}"
        folder.mkdir(parents=True)
        (folder / f"{hour[5:10]}-{hour[-2:]}.jsonl").write_text("{}")
    log = Location.of("log", tmp_path)
    assert list_day_files(log, Day("2026-11-20")) == [("11-20-00.jsonl", 2), ("11-20-22.jsonl", 2), ("11-20-23.jsonl", 2)]
    of_berlin = [name for name, _ in list_day_files(log, Day("2026-11-20", "Europe/Berlin"))]
    assert of_berlin == ["11-19-23.jsonl", "11-20-00.jsonl", "11-20-22.jsonl"]
