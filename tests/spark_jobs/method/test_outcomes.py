"""How the quotas of the night before fared, and how others would have; and what is told of that afterwards."""

from __future__ import annotations

import numpy as np
import pytest

from spark_jobs.method.families import QUOTA_RULES
from spark_jobs.method.history import SERIES_DAYS, History
from spark_jobs.method.outcomes import OUTCOMES, make_contenders, make_outcomes
from spark_jobs.method.remember import list_days
from spark_jobs.state.loss_surface import Surfaces, compute_surfaces
from support.quota_weeks.memories import memory_of

import pyarrow as pa  # isort: skip

NO = np.nan


def test_contenders_are_the_method_s_rates_its_half_and_double_and_the_rules_none_below_the_floor() -> None:
    memory = memory_of(np.array([[4.0] * 10, [0.0] * 10]))
    live = (np.array([7.0, NO]), np.array([50.0, NO]))
    need = np.array([9.0, NO])
    found = make_contenders(memory, np.array([3.0, 0.2]), 2.0, np.array([1.0, 0.5]), np.array([1.0, 90.0]), live, need)
    assert set(found) == {"published", "quota", "half", "double", "oracle", *QUOTA_RULES}
    assert found["published"] is live
    expected = {"quota": [6.0, 0.5], "half": [3.0, 0.5], "double": [12.0, 0.8], "oracle": [9.0, NO], "yesterday_max": [12.0, 0.5]}
    for name, rates in expected.items():
        np.testing.assert_allclose(found[name][0], rates)
    np.testing.assert_allclose(found["quota"][1], [60, 90])


def test_an_outcome_is_told_of_each_topic_that_had_a_rate() -> None:
    """A hundred seconds of 12 each: a bucket of 10/s refuses what is above it, but for the 100 that it has in the beginning."""
    memory = memory_of(np.full((3, 2), 10.0))
    day = Surfaces(compute_surfaces([(np.arange(100), np.full(100, 12.0))] * 3, 100))
    rates, bursts = np.array([10.0, NO, 10.0]), np.array([100.0, NO, 100.0])
    table = make_outcomes("2026-03-02", "bytes", memory, {"published": (rates, bursts), "half": (rates / 2, bursts)}, day, 50)
    assert table.schema == OUTCOMES
    assert [(row["topic"], row["family"]) for row in table.to_pylist()] == [
        ("t0", "published"), ("t2", "published"), ("t0", "half"), ("t2", "half"),
    ]  # fmt: skip
    first = table.to_pylist()[0]
    assert first["refused"] == pytest.approx(1200 - 100 - 99 * 10, rel=0.1)
    del first["refused"]
    assert first == {
        "day": "2026-03-02", "protocol": "rocketmq", "topic": "t0", "dimension": "bytes", "family": "published", "rate": 10.0,
        "burst": 100, "offered": 1200, "reserved": 500.0,
    }  # fmt: skip
    endless = make_outcomes("2026-03-02", "bytes", memory, {"published": (np.full(3, 1e30), np.full(3, 1e31))}, day, 50)
    assert endless["burst"].to_pylist() == [2**62] * 3


def row(day: str, family: str = "published", topic: str = "t0", dimension: str = "messages", **numbers: float) -> dict[str, object]:
    found: dict[str, object] = {"day": day, "protocol": "rocketmq", "topic": topic, "dimension": dimension, "family": family}
    return found | {"rate": 1.0, "burst": 3, "offered": 100, "refused": 0.0, "reserved": 10.0} | numbers


def test_the_series_has_a_line_for_each_of_the_last_days_that_are_remembered() -> None:
    days = list_days("2026-03-01", "2026-04-04")
    entries = [row(day, rate=float(at), refused=at / 2) for at, day in enumerate(days)]
    entries += [row(days[-1], topic="t1", rate=1 / 3), row(days[-1], dimension="bytes", rate=9.0), row(days[-1], "half", rate=8.0)]
    history = History([pa.Table.from_pylist(entries, OUTCOMES)], "messages", [("rocketmq", "t0"), ("rocketmq", "t1")], days[-1])
    assert history.days == days[-SERIES_DAYS:]
    mean = np.array([[1.0, NO, 3.0], [1.5, 2.5, 4.0]])
    first, second = history.collect_series(memory_of(mean))
    assert first == [[days[-3], 1, 32, 16, 3], [days[-2], None, 33, 16.5, None], [days[-1], 3, 34, 17, 9]]
    assert second[-1] == [days[-1], 4, 0.333333, 0, 12]
    long = history.collect_series(memory_of(np.ones((2, 40))))
    assert [len(lines) for lines in long] == [SERIES_DAYS] * 2
    assert history.rates_on(days[0]).tolist() == pytest.approx([NO, NO], nan_ok=True), "that is longer ago"
    assert history.rates_on(days[-2])[0] == 33


def test_nights_are_the_last_ones_with_a_quota_and_the_others_count_on_these_only() -> None:
    days = list_days("2026-03-01", "2026-03-10")
    entries = [row(day, refused=1.0) for day in days[2:9]]
    entries += [row(day, family, refused=refused) for day in days for family, refused in (("half", 5.0), ("double", 0.25))]
    history = History([pa.Table.from_pylist(entries, OUTCOMES)], "messages", [("rocketmq", "t0")], days[-1])
    (found,) = history.sum_nights(3)
    none = {"refused": 0, "reserved": 0}
    assert found == {
        "nights": 2, "offered": 200, "refused": 2, "reserved": 20, "half": {"refused": 10, "reserved": 20},
        "double": {"refused": 0.5, "reserved": 20}, "oracle": none, "yesterday_max": none,
    }  # fmt: skip


def test_a_history_without_outcomes_has_the_day_itself() -> None:
    history = History([], "messages", [("rocketmq", "t0")], "2026-03-02")
    assert history.days == ["2026-03-02"]
    assert history.sum_nights(7)[0]["nights"] == 0
    assert list(history.collect_series(memory_of([[4.0, 5.0]]))) == [[["2026-03-02", 5, None, None, 15]]]
