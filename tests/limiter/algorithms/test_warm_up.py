"""Warm-up: a third of the limit after idleness. The properties every rate has are in contracts/test_rates.py."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limiter.algorithms import ALGORITHMS
from limiter.algorithms.base import Algorithm
from limiter.limits import Limit, Rate
from support.models.algorithms import extra, tokens

SECOND = 1_000_000_000
BEGIN = 7 * SECOND


def warming(rate: int = 1000, over_ns: int = 10 * SECOND, **limit: object) -> Algorithm:
    return ALGORITHMS["warm_up"](Limit(messages=Rate(rate), warm_up_ns=over_ns, **limit), BEGIN)  # type: ignore[arg-type]


def demand(bucket: Algorithm, begin: int, duration_ns: int, step_ns: int = 10_000_000, count: int = 10**9) -> int:
    """How many pass where `count` ask every `step_ns`."""
    admitted = 0
    for now in range(begin, begin + duration_ns, step_ns):
        passed = bucket.available(count, 1, 0, now)
        bucket.take(passed, 1, 0)
        admitted += passed
    return admitted


def test_the_rate_rises_from_a_third_to_the_limit() -> None:
    bucket = warming(messages_burst=30)
    seconds = [demand(bucket, BEGIN + second * SECOND, SECOND) for second in range(13)]
    assert seconds == sorted(seconds)
    assert 345 <= seconds[0] <= 365  # a burst of ten, and 1/3 to 0.36 of the limit
    assert 450 <= seconds[5] <= 500  # half of the limit after 5/8 of the time
    assert seconds[10:] == [1000, 1000, 1000]


def test_warming_up_costs_half_of_its_time() -> None:
    """Burst + rate * (T - over/2)."""
    assert demand(warming(), BEGIN, 20 * SECOND + 1) == 1000 + 20_000 - 5000


def test_after_a_pause_as_long_it_is_cold_again() -> None:
    bucket = warming()
    demand(bucket, BEGIN, 30 * SECOND)
    cold = warming().available(10**6, 1, 0, BEGIN)
    later = BEGIN + 30 * SECOND
    assert bucket.available(10**6, 1, 0, later + 5 * SECOND) == 1000  # over/2: still warm
    assert cold < bucket.available(10**6, 1, 0, later + 8 * SECOND) < 1000
    assert bucket.available(10**6, 1, 0, later + 11 * SECOND) == cold == 341
    assert bucket.is_full(later + 11 * SECOND)


@pytest.mark.parametrize(("share", "warm"), [(4, False), (2, True)])
def test_a_bucket_used_at_half_of_the_limit_warms_up_and_one_used_at_a_quarter_does_not(share: int, warm: bool) -> None:
    bucket = warming(rate=100, over_ns=2 * SECOND)
    demand(bucket, BEGIN, 60 * SECOND, step_ns=share * 10_000_000, count=1)
    now = BEGIN + 60 * SECOND
    at_once = bucket.available(10**6, 1, 0, now + SECOND // 100)
    assert at_once >= 99 if warm else at_once <= 40


@settings(max_examples=60, deadline=None)
@given(
    rate=st.sampled_from([1, 3, 100, 44_100, 1_000_000]),
    over_ns=st.sampled_from([SECOND // 10, SECOND, 10 * SECOND]),
    asks=st.lists(st.tuples(st.integers(0, SECOND), st.integers(1, 10**6)), max_size=20),
)
def test_a_rested_key_never_gets_more_than_what_the_first_ones_cost_lets_it(rate: int, over_ns: int, asks: list[tuple[int, int]]) -> None:
    """The exact bound: n + E(n) <= burst + rate * T; to within a message, for P is rounded down."""
    bucket = warming(rate, over_ns)
    now, admitted = BEGIN, 0
    for later, count in asks:
        now += later
        passed = bucket.available(count, 1, 0, now)
        bucket.take(passed, 1, 0)
        admitted += passed
        debt = 3 if rate == 1 else 0  # a burst of one, and the first costs up to three
        paid = admitted + extra(Fraction(admitted), tokens(Rate(rate), over_ns) / 2) - Fraction(1, 10**6)
        assert paid <= rate + tokens(Rate(rate), now - BEGIN) + debt


def test_a_cold_bucket_takes_back_exactly_what_it_gave() -> None:
    """Consumers whose polls come back empty neither warm a limit up nor run it dry."""
    bucket, untouched = warming(), warming()
    for _ in range(100):
        bucket.take(1, 32, 0)
        bucket.settle(-32, 0, 10 * SECOND, BEGIN)
    assert bucket.fills(BEGIN) == untouched.fills(BEGIN)


def test_a_warm_bucket_moved_elsewhere_stays_warm() -> None:
    bucket = warming()
    demand(bucket, BEGIN, 30 * SECOND)
    now = BEGIN + 30 * SECOND
    moved = warming()
    moved.follow(bucket, now)
    assert demand(moved, now, 10 * SECOND) >= 9_900


def test_a_debt_is_kept_over_a_restart() -> None:
    bucket = warming(10)
    bucket.take(1, 320, 0)
    now = BEGIN
    restored = warming(10)
    restored.set_fills(bucket.fills(now), now)
    wait = bucket.wait_ns(1, 0, now)
    assert wait > 31 * SECOND
    assert wait - SECOND // 10 <= restored.wait_ns(1, 0, now) <= wait + 1000


def test_repr_says_how_rested_it_is() -> None:
    assert repr(warming(100)) == "<Dimensions [<Warming 100/100 rest=1000/1000 +1 per 10000000 ns>]>"


def test_a_fill_that_is_set_is_level_and_rest_alike() -> None:
    bucket, half, empty = warming(), warming(), warming()
    half.set_fill(0.5, BEGIN)
    empty.set_fill(-1.0, BEGIN)
    assert (bucket.fill(BEGIN), half.fill(BEGIN), empty.fill(BEGIN)) == (1.0, 0.5, 0.0)
    assert empty.available(1, 1, 0, BEGIN) == 0
    assert demand(empty, BEGIN, SECOND) >= 980, "what was in use is not cold"
    assert demand(bucket, BEGIN, SECOND) < demand(half, BEGIN, SECOND) + 500


def test_a_changed_limit_is_the_new_rate_from_then_on() -> None:
    bucket = warming(1000)
    demand(bucket, BEGIN, 30 * SECOND)
    bucket.change(Limit(messages=Rate(200), warm_up_ns=10 * SECOND), BEGIN + 30 * SECOND)
    assert 195 <= demand(bucket, BEGIN + 31 * SECOND, SECOND) <= 401
