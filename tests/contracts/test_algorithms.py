"""What every limiter algorithm promises (`limiter/algorithms/base.py`), over every member of `ALGORITHMS`. More of rates: test_rates.py."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limiter.algorithms import ALGORITHMS
from limiter.algorithms.fills import MIN_FILL, bytes_of, messages_of
from limiter.limits import NEVER, SECOND, Limit, Rate
from support.models.algorithms import NO_RATES, RATES
from support.models.bucket_moves import Moves, limits_of, play, steps

every_algorithm = pytest.mark.parametrize("name", sorted(ALGORITHMS))


def test_every_algorithm_is_tested_as_what_it_is() -> None:
    assert sorted([*RATES, *NO_RATES]) == sorted(ALGORITHMS)


@every_algorithm
@settings(max_examples=25, deadline=None)
@given(data=st.data(), moves=steps, count=st.integers(1, 60), messages=st.integers(1, 40), size=st.integers(0, 3000))
def test_a_run_admits_as_many_as_its_requests_one_by_one(
    name: str, data: st.DataObject, moves: Moves, count: int, messages: int, size: int
) -> None:
    limit = data.draw(limits_of(name))
    together, now = play(name, limit, moves)
    singly, _ = play(name, limit, moves)
    passed = together.available(count, messages, size, now)
    together.take(passed, messages, size)
    one_by_one = 0
    for _ in range(count):
        if singly.available(1, messages, size, now) == 1:
            singly.take(1, messages, size)
            one_by_one += 1
    assert passed == one_by_one
    assert together.wait_ns(messages, size, now) == singly.wait_ns(messages, size, now)


@every_algorithm
@settings(max_examples=25, deadline=None)
@given(data=st.data(), moves=steps, messages=st.integers(1, 40), size=st.integers(0, 3000))
def test_a_request_passes_if_and_only_if_it_has_no_wait(name: str, data: st.DataObject, moves: Moves, messages: int, size: int) -> None:
    bucket, now = play(name, data.draw(limits_of(name)), moves)
    assert (bucket.wait_ns(messages, size, now) == 0) == (bucket.available(1, messages, size, now) == 1)


@every_algorithm
@settings(max_examples=25, deadline=None)
@given(data=st.data(), moves=steps, looks=st.integers(1, 4))
def test_looking_changes_nothing(name: str, data: st.DataObject, moves: Moves, looks: int) -> None:
    limit = data.draw(limits_of(name))
    looked_at, now = play(name, limit, moves)
    untouched, _ = play(name, limit, moves)
    for _ in range(looks):
        looked_at.available(3, 1, 10, now)
        looked_at.wait_ns(2, 10, now)
        looked_at.full_in_ns(2, 10, now)
        looked_at.full_after_ns(now)
        looked_at.is_full(now)
        looked_at.fill(now)
        looked_at.fills(now)
    later = now + 12_345
    assert looked_at.available(10**6, 1, 1, later) == untouched.available(10**6, 1, 1, later)
    assert looked_at.wait_ns(7, 9, later) == untouched.wait_ns(7, 9, later)


@every_algorithm
@settings(max_examples=25, deadline=None)
@given(data=st.data(), moves=steps, messages=st.integers(0, 5000), size=st.integers(0, 500_000))
def test_giving_back_never_makes_more_than_a_full_bucket(name: str, data: st.DataObject, moves: Moves, messages: int, size: int) -> None:
    """As of a new one; of `warm_up` as of one that is warm."""
    limit = data.draw(limits_of(name))
    bucket, now = play(name, limit, moves)
    bucket.settle(-messages, -size, 0, now)
    full = ALGORITHMS["token_bucket" if name == "warm_up" else name](limit, now)
    assert bucket.available(10**6, 1, 1, now) <= full.available(10**6, 1, 1, now)


@every_algorithm
@settings(max_examples=25, deadline=None)
@given(data=st.data(), moves=steps, later=st.integers(0, 20 * SECOND))
def test_a_bucket_that_was_kept_elsewhere_passes_no_more_than_it_would_have(
    name: str, data: st.DataObject, moves: Moves, later: int
) -> None:
    """Over a restart, packed, under another name. What is in flight is over by then."""
    limit = data.draw(limits_of(name))
    bucket, now = play(name, limit, moves)
    restored = ALGORITHMS[name](limit, now)
    fills = bucket.fills(now)
    restored.set_fills(fills, now)
    assert min(messages_of(fills), bytes_of(fills)) >= MIN_FILL
    if name not in NO_RATES and bucket.full_after_ns(now) != NEVER:
        assert restored.available(10**7, 1, 1, now + later) <= bucket.available(10**7, 1, 1, now + later)
        assert restored.full_after_ns(now + later) >= bucket.full_after_ns(now + later)


@every_algorithm
@settings(max_examples=25, deadline=None)
@given(data=st.data(), moves=steps)
def test_a_bucket_is_full_at_the_moment_it_predicts(name: str, data: st.DataObject, moves: Moves) -> None:
    bucket, now = play(name, data.draw(limits_of(name)), moves)
    after = bucket.full_after_ns(now)
    assert (after == 0) == bucket.is_full(now)
    if 0 < after < NEVER:
        assert not bucket.is_full(now + after - 1)
        assert bucket.is_full(now + after)
        assert bucket.fills(now + after) == ALGORITHMS[name](Limit(messages=Rate(1), concurrent=9), now).fills(now)


@every_algorithm
@settings(max_examples=25, deadline=None)
@given(data=st.data(), jumps=st.lists(st.integers(-20 * SECOND, 5 * SECOND) | st.integers(-1000, 1000), min_size=1, max_size=20))
def test_no_jump_of_the_clock_makes_a_wait_negative_or_endless(name: str, data: st.DataObject, jumps: list[int]) -> None:
    limit = data.draw(limits_of(name))
    now = 100 * SECOND
    bucket = ALGORITHMS[name](limit, now)
    for jump in jumps:
        now += jump
        passed = bucket.available(50, 1, 1, now)
        bucket.take(passed, 1, 1)
        assert (bucket.available(1, 1, 1, now) == 1) == (bucket.wait_ns(1, 1, now) == 0)
        assert 0 <= bucket.wait_ns(1, 1, now) < 1000 * SECOND
