"""Pacing: evenly, without a burst. The properties every rate has are in contracts/test_rates.py."""

from __future__ import annotations

from itertools import pairwise

import pytest

from limiter.algorithms import ALGORITHMS
from limiter.algorithms.base import Algorithm
from limiter.algorithms.pacing import TOLERANCE_NS
from limiter.limits import Limit, Rate

SECOND = 1_000_000_000
MS = 1_000_000
BEGIN = 7 * SECOND


def pace_of(messages: Rate | None, size: Rate | None = None) -> Algorithm:
    return ALGORITHMS["pacing"](Limit(messages=messages, bytes=size), BEGIN)


def passing_times(bucket: Algorithm, count: int, now: int) -> list[int]:
    """When `count` requests of one message pass, each asked again after exactly its wait."""
    times = []
    for _ in range(count):
        now += bucket.wait_ns(1, 0, now)
        assert bucket.available(1, 1, 0, now) == 1
        bucket.take(1, 1, 0)
        times.append(now)
    return times


def test_messages_pass_one_interval_apart() -> None:
    times = passing_times(pace_of(Rate(50)), 6, BEGIN)
    gaps = [after - before for before, after in pairwise(times)]
    assert gaps == [10 * MS, 20 * MS, 20 * MS, 20 * MS, 20 * MS]  # the first by what may be made up for


@pytest.mark.parametrize(("rate", "at_once"), [(1, 1), (99, 1), (100, 2), (1000, 11), (1_000_000, 10_001)])
def test_after_a_pause_the_messages_that_may_be_made_up_for_and_one_more_pass_at_once(rate: int, at_once: int) -> None:
    assert pace_of(Rate(rate)).available(10**6, 1, 0, BEGIN + 3600 * SECOND) == at_once


def test_an_interval_that_is_no_whole_number_of_nanoseconds_loses_nothing() -> None:
    times = passing_times(pace_of(Rate(3)), 3001, BEGIN)
    assert times[-1] - BEGIN == 1000 * SECOND - TOLERANCE_NS


def test_a_caller_that_comes_late_makes_up_for_the_time_missed() -> None:
    """A loop that looks only every 7 ms: the naive way would pass 143 in a second."""
    bucket = pace_of(Rate(1000))
    admitted = 0
    for now in range(BEGIN, BEGIN + SECOND, 7 * MS):
        passed = bucket.available(100, 1, 0, now)
        bucket.take(passed, 1, 0)
        admitted += passed
    assert admitted == 994 + 10 + 1  # due by the last look, at 994 ms; what may be made up for; and one


def test_a_batch_passes_at_once_and_costs_its_intervals() -> None:
    bucket = pace_of(Rate(10))
    assert bucket.available(5, 32, 0, BEGIN) == 1
    bucket.take(1, 32, 0)
    assert bucket.wait_ns(1, 0, BEGIN) == 3200 * MS - TOLERANCE_NS


def test_bytes_are_paced_too() -> None:
    bucket = pace_of(None, Rate(1_000_000))
    bucket.take(1, 1, 500_000)
    assert bucket.wait_ns(1, 1, BEGIN) == SECOND // 2 - TOLERANCE_NS


def test_messages_and_bytes_are_one_decision() -> None:
    bucket = pace_of(Rate(1000), Rate(1000))
    assert bucket.available(50, 1, 5, BEGIN) == 3  # eleven by messages; ten bytes are due, and one more request
    bucket.take(3, 1, 5)
    assert bucket.available(50, 1, 5, BEGIN) == 0
    assert bucket.available(50, 1, 0, BEGIN) == 0  # what is owed in bytes holds up also what has none


def test_a_raised_rate_frees_what_a_large_batch_owes() -> None:
    bucket = pace_of(Rate(1))
    bucket.take(1, 32, 0)
    bucket.change(Limit(messages=Rate(1000)), BEGIN)
    assert bucket.wait_ns(1, 0, BEGIN) <= 33 * MS


def test_a_lowered_rate_does_not_charge_a_large_batch_twice() -> None:
    bucket = pace_of(Rate(1000))
    bucket.take(1, 3200, 0)
    wait = bucket.wait_ns(1, 0, BEGIN)
    bucket.change(Limit(messages=Rate(10)), BEGIN)
    assert wait <= bucket.wait_ns(1, 0, BEGIN) <= wait + 100 * MS


def test_repr_says_what_is_owed() -> None:
    assert repr(pace_of(Rate(50))) == "<Dimensions [<Pace owes -10000000/1 ns, 1 per 20000000 ns>]>"


@pytest.mark.parametrize("cost", [1, 2, 50])
def test_what_is_settled_late_is_a_debt_of_a_bounded_time(cost: int) -> None:
    bucket = pace_of(Rate(1))
    bucket.take(1, 1, 0)
    bucket.settle(cost, 0, SECOND // 2, BEGIN)
    assert bucket.wait_ns(1, 0, BEGIN) == SECOND - TOLERANCE_NS, "the message that passed is owed already, and no more is added"
