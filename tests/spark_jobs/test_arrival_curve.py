"""The arrival curve: a bucket of b(r) refuses nothing, one unit smaller refuses something, and what is stored never promises less."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_jobs.arrival_curve import RATE_RATIO, burst, curve, grid
from spark_jobs.replay import refused
from support.models import quota_oracle

SERIES = st.dictionaries(st.integers(0, 200), st.integers(1, 10_000), min_size=1, max_size=30)


def arrays(series: dict[int, int]) -> tuple[np.ndarray, np.ndarray]:
    ticks = sorted(series)
    return np.array(ticks, dtype=np.int64), np.array([series[tick] for tick in ticks], dtype=np.int64)


@given(SERIES, st.integers(1, 12_000))
@example({0: 5, 1: 5, 3: 20}, 5)
def test_one_pass_finds_what_trying_every_pair_finds(series: dict[int, int], rate: int) -> None:
    assert burst(*arrays(series), rate) == quota_oracle.burst(series, Fraction(rate))


@given(SERIES, st.integers(1, 12_000))
def test_a_bucket_of_that_size_refuses_nothing_and_a_smaller_one_something(series: dict[int, int], rate: int) -> None:
    size = burst(*arrays(series), rate)
    ticks = sorted(series)
    amounts = [series[tick] for tick in ticks]
    assert refused(ticks, amounts, rate, size) == 0
    assert refused(ticks, amounts, rate, size - 1) > 0


@given(SERIES)
def test_the_grid_reaches_from_the_mean_to_the_maximum(series: dict[int, int]) -> None:
    points = curve(*arrays(series))
    steps = [step for step, _ in points]
    assert steps == list(range(steps[0], steps[-1] + 1))
    assert RATE_RATIO ** steps[0] <= np.mean(list(series.values())) * (1 + 1e-9)
    assert RATE_RATIO ** steps[-1] >= max(series.values()) * (1 - 1e-9)
    assert points[-1][1] == max(series.values()), "at a rate above every second, the largest second must fit"


@given(SERIES)
def test_the_curve_falls_with_the_rate_and_is_convex(series: dict[int, int]) -> None:
    points = [(RATE_RATIO**step, value) for step, value in curve(*arrays(series))]
    slopes = [(right[1] - left[1]) / (right[0] - left[0]) for left, right in pairwise(points)]
    assert all(slope <= 0 for slope in slopes)
    # values are rounded up to whole numbers, rates are at least 0.15 apart
    assert all(later >= earlier - 2 / (RATE_RATIO - 1) for earlier, later in pairwise(slopes))


@given(SERIES, st.data())
def test_a_straight_line_between_two_points_never_promises_less_than_is_needed(series: dict[int, int], data: st.DataObject) -> None:
    points = curve(*arrays(series))
    if len(points) < 2:
        return
    (low, at_low), (high, at_high) = data.draw(st.sampled_from(list(pairwise(points))))
    part = data.draw(st.floats(0, 1))
    r_low, r_high = RATE_RATIO**low, RATE_RATIO**high
    rate = r_low + (r_high - r_low) * part
    assert at_low + (at_high - at_low) * part >= burst(*arrays(series), rate) - 1


def test_a_constant_series_has_a_grid_of_its_one_value() -> None:
    assert list(grid(1.0, 1)) == [0]


@pytest.mark.parametrize("amount", [10**12, 2**40 + 1])
def test_large_amounts_stay_exact(amount: int) -> None:
    ticks = np.arange(0, 86_400, 3600, dtype=np.int64)
    assert burst(ticks, np.full(24, amount, dtype=np.int64), amount) == amount
