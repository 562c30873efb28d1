"""A topic's seconds → its rows: what counts as demand, and the figures that are remembered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import from_arrow_schema

from spark_jobs.days import Day
from spark_jobs.schemas import TOPICS as SPARK_TOPICS
from spark_jobs.state.topic_day import (
    TOPICS,
    TopicSeconds,
    compute_load_percentiles,
    make_topic_rows,
    measure_demand,
    read_surface,
    restore_arrivals,
)

DAY = Day("2026-11-20")
OBSERVED = 86_400


def seconds(passed: list[int], refused: object = 0, delayed: object = 0, dropped: object = 0, size: int = 100) -> TopicSeconds:
    """A topic whose seconds follow each other from midnight on."""
    n = len(passed)
    each = {name: np.broadcast_to(np.asarray(value, np.int64), n).copy() for name, value in
            (("refused", refused), ("delayed", delayed), ("dropped", dropped))}  # fmt: skip
    through, tick = np.asarray(passed, np.int64), np.arange(n, dtype=np.int64)
    return TopicSeconds(
        "rocketmq", "orders", DAY.start + tick, tick, through, each["refused"], each["delayed"], each["dropped"], through * size,
        each["refused"] * size, through.copy(), np.full(n, size), (("a", int(through.sum()), int(through.sum()) * size),),
    )  # fmt: skip


def figures(day: TopicSeconds, observed: int = OBSERVED) -> dict[str, dict[str, Any]]:
    return {str(row["dimension"]): row for row in make_topic_rows([day], DAY, observed).to_pylist()}


def test_the_figures_of_an_ordinary_day() -> None:
    day = seconds([10] * 3600 + [20] * 3600)
    found = figures(day)
    row = found["messages"]
    assert (row["total"], row["messages"], row["passed"], row["refused"], row["storm"]) == (108_000, 108_000, 108_000, 0, 0)
    assert (row["active_seconds"], row["limited_seconds"], row["max"], row["p50"], row["p99"]) == (7200, 0, 20, 20.0, 20.0)
    assert row["hours"] == [36_000, 72_000] + [0] * 22
    assert row["gateways"] == [{"gateway": "a", "total": 108_000}]
    assert 19 < row["need"] <= 20
    assert read_surface(row).interpolate_loss(5, 50) == pytest.approx(5 * 3600 + 15 * 3600 - 50, rel=0.01)
    octets = found["bytes"]
    assert (octets["total"], octets["messages"], octets["largest"], octets["max"]) == (10_800_000, 108_000, 100, 2000)
    assert row["largest"] == 1


def test_sparks_schema_is_the_same() -> None:
    assert from_arrow_schema(TOPICS) == SPARK_TOPICS


def test_a_topic_held_by_delay_grows_by_its_demand() -> None:
    """findings.md 1, 7: 1,000/s wanted for ten minutes, 100/s let through: the backlog drains for a long time afterwards."""
    passed = [100] * 6000
    delayed = [900] + [1000] * 599 + [0] * 5400
    of_messages, of_bytes = measure_demand(seconds(passed, delayed=delayed), 6000, 10_000)
    assert list(of_messages.amount[:600]) == [900] + [1000] * 599  # the first second's 100 count with the last that leave
    assert (of_messages.amount[600:].sum(), of_bytes.amount.sum()) == (100, 60_000_000)
    row = figures(seconds(passed, delayed=delayed), 6000)["messages"]
    assert (row["max"], row["total"], row["delayed"], row["limited_seconds"]) == (1000, 600_000, 599_900, 600)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=40), st.integers(1, 60))
def test_delayed_messages_count_once_and_within_a_second_of_the_rate_when_they_came(offers: list[tuple[int, int]], rate: int) -> None:
    """The oracle: clients offer, a gateway lets `rate` a second through in order and holds the rest back."""
    backlog, passed, delayed = 0, [], []
    offered = [one + other for one, other in offers]
    for offer in [*offered, *[0] * 3000]:
        out = min(rate, backlog + offer)
        fresh = max(out - backlog, 0)  # passed at once
        passed.append(out)
        delayed.append(offer - fresh)
        backlog += offer - out
    assert backlog == 0
    found, true = np.cumsum(restore_arrivals(np.array(passed), np.array(delayed))), np.cumsum([*offered, *[0] * 3000])
    assert found[-1] == true[-1]
    assert (true - found).min() >= 0
    assert (true - found).max() <= rate  # what is delayed in a second may have left in it: at most a second of the rate counts late


def test_a_retry_storm_teaches_nothing() -> None:
    calm, storm = [50] * 20_000, [50] * 300
    day = seconds(calm + storm, refused=[0] * 20_000 + [5000] * 300)
    row = figures(day)["messages"]
    assert (row["total"], row["max"], row["storm"], row["refused"]) == (50 * 20_300, 50, 1_500_000, 1_500_000)
    assert row["need"] == pytest.approx(figures(seconds(calm + storm))["messages"]["need"])


def test_a_topic_too_small_for_its_quota_counts_up_to_the_rate_in_force() -> None:
    """Half an hour a day is no storm: each second counts what was refused, at most as much as passes under the limit."""
    day = seconds([100] * 1800, refused=[60] * 900 + [5000] * 900)
    row = figures(day)["messages"]
    assert (row["total"], row["max"], row["limited_seconds"], row["storm"]) == (160 * 900 + 200 * 900, 200, 1800, 4900 * 900)


def test_the_rate_in_force_is_the_mean_of_limited_seconds_not_the_busiest_second() -> None:
    """A burst of 1,000 passes, then 10/s: refusals count for 10/s."""
    day = seconds([1000, *[10] * 2000], refused=[0, *[400] * 2000])
    assert figures(day)["messages"]["total"] == 1000 + 20 * 2000


def test_few_refusals_in_few_seconds_are_demand() -> None:
    day = seconds([100] * 5000, refused=[0] * 4990 + [30] * 10)
    row = figures(day)["messages"]
    assert (row["total"], row["storm"]) == (500_300, 0)


def test_dropped_messages_are_demand_as_large_as_the_others() -> None:
    found = figures(seconds([100] * 2000, dropped=[0] * 1000 + [50] * 1000))
    assert (found["messages"]["total"], found["messages"]["refused"], found["bytes"]["total"]) == (250_000, 50_000, 25_000_000)


def test_hours_are_local_and_a_topic_without_demand_has_no_row() -> None:
    day = Day("2026-11-20", "America/New_York")
    late = seconds([5] * 10)._replace(second=day.start + 7 * 3600 + np.arange(10, dtype=np.int64))
    silent = seconds([0] * 10)
    table = make_topic_rows([late, silent, late._replace(topic="zero")], day, OBSERVED)
    assert table.schema == TOPICS
    assert [(row["topic"], row["dimension"], row["hours"][7]) for row in table.to_pylist()] == [
        ("orders", "messages", 50), ("orders", "bytes", 5000), ("zero", "messages", 50), ("zero", "bytes", 5000)
    ]  # fmt: skip
    assert make_topic_rows([], day, OBSERVED).num_rows == 0
    assert isinstance(make_topic_rows([], day, OBSERVED), pa.Table)


def test_gateways_share_the_counted_demand_by_what_passed() -> None:
    day = seconds([30] * 100)._replace(gateways=(("a", 1, 1), ("b", 2, 5)))
    found = figures(day)
    assert found["messages"]["gateways"] == [{"gateway": "a", "total": 1000}, {"gateway": "b", "total": 2000}]
    assert sum(each["total"] for each in found["bytes"]["gateways"]) == 300_000


def test_percentiles_are_of_the_load() -> None:
    amount = np.array([1] * 50 + [50])
    assert compute_load_percentiles(amount, (0.5, 0.51, 0.99)) == [1, 50, 50]
