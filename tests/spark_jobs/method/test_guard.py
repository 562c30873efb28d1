"""The guard: another rule takes the method's place for the whole fleet, once it has earned it."""

from __future__ import annotations

import numpy as np
import pytest

from spark_jobs.method.families import QUOTA_RULES
from spark_jobs.method.guard import MIN_EVIDENCE, OWN, Evidence, choose_rule, judge_rules, scale_to_reserve, sum_evidence
from spark_jobs.state.loss_surface import Surfaces, compute_surfaces
from support.quota_weeks.memories import memory_of


@pytest.mark.parametrize(
    ("days", "chosen"),
    [
        ([], OWN),
        ([{OWN: 100.0, "max_7": 1.0}] * 6, OWN),  # too few days
        ([{OWN: 100.0, "max_7": 1.0}] * 7, "max_7"),
        ([{OWN: 100.0, "max_7": 80.0}] * 10, OWN),  # 20 % better, of which ten days are believed half
        ([{OWN: 100.0, "max_7": 80.0}] * 28, "max_7"),
        ([{OWN: 100.0, "max_7": 95.0}] * 28, OWN),
        ([{OWN: 100.0, "max_7": 1.0}] * 20 + [{OWN: 1000.0, "max_7": 5000.0}] * 28, OWN),  # only the last 28 count
        ([{OWN: 0.0, "max_7": 0.0}] * 28, OWN),
        ([{OWN: 1.0, "max_7": 1.0}] * 25 + [{OWN: 900.0, "max_7": 1.0}] * 3, OWN),  # three bad days of 28
        ([{OWN: 1.0, "max_7": 1.0}] * 22 + [{OWN: 900.0, "max_7": 1.0}] * 6, "max_7"),
        ([{OWN: 100.0, "max_7": 70.0, "p99": 60.0}] * 28, "p99"),
    ],
)
def test_a_rule_is_chosen_on_pooled_evidence_of_days(days: list[dict[str, float]], chosen: str) -> None:
    assert choose_rule([Evidence(day, 100.0) for day in days]) == chosen


@pytest.mark.parametrize(("topics", "chosen"), [(1.0, OWN), (2.0, OWN), (MIN_EVIDENCE / 25, "max_7"), (1e6, "max_7")])
def test_a_rule_is_chosen_only_on_a_hundred_nights_of_a_topic(topics: float, chosen: str) -> None:
    """findings.md 8, 2: two topics of jobs gave the guard two standard errors in a month, and it was wrong."""
    days = [Evidence({OWN: 100.0, "max_7": 1.0}, topics)] * 40
    assert sum_evidence(days) == pytest.approx(28 * topics)
    assert choose_rule(days) == chosen


def test_rules_are_compared_at_equal_reserve() -> None:
    like, rates = np.array([10.0, 30.0, np.nan, 5.0]), np.array([1.0, 1.0, 9.0, np.nan])
    found = scale_to_reserve(rates, like)
    assert list(found[:2]) == [20, 20]
    assert np.isnan(found[2])
    assert found[3] == 5


def test_every_rule_is_judged_on_the_day_that_followed() -> None:
    memory = memory_of(np.full((2, 9), 10.0))
    day = Surfaces(compute_surfaces([(np.arange(100), np.full(100, 12.0))] * 2, 100))
    found = judge_rules(memory, np.array([10.0, 10.0]), day, 1 / 60)
    assert set(found) == {OWN, *QUOTA_RULES}
    assert all(refused == pytest.approx(2 * (1200 - 100 - 99 * 10), rel=0.1) for refused in found.values())


def test_the_rules_are_what_they_are_called() -> None:
    memory = memory_of(np.array([[5.0] * 8 + [9.0, 1.0]]))
    assert {name: float(rule(memory)[0]) for name, rule in QUOTA_RULES.items()} == pytest.approx(
        {"yesterday_max": 3.0, "max_7": 27.0, "mean_7": 35 / 7, "p99": 2.5 * 35 / 7}
    )
    unknown = memory_of(np.full((1, 3), np.nan))
    assert all(np.isnan(rule(unknown)[0]) for rule in QUOTA_RULES.values())
