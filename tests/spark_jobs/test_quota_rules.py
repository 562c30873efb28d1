"""The quota rules, against the plain-Python oracle; and what every rule must keep."""

from __future__ import annotations

import math
import random
from datetime import date as calendar_date
from datetime import timedelta
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from spark_jobs.arrival_curve import RATE_RATIO, curve
from spark_jobs.burst import needed, with_burst
from spark_jobs.candidates import candidates
from spark_jobs.daily_state import remembered
from spark_jobs.evidence import evidence
from spark_jobs.parameters import Parameters
from spark_jobs.quota_rules import QUOTA_RULES, SIMPLE_RULE
from spark_jobs.quota_rules.formula import DAYS_FOR_HOUR_OF_WEEK, formula
from spark_jobs.quota_rules.yesterday_max import yesterday_max
from spark_jobs.schemas import DAILY_STATE
from support.access_logs import day_start
from support.models import quota_oracle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

TODAY = "2026-11-22"  # a Sunday
KEYS = [("rocketmq", topic, dimension) for topic in ("a", "b", "c") for dimension in ("messages", "bytes")]
Days = dict[str, quota_oracle.Series]


def state_row(day: str, key: quota_oracle.Key, series: quota_oracle.Series, observed: list[int]) -> tuple[Any, ...]:
    """A row of DAILY_STATE made without Spark."""
    counts: dict[tuple[int, int], int] = {}
    for second in observed:
        place = (second % 86_400 // 3600, quota_oracle.bucket(series[second]) if second in series else -1)
        counts[place] = counts.get(place, 0) + 1
    numbers = {second: tick for tick, second in enumerate(observed)}
    ticks = np.array([numbers[second] for second in sorted(series)])
    points = curve(ticks, np.array([series[second] for second in sorted(series)]))
    histogram = [(*place, seconds) for place, seconds in sorted(counts.items())]
    peak = max(series.values()) if key[2] == "messages" else None
    total, most = sum(series.values()), max(series.values())
    return (day, *key, len(series), total, most, 0, 1, peak, int(ticks[-1] - ticks[0]), histogram, points)


def history(seed: int, days: int) -> tuple[dict[quota_oracle.Key, Days], Days]:
    """Random usage of the last `days` days: per key and date a series; and the observed seconds of each date."""
    chance = random.Random(seed)
    usage: dict[quota_oracle.Key, Days] = {key: {} for key in KEYS}
    watched: Days = {}
    for age in range(days):
        day = str(calendar_date.fromisoformat(TODAY) - timedelta(days=age))
        start = day_start(day)
        watched[day] = dict.fromkeys([*range(start, start + 120), *range(start + 7200, start + 7200 + 60)], 1)
        for key in KEYS:
            level = chance.choice([3, 40, 900]) * (1 if key[2] == "messages" else 200)
            series = {second: chance.randint(1, level) for second in watched[day] if chance.random() < 0.4}
            if series and (key[1] != "c" or age > 1):  # c was last seen the day before yesterday
                usage[key][day] = series
    return usage, watched


def memory_of(spark: SparkSession, usage: dict[quota_oracle.Key, Days], watched: Days, parameters: Parameters) -> DataFrame:
    rows = [state_row(day, key, series, sorted(watched[day])) for key, by_day in usage.items() for day, series in by_day.items()]
    return remembered(spark.createDataFrame(rows, DAILY_STATE), TODAY, len(watched), parameters.half_life_days)


@pytest.mark.parametrize(("weighting", "permille"), [("load", 990), ("seconds", 700)])
def test_the_formula_is_that_of_the_oracle(spark: SparkSession, weighting: str, permille: int) -> None:
    usage, watched = history(seed=permille, days=9)
    parameters = Parameters(weighting=weighting, percentile_permille=permille)
    found = {
        (row.protocol, row.topic, row.dimension): row.rate
        for row in formula(memory_of(spark, usage, watched, parameters), parameters).collect()
    }
    assert found == {
        key: quota_oracle.formula(days, TODAY, permille=permille, margin=15, half_life=7, weighting=weighting, observed=watched)
        for key, days in usage.items()
    }


def test_with_four_weeks_the_hours_of_the_week_are_classes(spark: SparkSession) -> None:
    """A load that only Mondays have: among all weekdays it vanishes below the percentile, among Mondays it does not."""
    usage: dict[quota_oracle.Key, Days] = {KEYS[0]: {}}
    watched: Days = {}
    for age in range(DAYS_FOR_HOUR_OF_WEEK):
        day = str(calendar_date.fromisoformat(TODAY) - timedelta(days=age))
        start = day_start(day)
        watched[day] = dict.fromkeys(range(start, start + 100), 1)
        monday = calendar_date.fromisoformat(day).weekday() == 0
        usage[KEYS[0]][day] = dict.fromkeys(watched[day], 40 if monday else 10)
    parameters = Parameters(weighting="seconds", percentile_permille=500, margin_percent=0, half_life_days=10_000)
    memory = memory_of(spark, usage, watched, parameters)
    rates = [formula(days, parameters).first() for days in (memory, memory.drop("memory").selectExpr("*", "27 as memory"))]
    assert [row and row.rate for row in rates] == [42, 11], "40 and 10, each with 1/28 for confidence, rounded up"


def test_yesterday_max_is_the_maximum_of_the_newest_day_a_topic_was_seen(spark: SparkSession) -> None:
    usage, watched = history(seed=3, days=4)
    found = {
        (row.protocol, row.topic, row.dimension): row.rate
        for row in yesterday_max(memory_of(spark, usage, watched, Parameters()), Parameters()).collect()
    }
    assert found == {key: max(days[max(days)].values()) for key, days in usage.items()}


@pytest.fixture(scope="module")
def proposed(spark: SparkSession) -> tuple[dict[quota_oracle.Key, Days], list[Any]]:
    usage, watched = history(seed=4, days=5)
    return usage, candidates(memory_of(spark, usage, watched, Parameters()), Parameters()).collect()


def test_every_rule_answers_once_for_every_topic_and_dimension_with_a_reason(
    proposed: tuple[dict[quota_oracle.Key, Days], list[Any]],
) -> None:
    usage, rows = proposed
    assert SIMPLE_RULE in QUOTA_RULES
    assert sorted((row.protocol, row.topic, row.dimension, row.rule) for row in rows) == sorted(
        (*key, rule) for key in usage for rule in QUOTA_RULES
    )
    assert all(row.rate >= 1 and row.reason for row in rows)


def test_every_burst_is_at_least_a_second_of_its_rate_and_at_most_ten(proposed: tuple[dict[quota_oracle.Key, Days], list[Any]]) -> None:
    _, rows = proposed
    assert [row for row in rows if not row.rate <= row.burst <= 10 * row.rate] == []


def on_the_curve(points: list[tuple[int, int]], span: int, rate: int) -> int:
    """The line through the points of the grid at `rate`, rounded up; beyond the grid as arrival_curve.py says."""
    rates = [RATE_RATIO**step for step, _ in points]
    if rate < rates[0]:
        return math.ceil(round(points[0][1] + (rates[0] - rate) * span, 6))
    for (left, right), (low, high) in zip(pairwise(rates), pairwise(value for _, value in points), strict=True):
        if left <= rate < right:
            return math.ceil(round(low + (high - low) * (rate - left) / (right - left), 6))
    return points[-1][1]


def test_the_burst_a_day_needs_is_on_its_curve_and_never_below_the_truth(spark: SparkSession) -> None:
    """For rates below, between and above the points of the grid. Bytes get one second of rate for what happens within a second."""
    usage, watched = history(seed=5, days=1)
    observed = sorted(watched[TODAY])
    numbers = {second: tick for tick, second in enumerate(observed)}
    keys = [key for key in usage if TODAY in usage[key] and key[2] == "bytes"]
    memory = memory_of(spark, {key: usage[key] for key in keys}, watched, Parameters())
    rates = [(*key, rate) for key in keys for rate in (1, 90, 333, 4000, 30_000, 70_000, 10**6)]
    wanted = spark.createDataFrame(rates, "protocol string, topic string, dimension string, rate bigint")
    rows = needed(wanted, memory).collect()
    assert len(rows) == len(rates)
    for row in rows:
        key = (row.protocol, row.topic, row.dimension)
        series = usage[key][TODAY]
        stored = state_row(TODAY, key, series, observed)
        assert row.needed == max(on_the_curve(stored[12], stored[10], row.rate), row.rate) + row.rate
        assert (
            row.needed >= quota_oracle.burst({numbers[second]: amount for second, amount in series.items()}, Fraction(row.rate)) + row.rate
        )


def test_within_a_second_the_logged_peak_bounds_what_is_added(spark: SparkSession) -> None:
    """A bucket of `needed` serves any arrivals within the seconds that the log allows: tried with tenths of seconds."""
    chance = random.Random(6)
    states, tenths, mattered = {}, {}, 0
    for number in range(12):
        key = ("rocketmq", f"t{number}", "messages")
        at_the_edge = number % 2 == 0  # the end of one second and the start of the next: the worst for counts of whole seconds
        fine = {tick: 0 if at_the_edge and tick % 20 not in (9, 10) else chance.choice([0, 0, 1, 3, 40]) for tick in range(300)}
        tenths[key] = fine
        series = {second: sum(fine[second * 10 + part] for part in range(10)) for second in range(30)}
        series = {second: amount for second, amount in series.items() if amount}
        start = day_start(TODAY)
        row = list(state_row(TODAY, key, {start + second: amount for second, amount in series.items()}, list(range(start, start + 30))))
        row[9] = max(fine.values())
        states[key] = tuple(row)
    memory = remembered(spark.createDataFrame(list(states.values()), DAILY_STATE), TODAY, 1, 7)
    rates = spark.createDataFrame(
        [(*key, rate) for key in tenths for rate in (20, 60, 80, 120, 500)], "protocol string, topic string, dimension string, rate bigint"
    )
    for found in needed(rates, memory).collect():
        fine = {tick: amount for tick, amount in tenths[(found.protocol, found.topic, found.dimension)].items() if amount}
        exact = quota_oracle.burst(fine, Fraction(found.rate, 10))
        assert found.needed >= exact
        stored = states[(found.protocol, found.topic, found.dimension)]
        mattered += exact > max(on_the_curve(stored[12], stored[10], found.rate), found.rate)
    assert mattered, "no case needed the allowance: this test proves nothing"


def test_the_burst_is_a_high_quantile_of_the_days_and_bounded(spark: SparkSession) -> None:
    """Ten days, one of them a freak: the ninth of ten counts. And a burst given by the rule stays within the bounds too."""
    key, watched = KEYS[0], {}
    usage: dict[quota_oracle.Key, Days] = {key: {}}
    for age in range(10):
        day = str(calendar_date.fromisoformat(TODAY) - timedelta(days=age))
        start = day_start(day)
        watched[day] = dict.fromkeys(range(start, start + 20), 1)
        usage[key][day] = {start: 5000 if age == 3 else 200 + age}
    memory = memory_of(spark, usage, watched, Parameters()).drop("peak_100ms").selectExpr("*", "1L as peak_100ms")
    schema = "protocol string, topic string, dimension string, rate bigint, burst bigint"
    bursts = {
        (row.rate, given): row.burst
        for given in (None, 70, 10**6)
        for row in with_burst(spark.createDataFrame([(*key, 100, given), (*key, 10, given)], schema), memory, Parameters()).collect()
    }
    assert bursts == {
        (100, None): 209, (10, None): 100,
        (100, 70): 100, (10, 70): 70,
        (100, 10**6): 1000, (10, 10**6): 100,
    }  # fmt: skip


def test_evidence_is_of_messages_and_weighted_like_the_formula(spark: SparkSession) -> None:
    usage, watched = history(seed=7, days=1)
    rows = {row.topic: row for row in evidence(memory_of(spark, usage, watched, Parameters()), Parameters()).collect()}
    series = usage[("rocketmq", "a", "messages")][TODAY]
    values = [min(max(series.values()), quota_oracle.bucket_top(quota_oracle.bucket(amount))) for amount in series.values()]
    expected = [quota_oracle.percentile([(value, value) for value in values], permille) for permille in (500, 990)]
    assert [rows["a"].p50, rows["a"].p99] == expected
    assert (rows["a"].days, rows["a"].max) == (1, max(series.values()))


def test_answers_do_not_depend_on_how_the_rows_lie(spark: SparkSession) -> None:
    usage, watched = history(seed=8, days=6)
    memory = memory_of(spark, usage, watched, Parameters())
    answers = [
        sorted(tuple(row) for row in candidates(rows, Parameters()).collect())
        for rows in (memory, memory.repartition(7, "day"), memory.coalesce(1))
    ]
    assert answers[0] == answers[1] == answers[2]
