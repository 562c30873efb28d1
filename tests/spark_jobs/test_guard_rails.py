"""Guard rails and the choice between rules: tables of small cases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from spark_jobs.guard_rails import bursts_on_rails, rates_on_rails
from spark_jobs.parameters import Parameters
from spark_jobs.schemas import CANDIDATES, PREVIOUS, SCORES
from spark_jobs.selection import choose, scores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PARAMETERS = Parameters(floor_messages=10, floor_bytes=1000, ceiling_messages=5000)

RATES = {  # name: (dimension, wanted, previous, rate, reason ends with)
    "new": ("messages", 500, None, 500, "why"),
    "step_up": ("messages", 500, 100, 200, "step up from 100 limited to 200 %"),
    "step_down": ("messages", 100, 501, 401, "step down from 501 limited to 80 %"),
    "in_step": ("messages", 190, 100, 190, "why"),
    "small_change": ("messages", 104, 100, 100, "kept: the change is under 5 %"),
    "no_change": ("messages", 100, 100, 100, "why"),
    "five_percent": ("messages", 105, 100, 105, "why"),
    "below_floor": ("messages", 3, None, 10, "raised to the floor"),
    "floor_beats_step": ("messages", 300, 2, 10, "raised to the floor"),
    "above_ceiling": ("messages", 9000, None, 5000, "cut to the ceiling"),
    "ceiling_beats_step_and_hysteresis": ("messages", 9000, 9000, 5000, "cut to the ceiling"),
    "from_nothing": ("messages", 500, 0, 10, "raised to the floor"),
    "bytes_have_their_own_floor": ("bytes", 3, None, 1000, "raised to the floor"),
    "bytes_have_no_ceiling": ("bytes", 10**9, None, 10**9, "why"),
}


def test_a_rate_stays_on_its_rails_and_says_which_held_it(spark: SparkSession) -> None:
    proposed = [("rocketmq", name, case[0], "formula", case[1], None, "why") for name, case in RATES.items()]
    previous = [("rocketmq", name, case[0], case[2], 50) for name, case in RATES.items() if case[2] is not None]
    rows = rates_on_rails(spark.createDataFrame(proposed, CANDIDATES), spark.createDataFrame(previous, PREVIOUS), PARAMETERS).collect()
    found = {row.topic: (row.rate, row.reason.partition("; ")[2] or row.reason) for row in rows}
    assert found == {name: (case[3], case[4]) for name, case in RATES.items()}


def test_a_rate_that_moved_loses_the_burst_that_belonged_to_another(spark: SparkSession) -> None:
    proposed = [("rocketmq", "held", "messages", "r", 500, 600, "why"), ("rocketmq", "free", "messages", "r", 150, 600, "why")]
    previous = [("rocketmq", "held", "messages", 100, 100), ("rocketmq", "free", "messages", 100, 100)]
    rows = rates_on_rails(spark.createDataFrame(proposed, CANDIDATES), spark.createDataFrame(previous, PREVIOUS), PARAMETERS).collect()
    assert {row.topic: row.burst for row in rows} == {"held": None, "free": 600}


def test_a_burst_twitches_no_more_than_its_rate(spark: SparkSession) -> None:
    schema = "topic string, rate bigint, burst bigint, previous_rate bigint, previous_burst bigint"
    cases = [
        ("new", 100, 200, None, None),
        ("steady", 100, 204, 100, 200),
        ("moved", 100, 250, 100, 200),
        ("other_rate", 100, 204, 50, 200),
    ]
    rows = bursts_on_rails(spark.createDataFrame(cases, schema), PARAMETERS).collect()
    assert {row.topic: row.burst for row in rows} == {"new": 200, "steady": 200, "moved": 250, "other_rate": 204}


def test_the_simple_rule_holds_until_another_was_cheaper_on_the_same_days(spark: SparkSession) -> None:
    topics = ("no_history", "worse", "equal", "better", "better_once", "other_days")
    proposed = [
        ("rocketmq", topic, "messages", rule, rate, rate, "why")
        for topic in topics
        for rule, rate in (("yesterday_max", 900), ("formula", 500))
    ]

    def days(topic: str, rule: str, first: int, *days: tuple[int, int]) -> list[tuple[object, ...]]:
        return [(f"2026-11-{first + at:02}", "rocketmq", topic, "messages", rule, 10_000, *day) for at, day in enumerate(days)]

    # (refused, reserved); at the price of 1000 in a million, 1000 more reserved are worth 1 refusal
    history = [
        *days("worse", "yesterday_max", 1, (0, 90_000), (0, 90_000)), *days("worse", "formula", 1, (30, 50_000), (60, 50_000)),
        *days("equal", "yesterday_max", 1, (0, 90_000), (0, 90_000)), *days("equal", "formula", 1, (30, 50_000), (50, 50_000)),
        *days("better", "yesterday_max", 1, (0, 90_000), (0, 90_000)), *days("better", "formula", 1, (79, 50_000), (0, 50_000)),
        *days("better_once", "yesterday_max", 1, (0, 90_000)), *days("better_once", "formula", 1, (0, 50_000)),
        *days("other_days", "yesterday_max", 1, (9, 90_000), (9, 90_000)), *days("other_days", "formula", 5, (0, 50_000), (0, 50_000)),
    ]  # fmt: skip
    rows = choose(
        spark.createDataFrame(proposed, CANDIDATES), spark.createDataFrame(history, SCORES), Parameters(backtest_days=2)
    ).collect()
    assert {row.topic: row.rule for row in rows} == dict.fromkeys(topics, "yesterday_max") | {"better": "formula"}
    (reason,) = [row.reason for row in rows if row.rule == "formula"]
    assert reason == "why; backtest on 2 days: refused 0.40 %, yesterday_max 0.00 % at a higher price"


def test_a_score_reserves_the_rate_for_every_observed_second(spark: SparkSession) -> None:
    quotas = spark.createDataFrame([("rocketmq", "t", "messages", "formula", 500, 600, "why")], CANDIDATES)
    schema = "protocol string, topic string, dimension string, rule string, offered bigint, refused bigint"
    replayed = spark.createDataFrame([("rocketmq", "t", "messages", "formula", 1000, 3)], schema)
    (row,) = scores(replayed, quotas, "2026-11-20", 7200).collect()
    assert row.asDict() == {
        "day": "2026-11-20", "protocol": "rocketmq", "topic": "t", "dimension": "messages", "rule": "formula", "offered": 1000,
        "refused": 3, "reserved": 3_600_000,
    }  # fmt: skip
