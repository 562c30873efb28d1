"""k: calibrated from judged days, slow, and a function of them only."""

from __future__ import annotations

import numpy as np
import pytest

from spark_jobs.method.scale import GRID, LEAST, MAX_CHANGE, MIN_DAYS, MOST, PRIOR, Judged, bursts_at, judge, k_of_night, least_sufficient
from spark_jobs.state.loss_surface import Surfaces, surfaces


def day(enough: float, offered: float = 1e6) -> Judged:
    """A day that refuses 1 % below k = `enough` and nothing from there on."""
    return Judged([0.01 * offered if k < enough else 0.0 for k in GRID], offered)


def test_the_prior_stands_until_seven_days_are_judged() -> None:
    assert k_of_night([day(10)] * (MIN_DAYS - 1), 0.001, None) == PRIOR
    assert k_of_night([day(10)] * (MIN_DAYS - 1), 0.001, 3.0) == 3.0
    assert k_of_night([None] * 50, 0.001, None) == PRIOR


def test_it_moves_at_most_a_tenth_a_night_and_arrives() -> None:
    days = [day(5.0)] * MIN_DAYS
    k, walked = PRIOR, []
    for _ in range(20):
        k = k_of_night(days, 0.001, k)
        walked.append(k)
    assert walked[0] == pytest.approx(PRIOR * MAX_CHANGE)
    assert walked[-1] == walked[-2] == pytest.approx(5.0, rel=0.1)


def test_it_stays_within_its_bounds() -> None:
    assert k_of_night([day(0.1)] * 9, 0.001, LEAST) == LEAST
    assert k_of_night([day(1000)] * 9, 0.001, MOST) == MOST


def test_the_least_sufficient_k_is_found_between_the_grid_points_and_recent_days_count_more() -> None:
    offered = 1e6
    graded = Judged([offered * 0.01 / k for k in GRID], offered)
    assert least_sufficient([graded], 0.001) == pytest.approx(10, rel=0.05)
    assert least_sufficient([], 0.001) is None
    late, early = least_sufficient([day(2), day(8)], 0.0051), least_sufficient([day(8), day(2)], 0.0049)
    assert late is not None
    assert early is not None
    assert late >= 2
    assert early <= 8


def test_a_day_is_judged_as_its_surfaces_say() -> None:
    ticks, amounts = np.arange(1000), np.full(1000, 10.0)
    found = Surfaces(surfaces([(ticks, amounts)], 1000))
    judged = judge(np.array([10.0]), np.array([1.0]), found, 1 / 60)
    assert judged.offered == 10_000
    assert judged.refused[0] == pytest.approx(3000 - 70, rel=0.02)
    assert judged.refused[-1] == 0
    assert list(bursts_at(np.array([0.01, 5.0]), np.array([1.0, 900.0]))) == [3, 900]
    nobody = judge(np.array([np.nan]), np.array([1.0]), found, 1 / 60)
    assert (nobody.offered, sum(nobody.refused)) == (0, 0)
