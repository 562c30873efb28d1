"""A round of the keeper: compresses, deletes what may go, and holds what was not shipped or counted."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from common.log_files import durable
from common.log_files.keeper import STALE_S, Order, Report, WorkPace, keep_files
from common.log_files.manifest import HourManifest
from common.log_files.marks import Counted, Shipments
from common.log_files.names import look
from support.log_files import HOUR, NOON, killed_at_each_step, log_file, log_text

DAY = 24 * HOUR
NOW = NOON + 10 * DAY
TARGET = "s3://bucket/log"


def keep(
    directory: Path, *, codec: str = "off", keep_s: int = 30 * DAY, size: int = 1 << 40, until: str = "auto", now: float = NOW
) -> Report:
    return keep_files(Order(str(directory), codec, keep_s, size, until), now, WorkPace(0))


def days(directory: Path) -> list[int]:
    """Which hours are there, as days from the first."""
    return sorted({(file.hour - NOON) // DAY for file in look(directory).files})


def fill(directory: Path, count: int = 5) -> None:
    for day in range(count):
        log_file(directory, NOON + day * DAY)
        log_file(directory, NOON + day * DAY, number=1)


def ship(directory: Path, *numbers: int) -> None:
    shipments = Shipments(directory, TARGET)
    for file in look(directory).files:
        if (file.hour - NOON) // DAY in numbers:
            shipments.add(file, {})


def count(directory: Path, start: int, end: int) -> None:
    (directory / "counted").mkdir(exist_ok=True)
    (directory / "counted" / f"dt={start}.json").write_text(json.dumps({"start": start, "end": end}))


def test_hours_that_are_over_are_compressed_and_the_running_one_is_not(tmp_path: Path) -> None:
    log_file(tmp_path)
    log_file(tmp_path, NOON + HOUR)
    log_file(tmp_path, NOON + HOUR, number=1, form="jsonl.open")
    report = keep(tmp_path, codec="gzip", now=NOON + HOUR + 300)
    assert [file.form for file in look(tmp_path).files] == ["jsonl.gz", "jsonl", "jsonl.open"]
    assert (report.compressed_files, report.compressed_bytes, report.files) == (1, len(log_text()), 3)
    again = keep(tmp_path, codec="gzip", now=NOON + HOUR + 300)
    assert (again.compressed_files, again.bytes) == (0, report.bytes)


def test_what_is_too_old_is_deleted_with_its_folders_and_marks(tmp_path: Path) -> None:
    fill(tmp_path)
    ship(tmp_path, 0, 1, 2)
    report = keep(tmp_path, keep_s=7 * DAY)
    assert days(tmp_path) == [3, 4]
    assert (report.deleted_files, report.deleted_to, report.waits_for) == (6, "2026-11-23T12", "shipped")
    assert report.deleted_bytes > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [".keeper.lock", "dt=2026-11-24", "dt=2026-11-25", "shipped"]
    assert not list((tmp_path / "shipped").rglob("g1-*"))


def test_the_oldest_go_while_all_take_too_much(tmp_path: Path) -> None:
    fill(tmp_path)
    size = sum(file.size for file in look(tmp_path).files)
    report = keep(tmp_path, size=size * 55 // 100)
    assert days(tmp_path) == [3, 4]
    assert report.bytes <= size * 55 // 100
    assert report.files == 4  # of day 2 one file would do, but an hour goes whole
    assert report.oldest == NOON + 3 * DAY
    assert report.unshipped_files == -1


def test_an_hour_of_a_gateway_goes_whole_with_its_manifest_or_not_at_all(tmp_path: Path) -> None:
    fill(tmp_path, 2)
    log_file(tmp_path, gateway="g1-b")  # whose name begins as the other's does
    for gateway in ("g1", "g1-b"):
        durable.write(tmp_path / HourManifest(gateway, NOON).name, b"{}")
    shipments = Shipments(tmp_path, TARGET)
    for file in look(tmp_path).files:
        if file.gateway == "g1" and file.stem.endswith("-000000"):
            shipments.add(file, {})
    assert keep(tmp_path, size=0).held_files == 5
    assert len(look(tmp_path).files) == 5
    for file in look(tmp_path).files:
        if file.gateway == "g1":
            shipments.add(file, {})
    assert keep(tmp_path, size=0).deleted_files == 4
    assert [file.gateway for file in look(tmp_path).files] == ["g1-b"]
    assert not (tmp_path / HourManifest("g1", NOON).name).exists()
    assert (tmp_path / HourManifest("g1-b", NOON).name).exists()


def test_no_manifest_names_a_file_that_is_gone_when_a_round_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write() -> None:
        fill(tmp_path, 1)
        durable.write(tmp_path / HourManifest("g1", NOON).name, b"{}")

    write()
    deaths = 0
    for _ in killed_at_each_step(monkeypatch, lambda: keep(tmp_path, keep_s=7 * DAY)):
        deaths += 1
        assert len(look(tmp_path).files) == 2 or not (tmp_path / HourManifest("g1", NOON).name).exists()
        write()
    assert deaths >= 3


def test_nothing_is_deleted_that_was_not_shipped_where_the_log_is_shipped(tmp_path: Path) -> None:
    fill(tmp_path)
    ship(tmp_path, 0, 2)
    report = keep(tmp_path, keep_s=7 * DAY)
    assert days(tmp_path) == [1, 3, 4]
    assert (report.held_files, report.unshipped_files) == (2, 6)
    assert report.held_bytes > 0
    assert keep(tmp_path, keep_s=7 * DAY).held_files == 2  # still, though no mark of a file is left
    ship(tmp_path, 1)
    assert keep(tmp_path, keep_s=7 * DAY).held_files == 0
    assert days(tmp_path) == [3, 4]


def test_nothing_is_deleted_that_was_not_counted_where_the_night_reads_it_here(tmp_path: Path) -> None:
    fill(tmp_path)
    count(tmp_path, NOON - 13 * HOUR, NOON + 11 * HOUR)  # a day of a zone an hour ahead of UTC
    count(tmp_path, NOON + 11 * HOUR, NOON + DAY + 11 * HOUR)
    report = keep(tmp_path, keep_s=7 * DAY)
    assert days(tmp_path) == [2, 3, 4]
    assert (report.held_files, report.waits_for) == (2, "counted")


def test_an_hour_that_ends_in_a_day_that_was_not_counted_stays(tmp_path: Path) -> None:
    count(tmp_path, NOON - DAY, NOON + 1800)  # a zone half an hour off
    assert Counted(tmp_path).covers(NOON - HOUR)
    assert not Counted(tmp_path).covers(NOON)
    count(tmp_path, NOON + 1800, NOON + DAY)
    assert Counted(tmp_path).covers(NOON)


@pytest.mark.parametrize(("until", "left", "held"), [("age", [3, 4], 0), ("shipped", [0, 1, 2, 3, 4], 6), ("counted", [0, 1, 2, 3, 4], 6)])
def test_the_setting_says_what_is_waited_for(tmp_path: Path, until: str, left: list[int], held: int) -> None:
    fill(tmp_path)
    report = keep(tmp_path, keep_s=7 * DAY, until=until)
    assert (days(tmp_path), report.held_files) == (left, held)


def test_a_day_that_was_never_counted_is_given_up_when_no_night_reads_it_any_more(tmp_path: Path) -> None:
    log_file(tmp_path)  # of a day that was refused, for example
    count(tmp_path, NOON + 59 * DAY, NOON + 60 * DAY)
    assert keep(tmp_path, keep_s=DAY, now=NOON + 61 * DAY).held_files == 1
    count(tmp_path, NOON + 60 * DAY, NOON + 60 * DAY + HOUR)
    assert keep(tmp_path, keep_s=DAY, now=NOON + 61 * DAY).deleted_files == 1


def test_old_marks_of_counting_go_with_their_hours_but_for_the_newest(tmp_path: Path) -> None:
    for day in range(4):
        count(tmp_path, NOON + day * DAY, NOON + (day + 1) * DAY)
    log_file(tmp_path, NOON + 2 * DAY)
    keep(tmp_path)
    assert len(list((tmp_path / "counted").iterdir())) == 2
    keep(tmp_path, keep_s=DAY)
    keep(tmp_path, keep_s=DAY)
    assert days(tmp_path) == []
    assert Counted(tmp_path).begun


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"start": "x", "end": 3}', '{"start": 1'])
def test_a_mark_that_cannot_be_read_counts_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "counted").mkdir()
    (tmp_path / "counted" / "dt=2026-11-21.json").write_text(text)
    assert not Counted(tmp_path).begun


def test_a_round_killed_between_any_two_steps_loses_nothing_that_must_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path)
    ship(tmp_path, 0, 1)
    left = {path.name: path.read_bytes() for day in (2, 3, 4) for path in tmp_path.glob(f"dt=2026-11-2{1 + day}/*/*")}
    deaths = 0
    for _ in killed_at_each_step(monkeypatch, lambda: keep(tmp_path, keep_s=7 * DAY)):
        deaths += 1
        assert {path.name for path in tmp_path.glob("dt=*/*/*")} >= set(left)
        fill(tmp_path, 2)
        ship(tmp_path, 0, 1)
    assert deaths >= 4
    assert days(tmp_path) == [2, 3, 4]


def test_a_file_that_a_crash_left_open_is_closed_whichever_gateway_it_is_of(tmp_path: Path) -> None:
    stale = log_file(tmp_path, gateway="gone", form="jsonl.open", text='{"v":1,"ts"')
    fresh = log_file(tmp_path, gateway="alive", form="jsonl.open")
    now = NOON + 3 * HOUR
    os.utime(stale, (now - STALE_S - 1, now - STALE_S - 1))
    os.utime(fresh, (now, now))
    report = keep(tmp_path, now=now)
    assert report.closed == ["dt=2026-11-21/hr=12/gone-b1-000000.jsonl"]
    assert [path.name for path in sorted(tmp_path.glob("dt=*/*/*"))] == ["alive-b1-000000.jsonl.open", "gone-b1-000000.jsonl"]


def test_an_open_file_whose_closed_name_is_taken_is_told_and_stays(tmp_path: Path) -> None:
    stale = log_file(tmp_path, form="jsonl.open")
    log_file(tmp_path)
    os.utime(stale, (NOON, NOON))
    (fault,) = keep(tmp_path, now=NOW).faults
    assert "compare the two and remove one" in fault
    assert stale.exists()


def test_a_fault_of_one_file_is_told_and_the_others_have_their_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, 2)
    real = durable.rename

    def rename(source: Path, target: Path) -> None:
        if "2026-11-21" in str(target) and "000000" in target.name:
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr(durable, "rename", rename)
    report = keep(tmp_path, codec="gzip")
    assert report.compressed_files == 3
    (fault,) = report.faults
    assert "cannot compress" in fault
    assert "No space left on device" in fault


def test_what_killed_processes_left_half_written_is_removed_and_foreign_files_are_not(tmp_path: Path) -> None:
    log_file(tmp_path)
    folder = next(tmp_path.glob("dt=*/hr=*"))
    (folder / "g1-b1-000000.jsonl.gz.tmp").touch()
    (folder / "mine.tmp").touch()
    keep(tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == ["g1-b1-000000.jsonl", "mine.tmp"]


def test_two_at_once_do_not_touch_the_same_directory(tmp_path: Path) -> None:
    fill(tmp_path)
    with durable.lock(tmp_path):
        report = keep(tmp_path, keep_s=7 * DAY, codec="gzip")
    assert report.busy
    assert days(tmp_path) == [0, 1, 2, 3, 4]
    assert not keep(tmp_path, keep_s=7 * DAY).busy


def test_before_the_first_line_there_is_nothing_to_do(tmp_path: Path) -> None:
    assert keep(tmp_path / "access-log") == Report()
