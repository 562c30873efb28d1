"""A backtest of days of a log, from the folders on disk to its totals; and the bad input it meets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from limiter.limits import Limit, Rate
from limiter.quota_snapshot import Quota, Snapshot, dump
from limiter.rules.match import Match
from limiter.rules.rule import Rule
from spark_jobs.backtest.commands import backtest, estimate_largest_day
from spark_jobs.backtest.nights import read_published
from spark_jobs.backtest.run import Task
from spark_jobs.days import Day
from spark_jobs.errors import InsufficientInputError
from spark_jobs.state.manifest import Manifest
from spark_jobs.state.state import DayStates
from spark_jobs.state.topic_day import TopicSeconds, make_topic_rows
from spark_jobs.storage.local import LocalStorage
from spark_jobs.storage.location import Location
from support.access_logs import SyntheticLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATES = ("2026-11-19", "2026-11-20")
SECONDS = 300
FLOOD = range(100, 130)  # seconds of the second day, of orders


def asked(date: str, topic: str, second: int) -> int:
    if date == DATES[1] and topic == "orders" and second in FLOOD:
        return 2000
    return {"orders": 20, "audit": 5 if second % 10 == 0 else 0}[topic]


def write_log(folder: Path, date: str, *, twice: bool = False) -> None:
    log = SyntheticLog(folder, date)
    for second in range(SECONDS):
        for topic in ("orders", "audit"):
            n = asked(date, topic, second)
            if n:
                log.usage(second, topic, messages=n, bytes=100 * n, max_100ms_messages=n // 2, client="10.0.0.9" if n > 100 else "10.0.0.7")
        log.heartbeat(second)
    if twice:
        log.texts += log.texts[:500]
    log.write()


def write_state(folder: Path, date: str) -> None:
    day = Day(date)
    batch = []
    for topic in ("orders", "audit"):
        amounts = np.array([asked(date, topic, second) for second in range(SECONDS)])
        seconds = np.flatnonzero(amounts)
        passed, none = amounts[seconds], np.zeros(len(seconds), np.int64)
        batch.append(
            TopicSeconds(
                "rocketmq", topic, second=seconds + day.start, tick=seconds, passed=passed, refused=none, delayed=none, dropped=none,
                passed_bytes=100 * passed, refused_bytes=none, peak_100ms=passed // 2, largest=none + 100, gateways=(),
            )
        )  # fmt: skip
    state = DayStates(Location.of("state", folder), LocalStorage())
    data = folder / f"dt={date}" / "data-1" / "topics"
    data.mkdir(parents=True)
    pq.write_table(make_topic_rows(batch, day, SECONDS), data / "part-0.parquet")
    facts: dict[str, Any] = dict.fromkeys(("rows", "corrupt", "stray", "duplicates", "missing_lines"), 0)
    state.publish(Manifest(date, "data-1", "test", "f", **facts, observed_seconds=SECONDS, start=day.start, end=day.end))


def snapshot(rate: float, hourly: float | None = None) -> Snapshot:
    quota = Quota("rocketmq", "orders", (rate, int(10 * rate)), hourly_messages=hourly)
    return Snapshot("2026-11-19T01:00:00Z", "test", quotas=(quota,))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    log, state = tmp_path_factory.mktemp("log"), tmp_path_factory.mktemp("state")
    for date in DATES:
        write_log(log, date, twice=date == DATES[0])
        write_state(state, date)
    night = state / "nights" / "dt=2026-11-18"
    night.mkdir(parents=True)
    (night / "quotas.json").write_bytes(dump(snapshot(30)))
    return log, state


@pytest.mark.spark
def test_what_was_published_competes_with_yesterday_the_oracle_and_the_candidate(
    spark: SparkSession, folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    log, state = map(str, folders)
    rules = (Rule("audit", Match(topic="aud*"), limit=Limit(Rate(1, 10**10)), action="delay"),)
    code, found = backtest(*DATES, log, state, candidates={"mine": snapshot(1000)}, rules=rules)
    assert code == 0, capsys.readouterr().err
    assert found is not None
    assert list(found.totals) == ["published", "oracle", "limits", "mine", "yesterday_max"]
    totals = found.totals
    offered = sum(asked(date, topic, second) for date in DATES for topic in ("orders", "audit") for second in range(SECONDS))
    assert totals["published"].offered == offered  # lines that came twice count once
    assert totals["published"].days == 2
    assert totals["yesterday_max"].days == 1
    assert any("yesterday_max: 1 of 2 days" in note for note in found.notes)
    flood = next(each for each in found.topics if each.contender == "published" and each.topic == "orders")
    assert flood.clients["10.0.0.9"] > 0.99 * flood.refused  # the rest: the breaker is open for a second after the flood
    assert flood.limited_seconds is not None
    assert len(FLOOD) <= flood.limited_seconds <= len(FLOOD) + 2
    assert totals["limits"].held == totals["limits"].refused == totals["mine"].held > 100  # of audit, which has no quota
    assert totals["published"].refused > totals["mine"].refused > totals["limits"].refused + 15_000
    assert totals["mine"].reserved == 2 * SECONDS * (1000 + 0.1)
    assert found.lines == 2 * (SECONDS + SECONDS // 10)
    one, alone = backtest(DATES[1], DATES[1], log, state)
    assert one == 0
    assert alone is not None
    assert list(alone.totals) == ["published", "yesterday_max", "oracle"]
    assert alone.totals["oracle"].refused_share is not None
    assert alone.totals["oracle"].refused_share < alone.totals["yesterday_max"].refused_share  # type: ignore[operator]

    code, quick = backtest(DATES[1], DATES[1], None, state, quick=True)
    assert code == 0
    assert quick is not None
    for name, total in quick.totals.items():
        assert total.offered == alone.totals[name].offered
        assert abs(total.refused - alone.totals[name].refused) <= 0.1 * total.offered, name
        assert total.blackout is None


@pytest.mark.spark
def test_days_that_are_missing_are_left_out_and_named(
    spark: SparkSession, folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    log, state = map(str, folders)
    code, found = backtest("2026-11-20", "2026-11-21", log, candidates={"mine": snapshot(30, hourly=2.0)}, raised=100.0)
    assert code == 0
    assert found is not None
    assert found.days == ["2026-11-20"]
    assert 0 < found.totals["mine+raise"].refused < 0.95 * found.totals["mine"].refused, "it grows threefold every ten seconds"
    assert any(note.startswith("2026-11-21 is left out: no access log") for note in found.notes)
    assert backtest("2026-12-01", "2026-12-01", log, candidates={"mine": snapshot(30)}) == (5, None)
    assert backtest("2026-12-01", "2026-12-01", None, state, quick=True) == (5, None)
    assert "no state of 2026-12-01" in capsys.readouterr().err
    code, nothing = backtest("2026-11-20", "2026-11-20", None, state, quick=True, time_zone="Europe/Berlin")
    assert (code, nothing) == (5, None)
    assert "add --time-zone UTC" in capsys.readouterr().err


def test_published_is_the_last_night_that_was_not_only_begun(tmp_path: Path) -> None:
    state = DayStates(Location.of("state", tmp_path), LocalStorage())
    assert read_published(state, "2026-11-20") is None
    for rate, date, files in ((1, "2026-11-16", ()), (2, "2026-11-17", ("begun.json", "applied.json")), (3, "2026-11-18", ("begun.json",))):
        folder = tmp_path / "nights" / f"dt={date}"
        folder.mkdir(parents=True)
        (folder / "quotas.json").write_bytes(dump(snapshot(rate)))
        for name in files:
            (folder / name).write_text("{}")
    (tmp_path / "nights" / "dt=2026-11-19").mkdir()
    assert read_published(state, "2026-11-20") == snapshot(2)
    assert read_published(state, "2026-11-17") == snapshot(1)
    assert read_published(state, "2026-11-16") is None
    (tmp_path / "nights" / "dt=2026-11-19" / "quotas.json").write_text("no snapshot")
    with pytest.raises(InsufficientInputError, match="compute the night again"):
        read_published(state, "2026-11-20")


def test_the_heap_follows_the_largest_day(folders: tuple[Path, Path]) -> None:
    log, _ = folders
    size = {date: sum(path.stat().st_size for path in log.glob(f"dt={date}/*/*")) for date in DATES}
    days = [Day(date) for date in DATES]
    task = Task(days[0], days[1], Location.of("log", log), None, {"mine": snapshot(1)})
    assert estimate_largest_day(task) == max(size.values())
    assert estimate_largest_day(Task(days[1], days[1], Location.of("log", log), None, {"mine": snapshot(1)})) == size[DATES[1]]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"first": "2026-11-20", "last": "2026-11-19", "log": "l", "state": "s"}, "--to: 2026-11-19 is before --from 2026-11-20"),
        ({"first": "yesterday", "last": "2026-11-19", "log": "l", "state": "s"}, "'yesterday' is not a day like"),
        ({"first": "2026-11-20", "last": "2026-11-20", "log": "l"}, "nothing to try"),
        ({"first": "2026-11-20", "last": "2026-11-20", "state": "s"}, "give --log, or --quick with --state"),
        ({"first": "2026-11-20", "last": "2026-11-20", "log": "l", "quick": True}, "--quick answers from the daily states; give --state"),
        ({"first": "2026-11-20", "last": "2026-11-20", "state": "s", "quick": True, "raised": 4}, "--quick knows one rate a day"),
        ({"first": "2026-11-20", "last": "2026-11-20", "log": "ftp://x/l", "state": "s"}, "unknown scheme ftp"),
        ({"first": "2026-11-20", "last": "2026-11-20", "log": "l", "state": "s", "time_zone": "Mars"}, "time_zone: 'Mars' is unknown"),
        ({"first": "2026-11-20", "last": "2026-11-20", "log": "l", "state": "s", "driver_memory": "lots"}, "lots"),
        ({"first": "2026-11-20", "last": "2026-11-20", "log": "l", "state": "s", "conf": ["spark.x"]}, "spark.x"),
    ],
    ids=lambda value: "" if isinstance(value, dict) else str(value)[:24],
)
def test_bad_options_end_with_2_before_spark_starts(given: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert backtest(**given) == (2, None)
    assert said in capsys.readouterr().err
