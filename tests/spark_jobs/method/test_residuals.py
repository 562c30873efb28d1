"""Residuals: what counts of a topic's past days, and how much."""

from __future__ import annotations

import numpy as np
import pytest

from spark_jobs.method.residuals import LEAST_SPREAD, PRIOR_DAYS, quantiles
from support.quota_weeks.memories import compute_residuals, memory_of


def test_quantiles_of_equal_weights_are_interpolated_between_the_middles_of_the_days() -> None:
    values = np.array([[4.0, 1.0, 3.0, 2.0]])
    found = quantiles(values, np.ones((1, 4)), (0.0, 0.125, 0.5, 0.75, 1.0))
    assert [each[0] for each in found] == [1, 1, 2.5, 3.5, 4]


def test_a_quantile_follows_the_weights_and_a_day_without_weight_does_not_count() -> None:
    values = np.array([[-9.0, 1.0, 2.0, 3.0], [5.0, 0.0, 0.0, 0.0], [7.0, 7.0, 7.0, 7.0]])
    weights = np.array([[0.0, 1.0, 1.0, 8.0], [2.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    low, middle = quantiles(values, weights, (0.0, 0.6))
    np.testing.assert_allclose(low, [1, 5, 0])
    np.testing.assert_allclose(middle, [3, 5, 0])


def test_quantiles_are_those_of_each_row_by_itself() -> None:
    random = np.random.default_rng(5)
    values, weights = random.standard_normal((30, 12)), random.random((30, 12)) * (random.random((30, 12)) > 0.4)
    weights[3] = 0
    for share, found in zip((0.1, 0.5, 0.84), quantiles(values, weights, (0.1, 0.5, 0.84)), strict=True):
        for row in range(30):
            used = np.flatnonzero(weights[row])
            order = used[np.argsort(values[row, used])]
            place = (np.cumsum(weights[row, order]) - weights[row, order] / 2) / max(weights[row, order].sum(), 1e-9)
            expected = np.interp(share, place, values[row, order]) if used.size else 0.0
            assert found[row] == pytest.approx(expected)


def test_memory_of_no_days_has_no_quantiles() -> None:
    assert [each.tolist() for each in quantiles(np.zeros((2, 0)), np.zeros((2, 0)), (0.5,))] == [[0, 0]]


def test_an_idle_day_counts_by_what_it_sent() -> None:
    """Ten days of jobs and ten days with a hundredth of their messages: these count a tenth of a day each."""
    level = np.array([[100.0, 1.0] * 10])
    memory = memory_of(level, need=np.array([[300.0, 3.0] * 10]))
    found = compute_residuals(memory, np.full((1, 20), 300.0), level[:, -1], 0.0, 0.5)
    assert found.mean[0] == pytest.approx(np.log(0.01) / 11, rel=0.01)
    assert found.worth[0] == pytest.approx(11**2 / 10.1, rel=0.01)
    assert found.days[0] == 20


def test_events_widen_the_variance_of_all_days_and_not_that_of_usual_ones() -> None:
    need = np.full((1, 30), 20.0)
    need[0, [10, 20]] = 200.0
    found = compute_residuals(memory_of(np.full((1, 30), 10.0), need=need), np.full((1, 30), 20.0), np.array([10.0]), 0.0, 0.6)
    assert found.middle[0] == pytest.approx(0, abs=1e-9)
    assert found.usual[0] <= LEAST_SPREAD**2
    assert found.variance[0] == pytest.approx((2 * 28 / 30) * np.log(10) ** 2 / 30, rel=0.02)


def test_a_topic_without_days_has_the_fleet_s_and_a_fleet_without_the_prior() -> None:
    need = np.array([[20.0] * 9, [np.nan] * 9])
    both = compute_residuals(memory_of(np.full((2, 9), 10.0), need=need), np.full((2, 9), 10.0), np.array([10.0, 10.0]), 5.0, 0.5)
    assert both.mean.tolist() == pytest.approx([np.log(2)] * 2)
    none = compute_residuals(memory_of(np.full((1, 9), 10.0), need=np.nan), np.full((1, 9), 10.0), np.array([10.0]), 5.0, 0.5)
    assert (none.mean[0], none.middle[0]) == (5, 5)


def test_few_days_are_drawn_towards_the_fleet() -> None:
    need = np.full((2, 20), 40.0)
    need[1] = np.where(np.arange(20) < 15, np.nan, 10.0)
    found = compute_residuals(memory_of(np.full((2, 20), 10.0), need=need), np.full((2, 20), 10.0), np.array([1e6, 1.0]), 0.0, 0.5)
    own, fleet = np.log(1.0), np.log(4.0)
    assert found.mean[1] == pytest.approx((5 * own + PRIOR_DAYS * fleet) / (5 + PRIOR_DAYS), rel=1e-3)
