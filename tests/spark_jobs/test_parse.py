"""Reading lines: what is good, what is corrupt and why, what came twice, what never came."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.access_log import parse, read_lines
from spark_jobs.log.files import files_of
from spark_jobs.sequence import gaps, once
from spark_jobs.storage.local import LocalStorage
from spark_jobs.storage.location import Location
from support.access_logs import day_start, heartbeat_line, usage_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

DATE = "2026-11-20"
START = day_start(DATE)
GOOD = usage_line("g", "b", 1, START + 5, "orders", messages=7, refused_messages=2)


def lines(spark: SparkSession, *texts: str) -> DataFrame:
    return spark.createDataFrame([("file", text) for text in texts], "file string, line string")


def text(**changes: Any) -> str:
    """A good line with fields changed; a field set to ... is left out."""
    return json.dumps({name: value for name, value in (GOOD | changes).items() if value is not ...})


FAULTS: list[tuple[str, str | None]] = [
    (text(), None),
    (json.dumps(heartbeat_line("g", "b", 2, START)), None),
    (text(extra={"from": "a later version"}), None),
    (text(refused_messages=..., max_100ms_messages=None), None),
    (text(ts=START + 86_399), None),
    (text()[:-20], "json"),
    ("{}garbage", "json"),
    ("not JSON", "json"),
    (text()[:-9] + text(), "json"),
    (text() + text(seq=2), "json"),
    (text(messages="many"), "json"),
    (text(messages=2**63), "json"),
    (text(messages=1.5), "json"),
    ("[]", "json"),
    ("{}", "fields"),
    (text(v=2), "version"),
    (text(v=...), "fields"),
    (text(seq=None), "fields"),
    (text(topic=...), "fields"),
    (text(bytes=None), "fields"),
    (text(messages=-1), "range"),
    (text(refused_bytes=-1), "range"),
    (text(bytes=10**12 + 1), "range"),
    (text(ts=START + 86_400), "stray"),
    (text(ts=START - 1), "stray"),
]


def test_every_fault_of_a_line_has_its_name(spark: SparkSession) -> None:
    rows = parse(lines(spark, *[line for line, _ in FAULTS]), DATE).select("line", "fault").collect()
    assert [(row.line, row.fault) for row in rows] == FAULTS


def test_a_good_line_keeps_its_fields(spark: SparkSession) -> None:
    (row,) = parse(lines(spark, text()), DATE).collect()
    assert {name: row[name] for name in GOOD} == GOOD


def test_lines_are_read_from_odd_folders_with_the_file_they_stand_in_and_without_blank_ones(spark: SparkSession, tmp_path: Path) -> None:
    log = tmp_path / "a b%20[x]{y},z"
    for hour, content in (("00", "one\n\n  \ntwo\rstill two\n"), ("01", "three")):
        folder = log / f"dt={DATE}" / f"hr={hour}"
        folder.mkdir(parents=True)
        (folder / "g-b-000000.jsonl").write_text(content)
    root = Location.of("log", log)
    rows = read_lines(spark, files_of(root, [(DATE, "00"), (DATE, "01")], LocalStorage())).collect()
    assert sorted((root.relative(row.file), row.line) for row in rows) == [
        (f"dt={DATE}/hr=00/g-b-000000.jsonl", "one"),
        (f"dt={DATE}/hr=00/g-b-000000.jsonl", "two\rstill two"),
        (f"dt={DATE}/hr=01/g-b-000000.jsonl", "three"),
    ]


def test_a_line_that_came_twice_counts_once_and_numbers_that_never_came_are_missing(spark: SparkSession) -> None:
    texts = [text(seq=10), text(seq=10), text(seq=14), text(seq=10, messages=8), text(boot="c", seq=3), text(gateway="h", seq=1)]
    kept = once(parse(lines(spark, *texts), DATE))
    assert sorted((row.gateway, row.boot, row.seq, row.messages, row.copies) for row in kept.collect()) == [
        ("g", "b", 10, 7, 3), ("g", "b", 14, 7, 1), ("g", "c", 3, 7, 1), ("h", "b", 1, 7, 1),
    ]  # fmt: skip
    assert sorted((row.gateway, row.boot, row.lines, row.duplicates, row.missing) for row in gaps(kept).collect()) == [
        ("g", "b", 2, 2, 3), ("g", "c", 1, 0, 0), ("h", "b", 1, 0, 0),
    ]  # fmt: skip
