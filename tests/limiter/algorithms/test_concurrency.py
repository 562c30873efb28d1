"""Concurrency as an algorithm: what `tests/contracts` does not ask of it. How slots come back: `test_in_flight.py`."""

from __future__ import annotations

from limiter.algorithms import ALGORITHMS
from limiter.algorithms.base import Algorithm
from limiter.limits import NEVER, Limit, Rate

SECOND = 1_000_000_000
BEGIN = 5 * SECOND


def bucket(concurrent: int, taken: int = 0, **more: object) -> Algorithm:
    made = ALGORITHMS["concurrency"](Limit(concurrent=concurrent, **more), BEGIN)  # type: ignore[arg-type]
    made.take(made.available(taken, 1, 0, BEGIN), 1, 0)
    return made


def test_the_fill_is_what_is_free() -> None:
    assert bucket(4, 1).fill(BEGIN) == 0.75
    assert bucket(4, 4).fill(BEGIN) == 0.0
    lowered = bucket(4, 4)
    lowered.change(Limit(concurrent=2), BEGIN)
    assert lowered.fill(BEGIN) == 0.0


def test_beside_a_rate_the_emptier_counts() -> None:
    assert bucket(4, 1, messages=Rate(2)).fill(BEGIN) == 0.5
    assert bucket(2, 1, messages=Rate(4)).fill(BEGIN) == 0.5


def test_a_rate_of_nothing_beside_it_refuses_everything() -> None:
    empty = bucket(4, messages=Rate(0))
    assert empty.available(1, 1, 0, BEGIN) == 0
    assert empty.wait_ns(1, 0, BEGIN) == NEVER


def test_a_rate_may_come_and_go_with_a_change() -> None:
    one = bucket(4, 1)
    one.change(Limit(concurrent=4, messages=Rate(2)), BEGIN)
    assert one.available(9, 1, 0, BEGIN) == 2
    one.take(2, 1, 0)
    one.change(Limit(concurrent=9, messages=Rate(2)), BEGIN)
    assert one.available(9, 1, 0, BEGIN) == 0
    one.change(Limit(concurrent=9), BEGIN)
    assert one.available(9, 1, 0, BEGIN) == 6


def test_it_is_full_when_nothing_is_in_flight() -> None:
    assert not bucket(4, 1).is_full(BEGIN + 3600 * SECOND)
    assert bucket(4).is_full(BEGIN)


def test_its_own_fill_from_before_a_restart_means_nothing() -> None:
    one = bucket(4)
    one.set_fill(0.0, BEGIN)
    assert one.available(9, 1, 0, BEGIN) == 4


def test_there_is_a_wait_only_where_no_slot_is_free() -> None:
    assert bucket(4, 3).wait_ns(1, 0, BEGIN) == 0
    assert bucket(4, 4).wait_ns(1, 0, BEGIN) > 0
