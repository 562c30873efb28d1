"""k: calibrated from judged days, slow, and a function of them only."""

from __future__ import annotations

import numpy as np
import pytest

from spark_jobs.method.scale import (
    GRID,
    LEAST,
    MAX_CHANGE,
    MIN_DAYS,
    MOST,
    PRIOR,
    STEP,
    Judged,
    adjust_k,
    compute_bursts,
    count_effective_topics,
    find_least_k,
    judge,
    predict_change,
)
from spark_jobs.state.loss_surface import Surfaces, compute_surfaces


def day(enough: float, offered: float = 1e6, topics: float = 1e6) -> Judged:
    """A day of so many topics that refuses 1 % below k = `enough` and nothing from there on."""
    return Judged([0.01 * offered if k < enough else 0.0 for k in GRID], offered, topics)


def test_the_prior_stands_until_seven_days_are_judged() -> None:
    assert adjust_k([day(10)] * (MIN_DAYS - 1), 0.001, None) == PRIOR
    assert adjust_k([day(10)] * (MIN_DAYS - 1), 0.001, 3.0) == 3.0
    assert adjust_k([None] * 50, 0.001, None) == PRIOR
    assert adjust_k([day(10, offered=0)] * 50, 0.001, None) == PRIOR, "on which nothing was sent"
    assert adjust_k([*[day(10, offered=0)] * 50, *[day(10)] * MIN_DAYS], 0.001, None) > PRIOR


@pytest.mark.parametrize("enough", [5.0, 1.0])
def test_it_moves_at_most_a_fiftieth_a_night_either_way_and_arrives(enough: float) -> None:
    days = [day(enough)] * MIN_DAYS
    k, walked = PRIOR, []
    for _ in range(60):
        k = adjust_k(days, 0.001, k)
        walked.append(k)
    assert max(walked[0] / PRIOR, PRIOR / walked[0]) == pytest.approx(MAX_CHANGE) == pytest.approx(1.02)
    assert walked[-1] == walked[-2] == pytest.approx(enough, rel=0.1)


def event(size: float) -> Judged:
    """A day that refuses `size` of a million at all k up to 5."""
    return Judged([size if k < 5 else 0.0 for k in GRID], 1e6, 1e6)


@pytest.mark.parametrize(
    ("nights", "moves"),
    [
        ([event(130_000)], 0),  # one opening day took k from 2 to 4 in ten nights
        ([event(130_000), event(130_000)], 1),
        ([event(500)], -1),  # within the target: less would do
    ],
)
def test_one_night_never_raises_it(nights: list[Judged], moves: int) -> None:
    quiet = [event(0)] * 20
    k = adjust_k([*quiet, *nights], 0.001, 3.0)
    assert np.sign(round(k - 3.0, 9)) == moves
    while_it_is_remembered = [adjust_k([*quiet, *nights, *quiet[:at]], 0.001, 3.0) for at in range(20)]
    assert all(np.sign(round(each - 3.0, 9)) == moves for each in while_it_is_remembered)


def test_it_stays_within_its_bounds() -> None:
    assert adjust_k([day(0.1)] * 9, 0.001, LEAST) == LEAST
    assert adjust_k([day(1000)] * 9, 0.001, MOST) == MOST
    assert GRID[0] == LEAST
    assert GRID[-1] <= MOST < GRID[-1] * STEP, "the grid goes as far as k may"


def test_the_least_sufficient_k_is_found_between_the_grid_points_and_recent_days_count_more() -> None:
    offered = 1e6
    graded = Judged([offered * 0.01 / k for k in GRID], offered, 1e6)
    assert find_least_k([graded], 0.001) == pytest.approx(10, rel=0.05)
    assert find_least_k([], 0.001) is None
    late, early = find_least_k([day(2), day(8)], 0.0051), find_least_k([day(8), day(2)], 0.0049)
    assert late is not None
    assert early is not None
    assert late >= 2
    assert early <= 8


def test_nights_without_refusals_lower_k_only_as_far_as_they_are_evidence() -> None:
    def after(nights: int, topics: float) -> float:
        found = find_least_k([day(0.1, topics=topics)] * nights, 0.001)
        assert found is not None
        return found

    assert after(7, 1) == pytest.approx(PRIOR, rel=0.02), "a week of one topic says nothing of events that come once a month"
    assert PRIOR > after(40, 1) > after(60, 1) > 1
    assert after(60, 2) < after(60, 1)
    assert after(7, 10) < 1
    assert after(1, 100) == LEAST


def test_doubt_does_not_hide_what_was_refused() -> None:
    few, many = (find_least_k([day(6.0, topics=topics)] * 60, 0.001) for topics in (1, 1000))
    assert few is not None
    assert many is not None
    assert 5.4 < many <= few < 6.6


def test_a_day_says_how_many_topics_it_is_worth() -> None:
    assert count_effective_topics(np.array([5.0] * 8)) == count_effective_topics(np.array([0.01] * 8)) == pytest.approx(8)
    assert count_effective_topics(np.array([1e6, 1.0, 1.0])) == pytest.approx(1, abs=0.01)
    assert count_effective_topics(np.zeros(3)) == count_effective_topics(np.zeros(0)) == 1


def test_a_day_is_judged_as_its_surfaces_say() -> None:
    ticks, amounts = np.arange(1000), np.full(1000, 10.0)
    found = Surfaces(compute_surfaces([(ticks, amounts)], 1000))
    judged = judge(np.array([10.0]), np.array([1.0]), found, 1 / 60)
    assert judged.offered == 10_000
    assert judged.refused[0] == pytest.approx(3000 - 70, rel=0.02)
    assert judged.refused[-1] == 0
    assert list(compute_bursts(np.array([0.01, 5.0]), np.array([1.0, 900.0]))) == [3, 900]
    nobody = judge(np.array([np.nan]), np.array([1.0]), found, 1 / 60)
    assert (nobody.offered, sum(nobody.refused)) == (0, 0)


@pytest.mark.parametrize(
    ("k", "target", "found"),
    [
        (2.0, 0.001, (0.0, 1.0)),  # too much was refused: k rises
        (2.0, 0.1, (1.0, 1.02**14)),  # it falls
        (3.0, 0.001, (0.0, 2 / 3)),  # it has risen
    ],
)
def test_what_a_month_to_come_refuses_beside_the_past_one_is_told_by_its_k(k: float, target: float, found: tuple[float, float]) -> None:
    days = [Judged([1e4 / each for each in GRID], 1e6)] * 28  # in inverse proportion to k, half a percent at 2
    assert predict_change(days, [2.0] * 28, k, target) == pytest.approx(found, rel=0.01)
    assert predict_change([], [], k, target) == (1.0, 1.0)
