"""Input that is torn, foreign, twice there, shifted, half shipped or of another version; options that make no sense.

Each is a line with the way out and an exit code of its own, and nothing is changed but the corrupt lines that are kept aside.
"""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from limiter.quota_snapshot import load
from spark_jobs.commands import FAILED, INSUFFICIENT, OK, USAGE, compute
from support.access_logs import SyntheticLog, steady

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DATES = ("2026-11-19", "2026-11-20")
TODAY = DATES[-1]
NOW = "2026-11-21T01:00:00Z"
HOUR = f"log/dt={TODAY}/hr=00"
CLOSED = f"{HOUR}/g1-b1-000000.jsonl"
SECONDS = 60


@pytest.fixture(scope="module")
def nights(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A night that was computed, and the log of the next day."""
    folder = tmp_path_factory.mktemp("nights")
    for date in DATES:
        log = SyntheticLog(folder / "log", date)
        log.run({"orders": steady(20), "audit": steady(5)}, range(SECONDS), seed=1)
        log.write()
    assert night(folder, DATES[0]) == OK
    return folder


def night(folder: Path, date: str = TODAY, **options: Any) -> int:
    places = {name: str(options.pop(name, folder / name)) for name in ("log", "state", "output")}
    return compute(places["log"], date, places["state"], places["output"], now=NOW, **{"min_active_days": "1", **options})


@pytest.fixture
def copied(nights: Path, tmp_path: Path) -> Path:
    """The two days again, to be spoilt."""
    return Path(shutil.copytree(nights, tmp_path / "nights"))


def content(folder: Path) -> dict[str, bytes]:
    """All that a night may change, but for corrupt lines kept aside."""
    kept = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {name: data for name, data in kept.items() if not name.startswith(("log/", "state/corrupt/"))}


def torn(folder: Path) -> None:
    lines = (folder / CLOSED).read_text().splitlines()
    (folder / CLOSED).write_text("".join(f"{line[: len(line) // 2]}\n" for line in lines))


def foreign(folder: Path) -> None:
    (folder / CLOSED).write_text("".join(json.dumps({"level": "info", "message": f"hello {at}"}) + "\n" for at in range(100)))


def binary(folder: Path) -> None:
    (folder / CLOSED).write_bytes(bytes(range(256)) * 100)


def not_gzip(folder: Path) -> None:
    (folder / CLOSED).rename(folder / f"{CLOSED}.gz")


def cut_gzip(folder: Path) -> None:
    data = (folder / CLOSED).read_bytes()
    (folder / CLOSED).unlink()
    (folder / f"{CLOSED}.gz").write_bytes(gzip.compress(data)[:200])


def not_parquet(folder: Path) -> None:
    (folder / CLOSED).rename((folder / CLOSED).with_suffix(".parquet"))


def shifted(folder: Path) -> None:
    """Another day's lines in this day's folders: a clock that was a day off, or a folder that was renamed."""
    shutil.rmtree(folder / f"log/dt={TODAY}")
    shutil.copytree(folder / f"log/dt={DATES[0]}", folder / f"log/dt={TODAY}")


def half_shipped(folder: Path) -> None:
    manifest = folder / "log" / "manifest" / "g1" / f"dt={TODAY}" / "hr=00.json"
    manifest.parent.mkdir(parents=True)
    file = {"name": CLOSED.removeprefix("log/"), "size": 10**6, "sha256": "0" * 64}
    manifest.write_text(json.dumps({"v": 1, "gateway": "g1", "hour": f"{TODAY}T00", "files": [file]}))


def empty(folder: Path) -> None:
    shutil.rmtree(folder / f"log/dt={TODAY}")


def old_state(folder: Path) -> None:
    manifest = folder / "state" / f"dt={DATES[0]}" / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"format": 1}))


def damaged_state(folder: Path) -> None:
    (folder / "state" / f"dt={DATES[0]}" / "manifest.json").write_text("{")


def state_without_data(folder: Path) -> None:
    for path in (folder / "state" / f"dt={DATES[0]}").glob("data-*"):
        shutil.rmtree(path)


@pytest.mark.parametrize(
    ("spoil", "code", "said"),
    [
        (torn, INSUFFICIENT, "are corrupt, more than 1000 in a million; they are in "),
        (foreign, INSUFFICIENT, "are corrupt, more than 1000 in a million; they are in "),
        (binary, INSUFFICIENT, "corrupt"),
        (not_gzip, INSUFFICIENT, "no good line"),
        (cut_gzip, INSUFFICIENT, "no good line"),
        (not_parquet, FAILED, "g1-b1-000000.parquet"),
        (shifted, INSUFFICIENT, "of another day"),
        (half_shipped, INSUFFICIENT, "its manifest says 1000000; ship it again"),
        (empty, INSUFFICIENT, f"no access log for {TODAY}"),
        (old_state, INSUFFICIENT, "manifest.json: format 1, this program reads 2; compute the day again"),
        (damaged_state, INSUFFICIENT, "compute the day again or remove its folder"),
        (state_without_data, INSUFFICIENT, "its day's manifest names it and it is gone; compute the day again"),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_bad_input_is_a_line_with_the_way_out_and_changes_nothing(
    spark: SparkSession, copied: Path, capfd: pytest.CaptureFixture[str], spoil: Callable[[Path], None], code: int, said: str
) -> None:
    spoil(copied)
    before = content(copied)
    assert night(copied) == code
    (told,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith("sluice: ")]
    assert said in told
    after = {name: data for name, data in content(copied).items() if f"state/dt={TODAY}/data-" not in name}
    assert after == before, "what is staged is no part of the state"


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ({"log": "ftp://host/log"}, USAGE, "--log: ftp://host/log: unknown scheme ftp"),
        ({"state": "s3://bucket/state"}, USAGE, "--state: s3://bucket/state: unknown scheme s3; write s3a://"),
        ({"output": "s3a:/bucket/q.json"}, USAGE, "--output: s3a:/bucket/q.json: one / is missing"),
        ({"previous": "nfs://x/q.json"}, USAGE, "--previous: nfs://x/q.json: unknown scheme nfs"),
        ({"previous": "/nowhere/q.json"}, FAILED, "/nowhere/q.json"),
        ({"remember_days": "0"}, FAILED, "remember_days"),
        ({"remember_days": "many"}, FAILED, "remember_days"),
        ({"no_such_parameter": "1"}, FAILED, "no_such_parameter"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_before_a_jvm_starts(
    nights: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], options: dict[str, str], code: int, said: str
) -> None:
    def started(*_: object, **__: object) -> None:
        raise AssertionError("a JVM was started")

    monkeypatch.setattr("spark_jobs.commands.spark_session", started)
    before = content(nights)
    assert night(nights, **options) == code
    (told,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith("sluice: ")]
    assert said in told
    assert content(nights) == before


def test_a_log_that_is_there_twice_counts_once(spark: SparkSession, copied: Path) -> None:
    assert night(copied, output=copied / "once.json", state=copied / "state-1") == OK
    shutil.copy(copied / CLOSED, copied / f"{HOUR}/copy.jsonl")
    with gzip.open(copied / f"{HOUR}/again.jsonl.gz", "wb") as file:
        file.write((copied / CLOSED).read_bytes())
    assert night(copied, output=copied / "thrice.json", state=copied / "state-2") == OK
    once, thrice = (load((copied / name).read_bytes()) for name in ("once.json", "thrice.json"))
    assert [quota.topic for quota in once.quotas] == ["audit", "orders"]
    assert once.quotas == thrice.quotas
