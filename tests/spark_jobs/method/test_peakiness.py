"""The shape of a topic: base, level, peakiness."""

from __future__ import annotations

import numpy as np
import pytest

from spark_jobs.method.peakiness import SPREADS, average_earlier_days, estimate_shape, trust_in_level
from spark_jobs.method.residuals import Residuals
from support.quota_weeks.memories import memory_of

RANDOM = np.random.default_rng(3)


def test_a_steady_topic_s_base_is_its_need_and_a_little() -> None:
    found = estimate_shape(memory_of(np.full((1, 30), 10.0), need=25.0))
    assert found.level[0] == pytest.approx(10)
    assert 25 <= found.base[0] <= 25 * np.exp(SPREADS * 0.2)
    assert found.peakiness[0] == pytest.approx(found.base[0] / 10)


def test_of_two_topics_with_the_same_mean_need_the_one_whose_days_differ_gets_more() -> None:
    swing = np.exp(0.5 * RANDOM.standard_normal(60))
    calm, wild = np.full(60, 20.0), 20.0 * swing / np.exp(np.log(swing).mean())
    found = estimate_shape(memory_of(np.full((2, 60), 10.0), need=np.stack([calm, wild])))
    assert found.base[1] > 1.1 * found.base[0]


def test_a_topic_of_jobs_needs_the_size_of_one_however_many_there_are() -> None:
    """The level differs fivefold from day to day, the need does not: the base must not follow yesterday's level."""
    level = np.where(np.arange(40) % 2, 5.0, 1.0)[None, :]
    found = [estimate_shape(memory_of(level[:, :days], need=300.0)).base[0] for days in (38, 39, 40)]
    assert max(found) <= 1.15 * min(found)
    assert 300 <= found[-1] <= 500


def test_a_topic_that_needs_more_when_it_sends_more_follows_its_level() -> None:
    level = np.concatenate([np.full(30, 10.0), np.full(5, 40.0)])[None, :]
    found = estimate_shape(memory_of(level, need=3 * level))
    assert found.base[0] == pytest.approx(120, rel=0.35)


def test_an_event_now_and_then_does_not_move_the_base() -> None:
    """Nobody knows when the next one comes: what is reserved for it is k's, and the same on all days."""
    level = np.where(np.arange(40) % 7 >= 5, 5.0, 10.0)[None, :]
    need = 2.5 * level
    calm = [estimate_shape(memory_of(level[:, :days], need=need[:, :days])).base[0] for days in range(21, 40)]
    need[0, [23, 29, 36]] = 120.0
    eventful = [estimate_shape(memory_of(level[:, :days], need=need[:, :days])).base[0] for days in range(21, 40)]
    assert eventful == pytest.approx(calm, rel=0.12)


def test_a_topic_of_jobs_has_most_of_the_size_of_one_after_few_days_most_of_them_without() -> None:
    """A k of 2 holds two thirds of the largest job; by the mean of the logarithms, 24, it would hold a fifth."""
    found = estimate_shape(memory_of([[10.6, 2.1, 2.7, 1.9]], need=[[257.0, 4.0, 83.0, 4.0]]))
    assert 2 * found.base[0] >= 257 * 2 / 3


def test_a_topic_of_jobs_keeps_its_base_on_week_ends_without_one() -> None:
    """A week-end without jobs has a low level; the next job is as large as ever."""
    weekday = np.arange(42) % 7
    level, need = np.where(weekday >= 5, 1.0, 10.0)[None, :], np.where(weekday >= 5, 2.0, 300.0)[None, :]
    level = level * np.exp(0.6 * RANDOM.standard_normal(level.shape))
    found = [estimate_shape(memory_of(level[:, :days], need=need[:, :days])).base[0] for days in range(35, 42)]
    assert min(found) >= 200


def test_a_new_topic_has_the_fleet_s_peakiness_and_the_first_of_all_its_own() -> None:
    fleet = np.full((2, 20), 10.0)
    fleet[1, :19] = np.nan
    need = np.where(np.isnan(fleet), np.nan, 40.0)
    found = estimate_shape(memory_of(fleet, need=need))
    assert found.peakiness[1] == pytest.approx(found.peakiness[0], rel=0.3)
    fleet[1, 18], need[1, 18:] = 10, 10
    quiet = estimate_shape(memory_of(fleet, need=need))
    assert quiet.peakiness[1] > 1.3, "in its first days the larger prediction counts, and the fleet's is four"
    alone = estimate_shape(memory_of([[10.0]], need=[[40.0]]))
    assert alone.base[0] == pytest.approx(40)


def test_a_sparse_topic_gets_the_mean_of_all_its_needs() -> None:
    """Whatever the weekday, and however much the last one needed: what a few messages need is chance."""
    needs = np.tile([0.02, 0.08], 10)[None, :]
    found = estimate_shape(memory_of(np.full((1, 20), 0.002), need=needs, messages=170.0))
    assert found.base[0] == pytest.approx(0.05, rel=0.01)


def test_a_silent_day_needs_nothing() -> None:
    active = np.arange(20) % 2 == 0
    found = estimate_shape(memory_of([np.where(active, 0.002, 0.0)], need=[np.where(active, 0.05, np.nan)], messages=170.0))
    assert 0.01 < found.base[0] < 0.05


def test_the_level_is_trusted_by_the_days_on_which_both_predictions_were_seen() -> None:
    """Twice the variance: of one day it counts a third, and the less the more days have told so."""

    def trust(level_days: float, need_days: float, usual: float = 1.0) -> float:
        level, needs = (
            Residuals(*(np.array([each]) for each in (days, days, 0.0, 0.0, variance, about)))
            for days, variance, about in ((level_days, 2.0, usual), (need_days, 1.0, 1.0))
        )
        return float(trust_in_level(level, needs)[0])

    assert trust(0, 0) == trust(30, 0) == trust(0, 30) == pytest.approx(1 / 3)
    assert trust(10, 30) == trust(30, 10) == pytest.approx(1 / 5)
    assert trust(10, 10, usual=0.5) == pytest.approx(1 / 2), "it is as good on usual days as on all"


def test_each_topic_has_its_base_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = memory_of(np.full((5, 20), 10.0) * np.arange(1, 6)[:, None])
    whole = estimate_shape(memory)
    monkeypatch.setattr("spark_jobs.method.peakiness.BLOCK", 2)
    for blocks, each in zip(estimate_shape(memory), whole, strict=True):
        np.testing.assert_allclose(blocks, each)


def test_a_topic_that_nobody_knows_has_no_base() -> None:
    found = estimate_shape(memory_of(np.full((1, 5), np.nan), need=np.nan, messages=np.nan))
    assert np.isnan(found.base[0])


def test_a_mean_of_earlier_days_knows_no_later_one() -> None:
    found = average_earlier_days(np.array([[np.nan, 4.0, 0.0, np.nan, 5.0]]))
    np.testing.assert_array_equal(found, [[np.nan, np.nan, 4, 2, 2, 3]])
