"""Small nights without Spark: what they write is what Spark writes, byte for byte, and a day that is not plain is left to Spark."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow.parquet import read_table, write_table

from common.log_files.marks import Counted
from spark_jobs import commands
from spark_jobs.commands import INSUFFICIENT, compute
from spark_jobs.days import Day
from spark_jobs.errors import NeedsSparkError
from spark_jobs.log.files import list_log_files
from spark_jobs.log.plain import read_plain_day
from spark_jobs.method.outcomes import OUTCOMES
from spark_jobs.schemas import OUTCOMES as OUTCOMES_SCHEMA
from spark_jobs.schemas import TOPICS as TOPICS_SCHEMA
from spark_jobs.state.state import DayStates
from spark_jobs.state.tables import read_arrow
from spark_jobs.state.topic_day import TOPICS
from spark_jobs.storage.local import LocalStorage
from spark_jobs.storage.location import Location
from support.access_logs import SyntheticLog, bursts, sparse, steady

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATES = ("2026-11-18", "2026-11-19", "2026-11-20")
LOADS = {
    "orders": steady(100), "audit": bursts(5, 400, every=30), "rare": sparse(3, every=50), "%2F/orders/x": steady(30), "TBW102": steady(7),
}  # fmt: skip
NOW = "2026-11-21T01:00:00Z"
Spoil = Callable[[SyntheticLog], None]


def write(folder: Path, date: str, *, gateways: tuple[str, ...] = ("g1", "g2"), spoil: Spoil | None = None) -> None:
    for gateway in gateways:
        log = SyntheticLog(folder, date, gateway)
        log.run(LOADS, range(3540, 3660), seed=int(date[-2:]), limit=300)
        if spoil is not None:
            spoil(log)
        log.write()


def nights(folder: Path, name: str, log: Path) -> list[bytes]:
    """Three nights, each with the snapshot before as the live one."""
    found: list[bytes] = []
    for date in DATES:
        output = folder / f"{name}-{date}.json"
        more: dict[str, Any] = {"previous": folder / f"{name}-{DATES[len(found) - 1]}.json"} if found else {}
        assert compute(log, date, folder / name, output, now=NOW, min_active_days=1, **more) == 0
        found.append(output.read_bytes())
    return found


def topics(folder: Path, date: str) -> tuple[pa.Table, dict[str, Any]]:
    """The table of a day, sorted, and its manifest but for the name of its data folder."""
    state = DayStates(Location.of("state", folder), LocalStorage())
    manifest = state.read_manifest(date)
    assert manifest is not None
    table = read_arrow(None, "topics", TOPICS, TOPICS_SCHEMA, [state.data(manifest)])
    facts = json.loads(next(folder.glob(f"dt={date}/manifest.json")).read_text())
    facts.pop("data")
    return table.sort_by([("topic", "ascending"), ("dimension", "ascending")]), facts


@contextmanager
def no_session(*_: object, **__: object) -> Iterator[None]:
    raise AssertionError("Spark is not asked")
    yield


@pytest.mark.spark
def test_a_small_night_is_the_same_with_spark_and_without_byte_for_byte(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for date in DATES:
        write(tmp_path / "log", date)
    by_spark = nights(tmp_path, "by-spark", tmp_path / "log")
    monkeypatch.setattr(commands, "does_without_spark", lambda _: True)
    monkeypatch.setattr(commands, "spark_session", no_session)
    plain = nights(tmp_path, "plain", tmp_path / "log")
    assert plain == by_spark
    assert b'"orders"' in plain[-1]
    for date in DATES:
        (one, facts), (other, other_facts) = topics(tmp_path / "plain", date), topics(tmp_path / "by-spark", date)
        assert one.equals(other)
        assert facts == other_facts


def test_days_of_the_version_before_are_read_and_the_next_one_is_written_anew(tmp_path: Path) -> None:
    """Which kept neither rates of overload nor the hours of refusals, and of a night neither its worth in topics nor its evidence."""
    for date in DATES:
        write(tmp_path / "log", date)
    state, later = tmp_path / "state", ("overloaded", "refused_hours")
    for at, date in enumerate(DATES):
        previous = {"previous": tmp_path / f"{DATES[at - 1]}.json"} if at else {}
        assert compute(tmp_path / "log", date, state, tmp_path / f"{date}.json", now=NOW, min_active_days=1, **previous) == 0  # type: ignore[arg-type]
        if date == DATES[-1]:
            break
        parts = list(state.glob(f"dt={date}/data-*/topics/*.parquet"))  # several where a session of Spark runs already: it computes then
        assert parts
        for part in parts:
            write_table(read_table(part).drop_columns(list(later)), part)
        manifest = state / f"dt={date}" / "manifest.json"
        facts = json.loads(manifest.read_text())
        for dimension in facts["fleet"].values():
            for name in ("topics", "evidence"):
                del dimension[name]
        manifest.write_text(json.dumps(facts))
    table, facts = topics(state, DATES[-1])
    assert all(table[name].null_count < len(table) for name in later)
    assert {"topics", "evidence"} <= set(facts["fleet"]["messages"])
    quotas = json.loads((tmp_path / f"{DATES[-1]}.json").read_text())["quotas"]
    assert {quota["evidence"]["days"] for quota in quotas if quota["topic"] == "orders"} == {3}


def test_a_small_night_needs_no_java(tmp_path: Path) -> None:
    write(tmp_path / "log", DATES[0])
    job = "import sys; from spark_jobs.commands import compute; sys.exit(compute(*sys.argv[1:]))"
    began = time.monotonic()
    paths = [str(tmp_path / name) for name in ("log", "state", "quotas.json")]
    done = subprocess.run(
        [sys.executable, "-c", job, paths[0], DATES[0], *paths[1:]], env={"PATH": "", "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, (done.stderr, time.monotonic() - began)
    assert "Spark" not in done.stderr
    assert (tmp_path / "quotas.json").exists()


def torn(log: SyntheticLog) -> None:
    hour, text = log.texts[-1]
    log.texts[-1] = (hour, text[:20])


def twice(log: SyntheticLog) -> None:
    log.texts.append(log.texts[5])


def changed(**fields: Any) -> Spoil:
    def spoil(log: SyntheticLog) -> None:
        hour, text = log.texts[7]
        log.texts[7] = (hour, json.dumps({**json.loads(text), **fields}))

    return spoil


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (torn, "not plain"), (twice, "came twice"), (changed(messages=-1), "out of range"), (changed(seq=2**60), "out of range"),
        (changed(v=2), "out of range"), (changed(gateway=None), "lacks something"), (changed(operation=None), "lacks something"),
        (changed(messages="many"), "not plain"), (changed(bytes=1.5), "not plain"),
    ],
)  # fmt: skip
def test_what_is_not_plain_is_left_to_spark(tmp_path: Path, spoil: Spoil, said: str) -> None:
    write(tmp_path, DATES[0], gateways=("g1",), spoil=spoil)
    files = list_log_files(Location.of("log", tmp_path), Day(DATES[0]).partitions, LocalStorage())
    with pytest.raises(NeedsSparkError, match=said):
        read_plain_day(files, Day(DATES[0]))


def test_of_a_day_that_is_not_over_no_hour_to_come_is_marked_as_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, noon = tmp_path / "log", Day(DATES[0]).start + 43_200
    write(log, DATES[0])
    for now, counted in ((noon, False), (noon + 43_200, True)):
        monkeypatch.setattr("spark_jobs.compute.time", SimpleNamespace(time=lambda now=now: now))
        assert compute(log, DATES[0], tmp_path / "state", tmp_path / "quotas.json") == 0
        assert [Counted(log).covers(noon + after) for after in (-43_200, 7200)] == [True, counted]


def test_a_past_day_is_not_judged_by_quotas_that_were_learned_later(tmp_path: Path) -> None:
    """Its state was lost: the quotas of a later day refused nothing of it, and that was told as out of sample."""
    log, place = tmp_path / "log", tmp_path / "state"
    for date in DATES:
        write(log, date)
    nights(tmp_path, "state", log)
    state = DayStates(Location.of("state", place), LocalStorage())

    def families() -> set[str]:
        manifest = state.read_manifest(DATES[1])
        assert manifest is not None
        return set(read_arrow(None, "outcomes", OUTCOMES, OUTCOMES_SCHEMA, [state.data(manifest)])["family"].to_pylist())

    before = families()
    shutil.rmtree(place / f"dt={DATES[1]}")
    more: dict[str, Any] = {"previous": tmp_path / f"state-{DATES[2]}.json", "now": NOW, "min_active_days": 1}
    assert compute(log, DATES[1], place, tmp_path / "again.json", **more) == 0
    assert before - families() == {"published"}


def test_a_day_that_is_just_over_and_without_its_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "log", DATES[0])
    monkeypatch.setattr("spark_jobs.day.time", SimpleNamespace(time=lambda: Day(DATES[0]).end + 600))
    night = (tmp_path / "log", DATES[0], tmp_path / "state", tmp_path / "quotas.json")
    assert compute(*night) == 1  # which is tried again
    assert "2026-11-18: the log ends at 2026-11-18 01:00:59 UTC" in capsys.readouterr().err
    assert not list((tmp_path / "state").glob("dt=*"))
    assert compute(*night, allow_partial=True) == 0


def test_strays_and_lines_of_the_day_beside_it_are_counted_and_left_out(tmp_path: Path) -> None:
    write(tmp_path, DATES[0], gateways=("g1",), spoil=changed(ts=1))
    files = list_log_files(Location.of("log", tmp_path), Day(DATES[0]).partitions, LocalStorage())
    found = read_plain_day(files, Day(DATES[0]))
    assert sum(each.stray for each in found.counts.files.values()) == 1
    assert len(found.rows) == sum(each.rows for each in found.counts.files.values()) - 1
    berlin = Day(DATES[0], "Asia/Kolkata")  # half an hour beside full hours of UTC
    beside = read_plain_day(files, berlin)
    assert len(beside.rows) + sum(each.stray + each.another_day for each in beside.counts.files.values()) == len(found.rows) + 1


def test_a_day_with_a_gateway_23_hours_short_is_refused_by_its_name_or_scaled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def write_hours(date: str, **hours: int) -> None:
        for name, count in hours.items():
            log = SyntheticLog(tmp_path / "log", date, name, f"b-{date}")
            for hour in range(count):
                log.usage(hour * 3600 + 3599, "orders", messages=10, bytes=1000)
            log.write()

    write_hours(DATES[0], g1=24, g2=24)
    write_hours(DATES[1], g1=24, g2=1)
    places = (tmp_path / "state", tmp_path / "quotas.json")
    assert compute(tmp_path / "log", DATES[0], *places) == 0
    assert compute(tmp_path / "log", DATES[1], *places) == INSUFFICIENT
    assert "g2 (1 seconds, 24 expected)" in capsys.readouterr().err
    assert not list((tmp_path / "state" / f"dt={DATES[1]}").glob("manifest.json"))
    assert compute(tmp_path / "log", DATES[1], *places, allow_partial=True) == 0
    assert json.loads(places[1].read_text())["night"]["missing_gateways"] == ["g2"]
    table, _ = topics(tmp_path / "state", DATES[1])
    assert table.filter(pa.compute.field("dimension") == "messages")["total"].to_pylist() == [250.0], "what its one hour had is kept"


@pytest.mark.parametrize(("date", "files"), [("2026-03-29", 23), ("2026-10-25", 25), ("2026-11-20", 24)])
def test_as_many_files_are_announced_as_are_read_of_a_day_of_another_zone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], date: str, files: int
) -> None:
    """findings.md 8, 7: 23 files were announced and 25 read."""
    for utc in (Day(date).before(1).date, date):
        log = SyntheticLog(tmp_path / "log", utc, boot=utc)
        for second in range(0, 86_400, 3600):
            log.usage(second, "orders")
        log.write()
    assert compute(tmp_path / "log", date, tmp_path / "state", tmp_path / "quotas.json", time_zone="Europe/Berlin") == 0
    assert re.findall(r"(\d+) files", capsys.readouterr().err) == [str(files)] * 2


def test_spark_is_asked_where_it_runs_already_on_a_cluster_and_for_a_large_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    assert not commands.does_without_spark("yarn")
    assert not commands.does_without_spark(None), "spark-submit brings its own"
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert not commands.does_without_spark("local[*]")
