"""The log of a day becomes the state of the day: what plain Python finds in the same lines, whatever form they have."""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from common.log_files.compaction import compact
from common.log_files.compression import compress
from common.log_files.folder import Folder
from common.log_files.names import look
from common.log_files.shipment import ship
from spark_jobs.day import DayTask, Tolerance, learn_day
from spark_jobs.days import Day
from spark_jobs.errors import InsufficientInputError
from spark_jobs.log.exclusions import Exclusion
from spark_jobs.state.state import DayStates
from spark_jobs.storage.choice import storage_for
from spark_jobs.storage.location import Location
from support.access_logs import SyntheticLog, bursts, sparse, steady, usage_line
from support.day_oracle import oracle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.state.manifest import Manifest

pytestmark = pytest.mark.spark

DATE = "2026-11-20"


def task(log: Path, state: Path, day: Day | None = None, **changes: Any) -> DayTask:
    where, kept = Location.of("log", log), Location.of("state", state)
    asked = DayTask(where, storage_for(where), day or Day(DATE), DayStates(kept, storage_for(kept)), "test", "f")
    return replace(asked, **changes)


def topics(asked: DayTask, manifest: Manifest) -> dict[tuple[str, str, str], dict[str, Any]]:
    table = pq.read_table(asked.state.data(manifest).child("topics").local)
    found = {(row["protocol"], row["topic"], row["dimension"]): row for row in table.to_pylist()}
    assert len(found) == table.num_rows
    return found


def busy_log(folder: Path) -> list[str]:
    """Two gateways, one of them restarted, with lines twice, lost and torn; returns the lines as they are in the files."""
    chance = random.Random(17)
    logs = [SyntheticLog(folder, DATE, "g1", "b1"), SyntheticLog(folder, DATE, "g1", "b2"), SyntheticLog(folder, DATE, "g2", "b3")]
    loads = {"orders": steady(40), "audit": bursts(2, 90, 30), "/shop/rare/key": sparse(7, 40), "%RETRY%p1": steady(5)}
    for at, log in enumerate(logs):
        start = 3500 if at != 1 else 3900
        log.run(loads, range(start, start + 200), seed=at, limit=60, size=50 + at)
        log.usage(start + 50, "orders", messages=0, bytes=0, delayed_messages=30, max_100ms_messages=3)
        log.usage(start + 51, "audit", messages=1, bytes=70, dropped_messages=4)
        log.usage(start + 52, "audit", operation="consume", messages=100, bytes=100)
        log.lose(3)
        log.heartbeat(start + 200)
        for second, text in chance.sample(log.texts, 25):
            log.raw(second, text)
    logs[0].raw(3501, '{"v":1,"ts":12')
    for log in logs:
        log.write()
    return [text for log in logs for _, text in log.texts]


def test_the_state_of_a_day_is_what_plain_python_finds(spark: SparkSession, tmp_path: Path) -> None:
    texts = busy_log(tmp_path / "log")
    asked = task(tmp_path / "log", tmp_path / "state")
    manifest = learn_day(spark, asked)
    expected = oracle(texts, Day(DATE))
    assert (manifest.rows, manifest.corrupt, manifest.duplicates) == (expected.lines, 1, expected.duplicates)
    assert (manifest.missing_lines, manifest.observed_seconds) == (expected.missing_lines, expected.observed_seconds)
    assert {name: each["seconds"] for name, each in manifest.gateways.items()} == expected.gateways
    assert manifest.gateways["g1"]["boots"] == 2
    assert sum(manifest.observed_hours) == expected.observed_seconds
    assert manifest.observed_hours[0] == 100
    assert expected.duplicates >= 60
    assert topics(asked, manifest) == expected.topics
    assert asked.state.read_manifest(DATE) is None, "nothing is visible before the caller publishes"
    kept = [
        json.loads(line) for path in (tmp_path / "state/corrupt" / f"dt={DATE}").glob("*.json") for line in path.read_text().splitlines()
    ]
    assert [(each["line"], each["fault"]) for each in kept] == [('{"v":1,"ts":12', "json")]


def test_every_form_of_the_log_gives_the_same_state(spark: SparkSession, tmp_path: Path) -> None:
    busy_log(tmp_path / "log")
    plain = task(tmp_path / "log", tmp_path / "plain")
    expected = topics(plain, learn_day(spark, plain))
    for at, path in enumerate(sorted((tmp_path / "log").rglob("*.jsonl"))):
        if at % 3 == 0:
            path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
        elif at % 3 == 1:
            path.with_name(path.name + ".zst").write_bytes(pa.Codec("zstd").compress(path.read_bytes(), asbytes=True))
        else:
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            names = dict.fromkeys(name for line in lines for name in line)
            columns = {name: [line.get(name) for line in lines] for name in names}
            pq.write_table(pa.table(columns), path.with_suffix(".parquet"))
        path.unlink()
    mixed = task(tmp_path / "log", tmp_path / "mixed")
    manifest = learn_day(spark, mixed)
    assert topics(mixed, manifest) == expected
    assert manifest.corrupt == 1


def test_a_log_that_was_compressed_compacted_and_shipped_by_the_product_gives_the_same_state(spark: SparkSession, tmp_path: Path) -> None:
    busy_log(tmp_path / "log")
    plain = task(tmp_path / "log", tmp_path / "plain")
    first = learn_day(spark, plain)
    for file in look(tmp_path / "log").files[::2]:
        compress(file, "zstd", lambda: None)
    later = 2e9
    gone = [each for each, _ in zip(compact(tmp_path / "log", later, 0), range(2), strict=False)]  # some hours; the others stay lines
    assert sum(each.corrupt for each in gone) == 1
    assert all(not each.fault for each in ship(tmp_path / "log", Folder(tmp_path / "target"), later, 0))
    assert {file.form for file in look(tmp_path / "target").files} >= {"parquet", "jsonl.zst"}
    shipped = task(tmp_path / "target", tmp_path / "shipped")
    second = learn_day(spark, shipped)
    assert topics(shipped, second) == topics(plain, first)
    for name in ("rows", "corrupt", "stray", "duplicates", "missing_lines", "observed_seconds", "gateways"):
        assert getattr(second, name) == getattr(first, name)
    assert all("sha256" in each for each in second.inputs)
    next((tmp_path / "target").rglob("*.parquet")).unlink()
    with pytest.raises(InsufficientInputError, match="ship it again"):
        learn_day(spark, task(tmp_path / "target", tmp_path / "half"))


def test_a_compressed_file_that_was_cut_off_gives_its_lines_and_one_corrupt_one(spark: SparkSession, tmp_path: Path) -> None:
    log = SyntheticLog(tmp_path / "log", DATE)
    log.run({"orders": steady(40)}, range(2000), seed=1)
    (path,) = log.write()
    packed = gzip.compress(path.read_bytes())
    path.with_name(path.name + ".gz").write_bytes(packed[: len(packed) * 3 // 4])
    path.unlink()
    manifest = learn_day(spark, task(tmp_path / "log", tmp_path / "state"))
    assert manifest.corrupt == 1
    assert 2500 < manifest.rows < 3500


@pytest.mark.parametrize(("date", "hours"), [("2026-03-29", 23), ("2026-10-25", 25), ("2026-11-20", 24)])
def test_a_day_of_another_time_zone_has_its_own_hours(spark: SparkSession, tmp_path: Path, date: str, hours: int) -> None:
    """One message in each quarter of an hour of three days of UTC: the local day's are its own, and no line is a stray."""
    day = Day(date, "Europe/Berlin")
    for utc in (day.before(1).date, date):
        log = SyntheticLog(tmp_path / "log", utc, boot=utc)
        for second in range(0, 86_400, 900):
            log.usage(second, "orders")
        log.write()
    asked = task(tmp_path / "log", tmp_path / "state", day)
    manifest = learn_day(spark, asked)
    assert (manifest.rows, manifest.stray, manifest.observed_seconds) == (hours * 4, 0, hours * 4)
    assert manifest.observed_hours == [4] * hours
    assert topics(asked, manifest)["rocketmq", "orders", "messages"]["hours"] == [4] * hours


def test_a_zone_of_half_hours_leaves_the_other_days_lines_without_calling_them_faulty(spark: SparkSession, tmp_path: Path) -> None:
    day = Day(DATE, "Asia/Kolkata")  # begins at 18:30 UTC
    log = SyntheticLog(tmp_path / "log", "2026-11-19")
    for second in range(18 * 3600, 19 * 3600, 60):
        log.usage(second, "orders")
    log.raw(18 * 3600, json.dumps(usage_line("g1", "b1", 1000, day.end + 3600, "orders")))
    log.write()
    manifest = learn_day(spark, task(tmp_path / "log", tmp_path / "state", day))
    assert (manifest.rows, manifest.stray, manifest.observed_seconds, manifest.corrupt) == (31, 1, 30, 0)


def test_an_incident_that_is_excluded_teaches_nothing(spark: SparkSession, tmp_path: Path) -> None:
    log = SyntheticLog(tmp_path / "log", DATE)
    for second in range(600):
        log.usage(second, "orders", messages=1000 if 100 <= second < 200 else 10, bytes=100)
        log.usage(second, "audit", messages=5, bytes=100)
    log.write()
    incident = Exclusion.of(f"{DATE}T00:01:40Z/{DATE}T00:03:20Z:ord*")
    asked = task(tmp_path / "log", tmp_path / "state", exclusions=(incident,))
    manifest = learn_day(spark, asked)
    found = topics(asked, manifest)
    orders, audit = found["rocketmq", "orders", "messages"], found["rocketmq", "audit", "messages"]
    assert (orders["max"], orders["total"], orders["excluded_seconds"]) == (10, 5000, 100)
    assert (audit["total"], audit["excluded_seconds"]) == (3000, 0)
    assert manifest.exclusions == [incident.text]


def test_a_gateway_of_yesterday_that_is_absent_or_was_there_too_briefly_is_named(spark: SparkSession, tmp_path: Path) -> None:
    def write(date: str, seconds: dict[str, int]) -> None:
        for name, length in seconds.items():
            log = SyntheticLog(tmp_path / "log", date, name, f"b-{date}")
            for second in range(86_400 - length, 86_400):
                log.heartbeat(second)
            log.usage(86_399, "orders")
            log.write()

    write("2026-11-19", {"a": 1000, "b": 1000, "c": 1000})
    write(DATE, {"a": 1000, "b": 300})
    first = task(tmp_path / "log", tmp_path / "state", Day("2026-11-19"))
    first.state.publish(learn_day(spark, first))
    asked = task(tmp_path / "log", tmp_path / "state")
    with pytest.raises(InsufficientInputError, match=r"b \(300 seconds, 1000 expected\), c \(absent, 1000 expected\).*--allow-partial"):
        learn_day(spark, asked)
    assert not list((tmp_path / "state" / f"dt={DATE}").glob("data-*"))
    manifest = learn_day(spark, replace(asked, tolerance=Tolerance(allow_partial=True)))
    assert manifest.missing_gateways == ["b", "c"]
    write("2026-11-21", {"a": 1000})
    later = task(tmp_path / "log", tmp_path / "state", Day("2026-11-21"))
    with pytest.raises(InsufficientInputError, match=r"b \(absent, 1000 expected\), c \(absent, 1000 expected\)"):
        learn_day(spark, later)  # the day between was refused: there is no manifest of it
    asked.state.publish(manifest)
    assert learn_day(spark, replace(later, tolerance=Tolerance(allow_partial=True))).missing_gateways == ["b", "c"]


def test_a_log_that_is_too_damaged_is_refused_and_says_where_its_lines_are(spark: SparkSession, tmp_path: Path) -> None:
    log = SyntheticLog(tmp_path / "log", DATE)
    log.run({"orders": steady(5)}, range(100), seed=1)
    for _ in range(11):
        log.raw(50, "garbage")
    log.write()
    with pytest.raises(InsufficientInputError, match=rf"11 of 2[01]\d lines of {DATE} are corrupt.*{tmp_path}/state/corrupt"):
        learn_day(spark, task(tmp_path / "log", tmp_path / "state"))
    with pytest.raises(InsufficientInputError, match="no access log for 2026-11-21"):
        learn_day(spark, task(tmp_path / "log", tmp_path / "state", Day("2026-11-21")))


def test_a_run_that_is_counted_twice_in_full_counts_once(spark: SparkSession, tmp_path: Path) -> None:
    """A file that was shipped under two names: each line is there twice, and 70,000 numbers span three of Spark's bitmaps."""
    folder = tmp_path / "log" / f"dt={DATE}" / "hr=00"
    folder.mkdir(parents=True)
    start = Day(DATE).start
    text = "".join(json.dumps(usage_line("g", "b", seq, start + seq // 50, f"t{seq % 7}")) + "\n" for seq in range(70_000))
    (folder / "g-b-000000.jsonl").write_text(text)
    (folder / "g-b-000001.jsonl").write_text(text)
    asked = task(tmp_path / "log", tmp_path / "state")
    manifest = learn_day(spark, asked)
    assert (manifest.rows, manifest.duplicates, manifest.missing_lines) == (140_000, 70_000, 0)
    assert sum(row["total"] for key, row in topics(asked, manifest).items() if key[2] == "messages") == 70_000
