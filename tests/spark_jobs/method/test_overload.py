"""The rate that a topic of jobs is expected to exceed for a fixed share of its time."""

from __future__ import annotations

import numpy as np
import pytest

from spark_jobs.days import Day
from spark_jobs.method.memory import Memory
from spark_jobs.method.overload import MOST_LOST, SHARE, find_sufficient_rates
from spark_jobs.method.peakiness import JOBS, estimate_job_share, estimate_shape
from spark_jobs.method.remember import find_keys
from spark_jobs.state.topic_day import make_topic_rows
from support.quota_weeks.memories import memory_of, remember
from support.quota_weeks.nights import topic_seconds

import pyarrow as pa  # isort: skip

SECONDS = 20_000
DATES = [f"2026-03-{day:02}" for day in range(2, 16)]


def jobs(rates: list[float], length: int, trickle: float = 0.0) -> np.ndarray:
    """A day of jobs of `length` seconds, one after the other with pauses between them."""
    found = np.full(SECONDS, trickle)
    for at, rate in enumerate(rates):
        found[500 + at * 2 * length : 500 + at * 2 * length + length] = rate
    return found.astype(np.int64)


def remembered(days: list[dict[str, np.ndarray]]) -> Memory:
    tables = [
        make_topic_rows([topic_seconds(name, Day(date), counts) for name, counts in topics.items()], Day(date), SECONDS)
        for date, topics in zip(DATES, days, strict=False)
    ]
    table = pa.concat_tables(tables)
    return remember(table, dict.fromkeys(DATES[: len(days)], SECONDS), "messages", find_keys(table))


def test_of_jobs_of_one_size_the_rate_is_their_size_and_something_more_the_fewer_were_seen() -> None:
    found = [find_sufficient_rates(remembered([{"a": jobs([200.0] * 4, 60)}] * days))[0] for days in (3, 7, 14)]
    assert SHARE < 0.0117, "four jobs of a minute, of 20,000 s"
    assert found == sorted(found, reverse=True)
    assert found[-1] == pytest.approx(230, rel=0.15)
    assert found[0] < 1.5 * 200


def test_a_large_job_among_many_does_not_decide_alone() -> None:
    usual = [{"a": jobs([150.0, 200.0, 250.0], 60)}] * 13
    without, with_it = (find_sufficient_rates(remembered([*usual, {"a": jobs([last], 20)}]))[0] for last in (200.0, 1_000.0))
    assert without < with_it < 1.5 * without


def test_of_a_topic_without_jobs_nothing_is_said() -> None:
    rng = np.random.default_rng(5)
    memory = remembered([{"busy": jobs([100.0], 60), "even": rng.poisson(10, SECONDS)}] * 7)
    at = [topic for _, topic in memory.keys].index("even")
    found = find_sufficient_rates(memory)
    assert np.isnan(found[at])
    assert np.isfinite(found[1 - at])


def test_a_topic_without_jobs_says_nothing_of_the_others() -> None:
    """It has no jobs whose rates are alike, nor any that are not. Of two days alone the fleet's say much."""
    busy = {"busy": jobs([200.0] * 10, 100)}
    alone = find_sufficient_rates(remembered([busy] * 2))
    beside = find_sufficient_rates(remembered([busy | {"even": np.ones(SECONDS, np.int64)}] * 2))
    assert beside[0] == pytest.approx(alone[0], rel=0.03)


def test_only_the_topics_that_are_asked_for_and_as_many_as_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    days = [{name: jobs([rate, 2 * rate], 60) for name, rate in (("a", 50.0), ("b", 100.0), ("c", 200.0))}] * 5
    memory = remembered(days)
    whole = find_sufficient_rates(memory)
    np.testing.assert_allclose(find_sufficient_rates(memory, np.array([0, 2]))[[0, 2]], whole[[0, 2]], rtol=0.1)
    assert np.isnan(find_sufficient_rates(memory, np.array([0, 2]))[1])
    monkeypatch.setattr("spark_jobs.method.overload.BLOCK", 2)
    np.testing.assert_allclose(find_sufficient_rates(memory), whole)


def test_the_rate_is_exceeded_for_the_same_time_by_topics_of_all_kinds_of_jobs() -> None:
    """Many short jobs and few long ones with the same sizes: the longer they last together, the higher the rate."""
    sizes = [60.0, 100.0, 150.0, 220.0, 320.0]
    memory = remembered([{"long": jobs(sizes, 90), "short": jobs(sizes, 18)}] * 7)
    long, short = find_sufficient_rates(memory)
    assert long > 1.2 * short


def test_one_short_job_in_weeks_is_not_forgotten_though_it_takes_less_than_the_share_of_the_time() -> None:
    """A fifth of a thousandth of the time, and most messages: at most three in a hundred of them would be lost."""
    days = [{"a": jobs([], 1, trickle=0.0) + (np.arange(SECONDS) % 100 == 0)}] * 13
    memory = remembered([*days, {"a": jobs([300.0], 60)}])
    assert 60 / SECONDS / 14 < SHARE
    assert find_sufficient_rates(memory)[0] >= 0.6 * 300 * (1 - 3 * MOST_LOST)


def test_days_of_older_states_say_nothing_and_silent_ones_before_the_first_known_neither() -> None:
    mean = np.array([[5.0, 0.0, 5.0], [5.0, 0.0, 5.0]])
    rates = np.full((2, 3, 7), np.nan)
    rates[0, 2] = [0.1, 0.1, 50.0, 60.0, 70.0, 80.0, 90.0]
    memory = memory_of(mean, overloaded=rates)
    later = memory_of(mean[:, 2:], overloaded=rates[:, 2:])
    assert find_sufficient_rates(memory)[0] == pytest.approx(find_sufficient_rates(later)[0])
    assert np.isnan(find_sufficient_rates(memory)[1])


@pytest.mark.parametrize("factor", [1000.0, 0.01])
def test_rates_are_in_proportion_to_the_demand(factor: float) -> None:
    rates = np.broadcast_to([1.0, 1.0, 5.0, 25.0, 50.0, 100.0, 200.0], (2, 3, 7)) * np.array([1.0, 2.0])[:, None, None]
    found, other = (find_sufficient_rates(memory_of(np.full((2, 3), 5.0) * by, overloaded=rates * by)) for by in (1.0, factor))
    np.testing.assert_allclose(other, factor * found, rtol=1e-6)


def test_what_is_a_topic_of_jobs() -> None:
    low, high = JOBS
    np.testing.assert_allclose(estimate_job_share(np.array([2.0, low, np.sqrt(low * high), high, 300.0, np.inf])), [0, 0, 0.5, 1, 1, 1])


def test_no_day_at_all_and_days_without_demand() -> None:
    assert np.isnan(find_sufficient_rates(memory_of(np.zeros((2, 0))))).all()
    with np.errstate(all="raise"):
        assert np.isnan(find_sufficient_rates(memory_of(np.zeros((2, 3))))).all()
        assert np.isnan(find_sufficient_rates(memory_of(np.full((2, 3), 5.0), overloaded=np.full((2, 3, 7), 5.0)))).all()


def test_a_topic_whose_level_is_trusted_is_left_alone_and_one_of_jobs_is_not() -> None:
    growing, jumping = 2 ** (np.arange(40) / 5)[None, :], np.exp(np.random.default_rng(3).standard_normal(40))[None, :]
    topics = [(growing, 3 * growing), (jumping, np.full((1, 40), 300.0))]
    rates = np.broadcast_to([1.0, 1.0, 75.0, 75.0, 75.0, 75.0, 75.0], (1, 40, 7))  # 75/s for a hundredth of the time
    with_rates = [estimate_shape(memory_of(level, need=need, overloaded=rates)).base[0] for level, need in topics]
    without = [estimate_shape(memory_of(level, need=need)).base[0] for level, need in topics]
    assert with_rates[0] == pytest.approx(without[0], rel=0.05)
    assert with_rates[1] == pytest.approx(75, rel=0.3)
    assert without[1] > 250
