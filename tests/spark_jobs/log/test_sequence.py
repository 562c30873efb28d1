"""Duplicates and gaps are exact, across the bounds of Spark's bitmaps."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gateway.counting.access_log import MAX_QUEUED_UNKNOWN, AccessLog, Rolling
from limiter.keys import Key, Origin, Tally
from limiter.rules.sender import Sender
from limiter.topics import rocketmq_topic
from spark_jobs.days import Day
from spark_jobs.log.parse import parse
from spark_jobs.log.sequence import BITS, Stretch, count, drop_duplicates
from spark_jobs.schemas import COUNTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

DAY = Day("2026-11-20")


def rows(spark: SparkSession, numbers: list[tuple[str, str, int, int]]) -> DataFrame:
    """(gateway, boot, seq, messages), all in the day's first seconds."""
    columns = "file string, fault string, gateway string, boot string, seq long, ts long, protocol string, topic string"
    counts = ", ".join(f"{name} long" for name in COUNTS)
    data = [
        ("file", None, gateway, boot, seq, DAY.start + seq % 50, "rocketmq", "orders", messages, *[0] * (len(COUNTS) - 1))
        for gateway, boot, seq, messages in numbers
    ]
    return spark.createDataFrame(data, f"{columns}, {counts}")


@pytest.mark.parametrize("many", [False, True], ids=["on the driver", "on the workers"])
def test_counts_are_those_of_a_set_of_numbers(spark: SparkSession, many: bool) -> None:
    chance = random.Random(5)
    runs = {("g", "b"): 0, ("g", "c"): BITS - 5, ("h", "b"): 3 * BITS + 1}
    numbers = [(*run, seq + offset, 1) for run, offset in runs.items() for seq in chance.choices(range(400), k=500)]
    numbers += [("g", "c", 5 * BITS, 1), ("g", "c", BITS, 1), ("g", "c", BITS + 1, 1)]
    found = count(rows(spark, numbers), DAY, many=many)
    kept = {each[:3] for each in numbers}
    spans = [[seq for gateway, boot, seq in kept if (gateway, boot) == run] for run in runs]
    assert found.duplicates == len(numbers) - len(kept)
    assert found.missing == sum(max(span) - min(span) + 1 - len(span) for span in spans)
    assert {name: (each.lines, each.boots, int(each.seconds.sum())) for name, each in found.gateways.items()} == {
        "g": (1003, 2, 50), "h": (500, 1, 50),
    }  # fmt: skip
    assert len(found.repeated) == 5, "0 is alone in the first bitmap, and the others span two each"


@pytest.mark.parametrize("many", [False, True], ids=["on the driver", "on the workers"])
def test_of_lines_under_one_number_the_smallest_stays_and_other_stretches_are_left_alone(spark: SparkSession, many: bool) -> None:
    numbers = [("g", "b", 10, 8), ("g", "b", 10, 7), ("g", "b", 10, 7), ("g", "b", 14, 1), ("g", "c", 10, 3), ("h", "b", BITS + 7, 2)]
    given = rows(spark, numbers)
    found = count(given, DAY, many=many)
    assert found.repeated == [Stretch("g", "b", 1)]
    kept = drop_duplicates(given, found.repeated)
    assert sorted((row.gateway, row.boot, row.seq, row.messages) for row in kept.collect()) == [
        ("g", "b", 10, 7), ("g", "b", 14, 1), ("g", "c", 10, 3), ("h", "b", BITS + 7, 2),
    ]  # fmt: skip
    assert drop_duplicates(given, []) is given


@pytest.mark.parametrize("many", [False, True], ids=["on the driver", "on the workers"])
def test_a_day_without_a_line_has_no_counts(spark: SparkSession, many: bool) -> None:
    found = count(rows(spark, []), DAY, many=many)
    assert (dict(found.files), dict(found.gateways), found.duplicates, found.missing, found.repeated) == ({}, {}, 0, 0, [])


def test_a_second_without_invented_topics_is_observed_and_what_was_dropped_is_missing(spark: SparkSession, tmp_path: Path) -> None:
    """As the gateway writes it: three seconds with room for ten topics, of which the last two bring fifteen more."""
    log = AccessLog(tmp_path, "g", "b", Rolling(300, 1 << 20, 0))
    origin = Origin("rocketmq", Sender("rocket", "10.0.0.7", None), b"")
    log._writer._offered += MAX_QUEUED_UNKNOWN - 3 * 10
    for second in range(3):
        for topic in [f"steady-{number}" for number in range(10)] + [f"made-up-{second}-{number}" for number in range(15 if second else 0)]:
            tally = Tally()
            tally.messages = 1
            log.running.add(Key(origin, rocketmq_topic(topic.encode()), None, "produce"), tally)
        log.close_second(DAY.start + second)
    log.start()
    log.stop(10)
    assert log.lost_lines == 2 * 15
    lines = [(str(path), line) for path in tmp_path.rglob("*.jsonl") for line in path.read_text().splitlines()]
    found = count(parse(spark.createDataFrame(lines, "file string, line string"), DAY), DAY)
    assert found.missing == 2 * 15
    assert (found.gateways["g"].lines, int(found.gateways["g"].seconds.sum())) == (3 * 11, 3)
    assert [each.corrupt for each in found.files.values()] == [0]
