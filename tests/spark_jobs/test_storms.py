"""What a retry storm may teach: refusals count up to a share of what passed."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from spark_jobs.storms import calmed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "protocol string, topic string, dimension string, second long, amount long, refused long, largest long, peak_100ms long"
Row = tuple[str, str, str, int, int, int, int, int | None]


def oracle(rows: list[Row], percent: int) -> set[Row]:
    """The same in plain Python."""
    busiest: dict[tuple[str, str, str], int] = defaultdict(int)
    for row in rows:
        busiest[row[:3]] = max(busiest[row[:3]], row[4] - row[5])
    found = set()
    for row in rows:
        counted = min(row[5], math.ceil(busiest[row[:3]] * percent / 100))
        amount = row[4] - row[5] + counted
        if amount:
            found.add((*row[:4], amount, counted, row[6], None if row[7] is None else min(row[7], amount)))
    return found


def a_day(seed: int) -> list[Row]:
    chance = random.Random(seed)
    rows: list[Row] = []
    for topic in ("calm", "storm", "blocked"):
        for dimension in ("messages", "bytes"):
            for second in range(60):
                passed = {"calm": chance.randrange(50), "storm": chance.choice([0, 0, 100]), "blocked": 0}[topic]
                refused = {"calm": chance.randrange(3), "storm": chance.randrange(5000), "blocked": 70}[topic]
                peak = chance.randrange(1, 900) if dimension == "messages" else None
                if passed + refused:
                    rows.append(("amqp", topic, dimension, second, passed + refused, refused, 1, peak))
    return rows


@pytest.mark.parametrize(("seed", "percent"), [(1, 100), (2, 0), (3, 37), (4, 100_000)])
def test_refusals_count_up_to_a_share_of_the_busiest_second_that_passed(spark: SparkSession, seed: int, percent: int) -> None:
    rows = a_day(seed)
    found = calmed(spark.createDataFrame(rows, SCHEMA), percent)
    assert found.columns == [field.split()[0] for field in SCHEMA.split(", ")]
    assert {tuple(row) for row in found.collect()} == oracle(rows, percent)


def test_a_topic_that_was_refused_altogether_teaches_nothing(spark: SparkSession) -> None:
    found = calmed(spark.createDataFrame(a_day(5), SCHEMA), 100)
    assert {row.topic for row in found.select("topic").distinct().collect()} == {"calm", "storm"}
