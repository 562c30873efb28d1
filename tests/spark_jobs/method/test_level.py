"""The forecast of the level."""

from __future__ import annotations

import numpy as np
import pytest

from spark_jobs.method.level import forecast, forecast_each_day, trend, weighted_mean, weights
from spark_jobs.method.memory import Floats
from spark_jobs.parameters import Parameters

MONDAY_ON = np.arange(60) % 7


def test_days_weigh_by_age_kind_and_weekday() -> None:
    found = weights(MONDAY_ON, 15, 7.0)  # a Tuesday
    assert found[14] == 1  # Monday, yesterday
    assert found[8] == pytest.approx(4 * 0.5 ** (6 / 7))  # Tuesday a week ago
    assert found[13] == pytest.approx(0.05 * 0.5 ** (1 / 7))  # Sunday


def test_where_nothing_is_said_a_day_a_week_older_weighs_half() -> None:
    values = np.random.default_rng(2).gamma(1, 10, (3, 30))
    week = float(Parameters().half_life_days)
    for function in (forecast, weighted_mean):
        np.testing.assert_array_equal(function(values, MONDAY_ON, 20), function(values, MONDAY_ON, 20, week))
    np.testing.assert_array_equal(forecast_each_day(values, MONDAY_ON), forecast_each_day(values, MONDAY_ON, week))


def test_a_constant_topic_is_forecast_exactly_and_an_unknown_one_not_at_all() -> None:
    values = np.full((3, 20), 5.0)
    values[1] = np.nan
    values[2, ::3] = np.nan
    found = forecast(values, MONDAY_ON, 20)
    assert list(found[[0, 2]]) == pytest.approx([5, 5])
    assert np.isnan(found[1])
    assert np.isnan(forecast(values, MONDAY_ON, 0)).all()


def test_week_ends_are_learned() -> None:
    values = np.where(MONDAY_ON[:28] >= 5, 10.0, 100.0)[None, :]
    assert 10 <= forecast(values, MONDAY_ON, 26)[0] < 20  # Saturday; working days count a twentieth
    assert forecast(values[:, :28], MONDAY_ON, 28)[0] == pytest.approx(100, rel=0.05)  # Monday


def test_growth_carries_on_by_half_and_at_most_twice() -> None:
    growing = 100 * 1.05 ** np.arange(21.0)[None, :]
    assert trend(growing)[0] == pytest.approx(1.05**3.5)
    assert trend(growing[:, :7])[0] == 1
    assert trend(100 * 4.0 ** np.arange(21.0)[None, :])[0] == pytest.approx(2**0.5)


def test_the_forecast_is_at_least_yesterday_of_the_same_kind_and_a_part_of_the_busiest_day() -> None:
    values = np.full((1, 10), 2.0)
    values[0, 9] = 50
    assert forecast(values, MONDAY_ON, 10)[0] >= 50
    values = np.zeros((1, 25))
    values[0, 6] = 1000  # a Sunday: a Friday's mean has next to nothing of it
    assert forecast(values, MONDAY_ON, 25)[0] == pytest.approx(5)


@pytest.mark.parametrize("rate", [1.0, 0.01])
def test_a_move_on_the_week_end_is_carried_into_monday_and_a_single_event_is_not(rate: float) -> None:
    def forecast_of(values: Floats) -> float:
        return float(forecast(rate * values, MONDAY_ON, 14)[0] / rate)

    values = np.where(MONDAY_ON[:14] >= 5, 10.0, 20.0)[None, :]
    still = forecast_of(values)
    event = values.copy()
    event[0, 13] = 40
    assert forecast_of(event) < 1.5 * still
    moved = values.copy()
    moved[0, 12:] = 30  # three times the Saturday and the Sunday before
    assert forecast_of(moved) == pytest.approx(60)
    moved[0, 12:] = 1000
    assert forecast_of(moved) < 10 * still, "a hundred times is not believed at once"


def test_nothing_is_carried_in_the_first_two_weeks_of_a_topic() -> None:
    values = np.where(MONDAY_ON[:21] >= 5, 10.0, 20.0)[None, :].repeat(2, axis=0)
    values[:, 19:] = 30
    values[1, :8] = np.nan  # not seen before; both have a week before to compare with
    old, new = forecast(values, MONDAY_ON, 21)
    assert old == pytest.approx(60)
    assert new < 30


def test_no_forecast_knows_its_own_day_or_a_later_one() -> None:
    values = np.random.default_rng(1).gamma(1, 10, (4, 30))
    whole = forecast_each_day(values, MONDAY_ON)
    for day in range(1, 30):
        cut = values.copy()
        cut[:, day:] = np.nan
        np.testing.assert_array_equal(whole[:, day], forecast(cut, MONDAY_ON, day))
        np.testing.assert_array_equal(weighted_mean(values, MONDAY_ON, day), weighted_mean(cut, MONDAY_ON, day))
