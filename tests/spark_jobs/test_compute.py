"""The whole night, from files to file: two nights in a row, then everything that can be odd about one."""

from __future__ import annotations

import hashlib
import json
import shutil
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from limiter.quota_snapshot import Quota, Snapshot, dump, load
from spark_jobs.commands import compute
from spark_jobs.state.state import DayStates
from spark_jobs.storage.local import LocalStorage
from spark_jobs.storage.location import Location
from support.access_logs import SyntheticLog, bursts, sparse, steady
from support.models import quota_oracle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DATES = ("2026-11-18", "2026-11-19", "2026-11-20")
TODAY = DATES[-1]
NOW = "2026-11-21T01:00:00Z"
TOPICS = {
    "orders": steady(100),
    "audit": bursts(5, 400, every=30),
    "rare": sparse(3, every=50),
    "%2F/orders/x": steady(30),
    "%RETRY%p1": steady(7),
    "TBW102": steady(7),
}


def day_of(folder: Path, date: str, *, seconds: int = 120, gateway: str = "g1") -> SyntheticLog:
    log = SyntheticLog(folder / "log", date, gateway)
    log.run(TOPICS, range(3540, 3540 + seconds), seed=int(date[-2:]), limit=300)
    return log


@pytest.fixture(scope="module")
def nights(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three nights computed, each with the snapshot before as the live one; the last day ends in a line torn by a crash."""
    folder = tmp_path_factory.mktemp("nights")
    previous = None
    for date in DATES:
        log = day_of(folder, date)
        if date == TODAY:
            log.write(".jsonl.open", torn='{"v":1,"ts":17635')
        else:
            log.write()
        assert night(folder, date, previous=previous) == 0
        previous = folder / f"quotas-{date}.json"
    return folder


def night(folder: Path, date: str = TODAY, **options: Any) -> int:
    chosen = {"min_active_days": 2, "corrupt_least": 10, **options}
    return compute(folder / "log", date, folder / "state", folder / f"quotas-{date}.json", now=NOW, **chosen)


def snapshot(folder: Path, date: str = TODAY) -> Snapshot:
    return load((folder / f"quotas-{date}.json").read_bytes())


@pytest.fixture
def copied(nights: Path, tmp_path: Path) -> Path:
    """The two nights again, to be spoilt."""
    return Path(shutil.copytree(nights, tmp_path / "nights"))


def test_the_snapshot_says_what_it_was_computed_from(nights: Path) -> None:
    found = snapshot(nights)
    files = sorted((nights / "log").glob(f"dt={TODAY}/hr=*/*"))
    assert [(entry["path"], entry["sha256"]) for entry in found.inputs] == [
        (file.relative_to(nights / "log").as_posix(), hashlib.sha256(file.read_bytes()).hexdigest()) for file in files
    ]
    assert [(entry["rows"], entry["corrupt"]) for entry in found.inputs] == [
        (len(files[0].read_text().splitlines()), 0),
        (len(files[1].read_text().splitlines()), 1),
    ]
    assert found.computed_at == NOW
    assert found.parameters["target_refused_ppm"] == 1000
    assert found.date == TODAY
    assert dump(found) == (nights / f"quotas-{TODAY}.json").read_bytes(), "canonical"


def test_every_topic_of_users_has_a_quota_and_no_other(nights: Path) -> None:
    assert [(quota.protocol, quota.topic) for quota in snapshot(nights).quotas] == [
        ("amqp", "%2F/orders/x"), ("rocketmq", "audit"), ("rocketmq", "orders"), ("rocketmq", "rare"),
    ]  # fmt: skip


def test_no_topic_has_a_quota_before_it_is_known(nights: Path) -> None:
    assert snapshot(nights, DATES[0]).quotas == ()
    learning: Any = snapshot(nights, DATES[0]).night["learning"]
    assert [each["topic"] for each in learning] == ["%2F/orders/x", "audit", "orders", "rare"]
    assert len(snapshot(nights, DATES[1]).quotas) == 4


def test_the_evidence_of_the_night_before_comes_from_the_day_that_followed(nights: Path) -> None:
    """Replayed by hand: the bucket that was published after the second day, on the third."""
    lines = [json.loads(text) for _, text in day_of(nights, TODAY).texts]
    numbers, usage = quota_oracle.ticks(lines), quota_oracle.usage(lines)
    before = {quota.topic: quota for quota in snapshot(nights, DATES[1]).quotas}
    for quota in snapshot(nights).quotas:
        series = {numbers[second]: amount for second, amount in usage[(quota.protocol, quota.topic, "messages")].items()}
        pair = before[quota.topic].messages
        assert pair is not None
        refused = quota_oracle.refused(series, Fraction(pair[0]), pair[1])
        seven: Any = quota.evidence["nights7"]
        assert (seven["nights"], seven["offered"]) == (1, sum(series.values()))
        assert seven["refused"] == pytest.approx(float(refused), abs=0.02 * sum(series.values()))
        assert quota.evidence["would_refuse"] == pytest.approx(seven["refused"] / seven["offered"], abs=1e-6)


def test_refused_messages_are_demand(nights: Path) -> None:
    """The gateway let 300 of audit's 400 through, in four seconds of 120: short of quota, not in a storm."""
    (audit,) = [quota for quota in snapshot(nights).quotas if quota.topic == "audit"]
    assert audit.evidence["max"] == 400


def test_corrupt_lines_are_kept_aside_with_their_file_and_fault(nights: Path) -> None:
    rows = [
        json.loads(line) for path in (nights / "state" / "corrupt" / f"dt={TODAY}").glob("*.json") for line in path.read_text().splitlines()
    ]
    assert [(row["line"], row["fault"], Path(row["file"]).name) for row in rows] == [
        ('{"v":1,"ts":17635', "json", "g1-b1-000001.jsonl.open")
    ]
    manifest = DayStates(Location.of("state", nights / "state"), LocalStorage()).read_manifest(TODAY)
    assert manifest is not None
    assert (manifest.corrupt, manifest.observed_seconds, manifest.missing_lines) == (1, 120, 0)
    assert set(manifest.fleet) == {"messages", "bytes"}


def test_a_rerun_on_other_partitions_without_the_earlier_logs_gives_the_same_bytes(spark: SparkSession, copied: Path) -> None:
    for date in DATES[:-1]:
        shutil.rmtree(copied / "log" / f"dt={date}")
    before = (copied / f"quotas-{TODAY}.json").read_bytes()
    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "5")
    try:
        assert night(copied, previous=copied / f"quotas-{DATES[1]}.json") == 0
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
    assert (copied / f"quotas-{TODAY}.json").read_bytes() == before
    assert len(list((copied / "state" / f"dt={TODAY}").glob("data-*"))) == 1


def test_a_night_that_takes_its_own_quotas_for_the_live_ones_does_not_move_twice(spark: SparkSession, copied: Path) -> None:
    """findings.md 1, 3: after the publication what is live is this night's own snapshot. Computed again it is the same."""
    before = snapshot(copied)
    assert night(copied, previous=copied / f"quotas-{TODAY}.json") == 0
    assert snapshot(copied).quotas == before.quotas


def test_a_day_of_heartbeats_replaces_what_the_day_held_before(spark: SparkSession, copied: Path) -> None:
    """Spark's dynamic overwrite would leave the stale rows: the day would be counted though nothing happened on it."""
    shutil.rmtree(copied / "log" / f"dt={TODAY}")
    idle = SyntheticLog(copied / "log", TODAY)
    for second in range(100):
        idle.heartbeat(second)
    idle.write()
    assert night(copied) == 0
    found = snapshot(copied)
    assert len(found.quotas) == 4
    assert {quota.evidence["days"] for quota in found.quotas} == {2}
    assert {quota.evidence["would_refuse"] for quota in found.quotas} == {None}
    assert not (copied / "state" / "corrupt" / f"dt={TODAY}").exists()


def test_the_previous_snapshot_bounds_the_step_and_its_unseen_topics_stay(spark: SparkSession, copied: Path) -> None:
    gone = Quota("rocketmq", "gone", (7.5, 9), None, {"days": 3, "reason": "old"})
    before = Snapshot(NOW, "0.1.0", quotas=(gone, Quota("rocketmq", "orders", (20, 20), (10**9, 10**9), {})))
    previous = copied / "previous.json"
    previous.write_bytes(dump(before))
    assert night(copied, previous=previous) == 0
    quotas = {quota.topic: quota for quota in snapshot(copied).quotas}
    assert quotas["gone"].messages == (7.5, 9)
    assert str(quotas["gone"].evidence["reason"]).startswith("kept: not seen for 60 days")
    assert quotas["orders"].messages is not None
    assert quotas["orders"].bytes is not None
    assert (quotas["orders"].messages[0], quotas["orders"].bytes[0]) == (40, 800_000_000)
    assert str(quotas["orders"].evidence["reason"]).endswith("= 205/s; one night may move it no further than to 40/s")
    assert "; one night may move it no further than to 763 MiB/s" in str(quotas["orders"].evidence["reason_bytes"])


def test_pins_and_exclusions_come_through(spark: SparkSession, copied: Path) -> None:
    pins = copied / "pins.yaml"
    pins.write_text("pins: [{protocol: rocketmq, topic: orders, messages: 12/min, burst: 5, reason: contract}]\n")
    incident = "2026-11-19T00:00:00Z/2026-11-19T12:00:00Z:audit"
    assert night(copied, pins=pins, exclude=[incident]) == 0
    found = snapshot(copied)
    quotas = {quota.topic: quota for quota in found.quotas}
    assert quotas["orders"].messages == (0.2, 5)
    assert quotas["audit"].evidence["days"] == 2
    assert found.night["excluded"] == [incident]


def refused(folder: Path, capsys: pytest.CaptureFixture[str], date: str, code: int, complaint: str, **options: object) -> None:
    """The run ends with `code` and `complaint` and leaves state and output as they were."""
    state = sorted((path, path.stat().st_mtime_ns) for path in (folder / "state").glob("dt=*/**/*"))
    outputs = {path: path.read_bytes() for path in folder.glob("*.json")}
    assert night(folder, date, **options) == code
    assert complaint in capsys.readouterr().err
    assert sorted((path, path.stat().st_mtime_ns) for path in (folder / "state").glob("dt=*/**/*")) == state
    assert {path: path.read_bytes() for path in folder.glob("*.json")} == outputs


def test_a_day_without_a_log_is_insufficient_input(spark: SparkSession, copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused(copied, capsys, "2026-11-21", 5, "no access log for 2026-11-21")


def test_too_many_corrupt_lines_are_insufficient_input(spark: SparkSession, copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spoilt = day_of(copied, TODAY)
    for _ in range(11):
        spoilt.raw(3600, "garbage")
    spoilt.write(".jsonl.open")
    refused(copied, capsys, TODAY, 5, "lines of 2026-11-20 are corrupt, more than 1000 in a million")


def test_a_log_of_another_day_only_is_insufficient_input(spark: SparkSession, copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (copied / "log" / f"dt={TODAY}").rename(copied / "log" / "dt=2026-11-22")
    refused(copied, capsys, "2026-11-22", 5, "no good line of 2026-11-22", corrupt_least=100)


def test_half_as_many_lines_as_a_week_ago_are_insufficient_input(
    spark: SparkSession, copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    day_of(copied, "2026-11-26", seconds=50).write()
    refused(copied, capsys, "2026-11-26", 5, "a week before: less than 50 %")


@pytest.mark.parametrize(
    ("date", "options", "code", "complaint"),
    [
        ("20261120", {}, 2, "--date: '20261120' is not a day"),
        (TODAY, {"margin": 3}, 1, "margin: no such parameter"),
        (TODAY, {"previous": "nowhere.json"}, 1, "nowhere.json"),
        (TODAY, {"pins": "nowhere.yaml"}, 1, "nowhere.yaml"),
        (TODAY, {"exclude": ["yesterday"]}, 2, "--exclude: 'yesterday' is not FROM/TO:TOPIC"),
        (TODAY, {"time_zone": "Mars"}, 1, "time_zone: 'Mars' is unknown"),
    ],
)
def test_a_mistake_in_the_options_is_a_failure(
    nights: Path, capsys: pytest.CaptureFixture[str], date: str, options: dict[str, object], code: int, complaint: str
) -> None:
    refused(nights, capsys, date, code, complaint, **options)
