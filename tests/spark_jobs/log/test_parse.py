"""Reading lines: what is good, what is corrupt and why."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.days import Day
from spark_jobs.log.parse import find_corrupt_lines, parse
from support.access_logs import heartbeat_line, usage_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

DAY = Day("2026-11-20")
GOOD = usage_line("g", "b", 1, DAY.start + 5, "orders", messages=7, refused_messages=2)


def lines(spark: SparkSession, *texts: str) -> DataFrame:
    return spark.createDataFrame([("file", text) for text in texts], "file string, line string")


def text(**changes: Any) -> str:
    """A good line with fields changed; a field set to ... is left out."""
    return json.dumps({name: value for name, value in (GOOD | changes).items() if value is not ...})


FAULTS: list[tuple[str, str | None]] = [
    (text(), None),
    (json.dumps(heartbeat_line("g", "b", 2, DAY.start)), None),
    (text(extra={"from": "a later version"}), None),
    (text(client=7, revision="unknown to quotas"), None),
    (text(refused_messages=..., max_100ms_messages=None), None),
    (text(ts=DAY.end - 1), None),
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
    (text(delayed_messages=-1), "range"),
    (text(bytes=10**12 + 1), "range"),
    (text(seq=-1), "range"),
    (text(ts=DAY.end), "stray"),
    (text(ts=DAY.start - 1), "stray"),
]


def test_every_fault_of_a_line_has_its_name(spark: SparkSession) -> None:
    faults = [row.fault for row in parse(lines(spark, *[line for line, _ in FAULTS]), DAY).select("fault").collect()]
    assert faults == [fault for _, fault in FAULTS]


def test_corrupt_lines_keep_their_text_and_the_others_do_not(spark: SparkSession) -> None:
    given = lines(spark, *[line for line, _ in FAULTS])
    assert [(row.line, row.fault) for row in find_corrupt_lines(given, DAY).collect()] == [
        (line, fault) for line, fault in FAULTS if fault not in (None, "stray")
    ]
    assert "line" not in parse(given, DAY).columns


def test_a_good_line_keeps_what_quotas_need_and_absent_counts_are_nothing(spark: SparkSession) -> None:
    (row,) = parse(lines(spark, text(dropped_messages=...)), DAY).collect()
    kept = set(row.asDict()) - {"file", "fault"}
    assert {name: row[name] for name in kept} == {name: (GOOD | {"dropped_messages": 0})[name] for name in kept}


@pytest.mark.parametrize("changes", [{"operation": "consume"}, {"heartbeat": True}])
def test_lines_without_demand_have_no_topic(spark: SparkSession, changes: dict[str, Any]) -> None:
    (row,) = parse(lines(spark, text(**changes)), DAY).collect()
    assert (row.fault, row.topic) == (None, None)


def test_a_line_of_the_next_day_in_a_shared_hour_is_another_days(spark: SparkSession) -> None:
    day = Day("2026-11-20", "Asia/Kolkata")  # from 18:30 to 18:30 UTC
    texts = [text(ts=ts) for ts in (day.start - 1801, day.start - 1, day.start, day.end - 1, day.end, day.end + 1800)]
    faults = [row.fault for row in parse(lines(spark, *texts), day).collect()]
    assert faults == ["stray", "another day", None, None, "another day", "stray"]
