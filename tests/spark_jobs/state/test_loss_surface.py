"""The loss surface against a bucket that is replayed second by second in plain Python."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.state import loss_surface
from spark_jobs.state.loss_surface import BURSTS_S, OVERLOADS, RATIO, Surface, Surfaces, compute_surfaces, find_need, find_overload_rates

DAY = 86_400


def refused(ticks: list[int], amounts: list[float], rate: float, burst: float) -> float:
    """The oracle: one bucket, full at the day's begin."""
    level, before, lost = burst, ticks[0] if ticks else 0, 0.0
    for tick, amount in zip(ticks, amounts, strict=True):
        level = min(burst, level + rate * (tick - before))
        passed = min(level, amount)
        lost += amount - passed
        level -= passed
        before = tick
    return lost


def a_day(seed: int, seconds: int, mean: float, *, dense: bool = False) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    ticks = np.arange(seconds) if dense else np.sort(rng.choice(DAY, seconds, replace=False))
    return ticks.astype(np.int64), np.ceil(rng.gamma(0.5, 2 * mean, seconds)).astype(np.float64)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 200)), min_size=1, max_size=60))
def test_every_grid_point_is_the_exact_replay(arrivals: list[tuple[int, int]]) -> None:
    ticks = list(np.cumsum([gap for gap, _ in arrivals]))
    amounts = [float(amount) for _, amount in arrivals]
    (surface,) = compute_surfaces([(np.array(ticks), np.array(amounts))], 300)
    assert surface.total == sum(amounts)
    for i, row in enumerate(surface.losses):
        rate = RATIO ** (surface.first_step + i)
        for b, seconds in enumerate(BURSTS_S):
            burst = max(math.ceil(seconds * rate - 1e-9), 3)
            exact = refused(ticks, amounts, rate, burst)
            assert row[b] == pytest.approx(exact, rel=1e-5, abs=1e-4)
            assert surface.interpolate_loss(rate, burst) == pytest.approx(exact, rel=1e-5, abs=1e-4)
    above = RATIO ** (surface.first_step + len(surface.losses))
    assert refused(ticks, amounts, above, max(math.ceil(above - 1e-9), 3)) == pytest.approx(0, abs=1e-4)
    assert surface.interpolate_loss(above, max(math.ceil(above), 3)) == 0


def test_topics_of_any_length_in_one_batch_come_out_as_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    days = [a_day(seed, seconds, mean) for seed, (seconds, mean) in enumerate([(3, 1), (900, 40), (1, 5000), (77, 0.1), (300, 9)])]
    alone = [compute_surfaces([day], DAY)[0] for day in days]
    monkeypatch.setattr(loss_surface, "MAX_BLOCK", 2000)
    monkeypatch.setattr(loss_surface, "MAX_STEPS", 64)
    for one, other in zip(alone, compute_surfaces(days, DAY), strict=True):
        assert (one.first_step, one.total) == (other.first_step, other.total)
        np.testing.assert_array_equal(one.losses, other.losses)


def test_between_grid_points_and_bursts_the_error_is_small() -> None:
    rng = np.random.default_rng(5)
    for seed, (seconds, mean, dense) in enumerate([(3000, 20, True), (2000, 3, False), (400, 100, False), (50, 8, False)]):
        ticks, amounts = a_day(seed, seconds, mean, dense=dense)
        span = seconds if dense else DAY
        (surface,) = compute_surfaces([(ticks, amounts)], span)
        for _ in range(40):
            rate = float(np.exp(rng.uniform(np.log(amounts.sum() / span / 10), np.log(amounts.max()))))
            burst = max(rng.uniform(1, 30) * rate, 3.0)
            error = surface.interpolate_loss(rate, burst) - refused(list(ticks), list(amounts), rate, burst)
            assert -0.03 * surface.total <= error <= 0.1 * surface.total
            burst = max(math.ceil(10 * rate), 3)  # as quotas have it
            error = surface.interpolate_loss(rate, burst) - refused(list(ticks), list(amounts), rate, burst)
            assert abs(error) <= 0.04 * surface.total


def test_below_the_grid_the_loss_goes_straight_to_the_whole_demand() -> None:
    (surface,) = compute_surfaces([a_day(1, 500, 10)], DAY)
    least = RATIO**surface.first_step
    first = surface.interpolate_loss(least, 3)
    assert surface.interpolate_loss(least / 2, 3) == pytest.approx((surface.total + first) / 2)
    assert surface.interpolate_loss(0, 3) == surface.total
    assert np.isnan(Surfaces([surface]).interpolate_loss(np.array([np.nan]), np.array([3.0])))[0]


@pytest.mark.parametrize(("seconds", "mean", "dense"), [(3000, 20.0, True), (1500, 3.0, False), (60, 300.0, False)])
def test_need_is_the_least_rate_that_refuses_a_thousandth(seconds: int, mean: float, dense: bool) -> None:
    ticks, amounts = a_day(9, seconds, mean, dense=dense)
    (surface,) = compute_surfaces([(ticks, amounts)], seconds if dense else DAY)
    found = find_need(surface, surface.total)

    def share(rate: float) -> float:
        return refused(list(ticks), list(amounts), rate, max(math.ceil(10 * rate), 3)) / surface.total

    assert share(found * RATIO) <= 0.001
    assert share(found / RATIO) > 0.001


def test_a_day_that_fits_the_smallest_bucket_needs_the_least_rate() -> None:
    one, none = compute_surfaces([(np.array([7]), np.array([3.0])), (np.array([], np.int64), np.array([]))], DAY)
    assert (len(one.losses), one.interpolate_loss(0.0001, 3), one.total) == (0, 0, 3)
    assert find_need(one, 3) == RATIO**one.first_step < 3 / DAY
    assert (len(none.losses), none.interpolate_loss(1, 3)) == (0, 0)


def seconds_of_overload(ticks: list[int], amounts: list[float], rate: float) -> float:
    """How many messages less are refused for each message per second more, by exact replay around `rate`."""
    low, high = rate / RATIO, rate * RATIO
    lost = [refused(ticks, amounts, each, max(math.ceil(10 * each), 3)) for each in (low, high)]
    return (lost[0] - lost[1]) / (high - low)


@pytest.mark.parametrize(("seconds", "mean", "dense"), [(3000, 20.0, True), (1500, 30.0, False)])
def test_overloads_are_the_rates_that_refuse_so_many_seconds(seconds: int, mean: float, dense: bool) -> None:
    ticks, amounts = a_day(9, seconds, mean, dense=dense)
    span = seconds if dense else DAY
    (surface,) = compute_surfaces([(ticks, amounts)], span)
    rates = find_overload_rates(surface, span)
    assert rates == sorted(rates)
    checked = 0
    for share, rate in zip(OVERLOADS, rates, strict=True):
        if RATIO**surface.first_step < rate < RATIO ** (surface.first_step + len(surface.losses) - 2) and share * span >= 10:
            assert seconds_of_overload(list(ticks), list(amounts), rate * RATIO**2) <= 1.25 * share * span
            assert seconds_of_overload(list(ticks), list(amounts), rate / RATIO**2) >= 0.8 * share * span
            checked += 1
    assert checked >= 2


def test_a_job_overloads_every_rate_below_it_for_as_long_as_it_lasts() -> None:
    """1,000 seconds of 100/s are 1.2 % of a day: at most shares of the time below that, a rate near 100; at larger ones the least."""
    (surface,) = compute_surfaces([(np.arange(1000, 2000), np.full(1000, 100.0))], DAY)
    rates = dict(zip(OVERLOADS, find_overload_rates(surface, DAY), strict=True))
    assert all(rates[share] == pytest.approx(100, rel=0.15) for share in OVERLOADS if share <= 0.01)
    assert rates[0.03] <= 2 * RATIO**surface.first_step


def test_a_day_that_overloads_nothing_has_the_least_rate() -> None:
    (one,) = compute_surfaces([(np.array([7]), np.array([3.0]))], DAY)
    assert find_overload_rates(one, DAY) == [RATIO**one.first_step] * len(OVERLOADS)


def test_many_topics_are_asked_at_once() -> None:
    found = compute_surfaces([a_day(seed, 200 + 30 * seed, 5 + seed) for seed in range(7)], DAY)
    rates = np.array([0.001, 0.05, 0.3, 1, 4, 40, 4000])
    bursts = np.array([3, 3, 5, 10, 100, 200, 9000.0])
    at_once = Surfaces(found).interpolate_loss(rates, bursts)
    assert list(at_once) == [surface.interpolate_loss(rate, burst) for surface, rate, burst in zip(found, rates, bursts, strict=True)]
    assert len(Surfaces([]).interpolate_loss(np.zeros(0), np.zeros(0))) == 0
    assert Surface(0, np.zeros((0, 5), np.float32), 0.0).interpolate_loss(1, 1) == 0


def test_no_observed_second_is_an_error() -> None:
    with pytest.raises(ValueError, match="span_s: 0 observed seconds"):
        compute_surfaces([], 0)
