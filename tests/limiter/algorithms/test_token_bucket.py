"""The token bucket: exact, in integers. The properties every rate has are in contracts/test_rates.py."""

from __future__ import annotations

import pytest

from limiter.algorithms.token_bucket import TokenBucket
from limiter.limits import Limit, Rate

SECOND = 1_000_000_000
BEGIN = 7 * SECOND


def bucket_of(**limit: object) -> TokenBucket:
    return TokenBucket(Limit(**limit), BEGIN)  # type: ignore[arg-type]


def test_it_begins_full_with_one_second_of_the_rate() -> None:
    assert bucket_of(messages=Rate(500)).available(10_000, 1, 0, BEGIN) == 500


def test_a_third_per_second_gives_the_third_token_in_time() -> None:
    bucket = bucket_of(messages=Rate(1, 3 * SECOND), messages_burst=3)
    bucket.take(3, 1, 0)
    assert bucket.wait_ns(3, 0, BEGIN) == 9 * SECOND
    assert bucket.available(3, 1, 0, BEGIN + 9 * SECOND - 1) == 2
    assert bucket.available(3, 1, 0, BEGIN + 9 * SECOND) == 3


def test_many_small_steps_add_up_to_the_same_as_one_large_one() -> None:
    small, large = (
        bucket_of(messages=Rate(7, 11 * SECOND), messages_burst=100),
        bucket_of(messages=Rate(7, 11 * SECOND), messages_burst=100),
    )
    for bucket in (small, large):
        bucket.take(100, 1, 0)
    for step in range(1, 1000):
        small.available(1, 1, 0, BEGIN + step * 11_000_017)
    assert small.wait_ns(50, 0, BEGIN + 11 * SECOND) == large.wait_ns(50, 0, BEGIN + 11 * SECOND)


def test_messages_and_bytes_are_one_decision() -> None:
    bucket = bucket_of(messages=Rate(100), bytes=Rate(1000))
    assert bucket.available(50, 1, 100, BEGIN) == 10
    bucket.take(10, 1, 100)
    assert bucket.available(50, 1, 0, BEGIN) == 50  # bytes are spent to the last, and zero bytes need none
    assert bucket.available(50, 1, 1, BEGIN) == 0
    assert bucket.available(90, 1, 0, BEGIN) == 90  # the refusal has spent no messages


def test_the_wait_is_the_longer_one_of_messages_and_bytes() -> None:
    bucket = bucket_of(messages=Rate(10), bytes=Rate(1000))
    bucket.take(10, 1, 100)
    assert bucket.wait_ns(1, 0, BEGIN) == SECOND // 10
    assert bucket.wait_ns(1, 500, BEGIN) == SECOND // 2


def test_a_cost_above_the_burst_passes_when_the_bucket_is_full_and_leaves_a_debt() -> None:
    bucket = bucket_of(messages=Rate(10))
    assert bucket.available(5, 32, 0, BEGIN) == 1
    bucket.take(1, 32, 0)
    assert bucket.available(1, 1, 0, BEGIN) == 0
    assert bucket.wait_ns(1, 0, BEGIN) == 23 * SECOND // 10  # 22 of debt and 1 more, at 10 a second
    assert bucket.wait_ns(32, 0, BEGIN) == 32 * SECOND // 10  # until full again
    assert bucket.available(1, 32, 0, BEGIN + 32 * SECOND // 10 - 1) == 0
    assert bucket.available(1, 32, 0, BEGIN + 32 * SECOND // 10) == 1


def test_nothing_passes_while_there_is_a_debt_not_even_no_bytes() -> None:
    bucket = bucket_of(bytes=Rate(100))
    bucket.take(1, 1, 150)
    assert bucket.available(1, 1, 0, BEGIN) == 0
    assert bucket.available(1, 1, 0, BEGIN + SECOND // 2) == 1


def test_a_jitter_of_the_clock_is_no_time() -> None:
    bucket = bucket_of(messages=Rate(1000))
    bucket.take(1000, 1, 0)
    assert bucket.available(1, 1, 0, BEGIN - SECOND) == 0
    assert bucket.wait_ns(1, 0, BEGIN - 1) == SECOND // 1000 + 1  # counted from the clock's own reading
    assert bucket.available(1000, 1, 0, BEGIN + SECOND // 10) == 100


def test_a_large_step_back_counts_time_from_there() -> None:
    bucket = bucket_of(messages=Rate(1000))
    bucket.take(1000, 1, 0)
    assert bucket.available(1, 1, 0, BEGIN - 2 * SECOND) == 0
    assert bucket.available(1000, 1, 0, BEGIN - 2 * SECOND + SECOND // 10) == 100


@pytest.mark.parametrize("years", [1, 50])
def test_an_idle_bucket_is_full_however_long(years: int) -> None:
    bucket = bucket_of(messages=Rate(10**6), bytes=Rate(10**12))
    bucket.take(10**6, 1, 10**6)
    assert bucket.available(10**9, 1, 10**6, BEGIN + years * 365 * 86400 * SECOND) == 10**6


def test_the_breaker_may_close_when_the_first_dimension_that_refuses_is_full() -> None:
    bucket = bucket_of(messages=Rate(10), bytes=Rate(1000), bytes_burst=4000)
    bucket.take(10, 1, 400)
    assert bucket.full_in_ns(1, 400, BEGIN) == SECOND  # messages, although bytes need 4 s
    bucket.take(0, 1, 0)
    half = BEGIN + SECOND // 10
    assert bucket.full_in_ns(1, 400, half) == 4 * SECOND - SECOND // 10  # messages no longer refuse


def test_repr_shows_the_fill() -> None:
    bucket = bucket_of(messages=Rate(10))
    bucket.take(3, 1, 0)
    assert repr(bucket) == "<TokenBucket messages=<Tokens 7/10 +1 per 100000000 ns> bytes=None>"


def test_a_clock_that_goes_back_changes_nothing_until_it_is_there_again() -> None:
    bucket = bucket_of(messages=Rate(10))
    bucket.take(bucket.available(10, 1, 0, BEGIN), 1, 0)
    assert bucket.fill(BEGIN - SECOND) == 0.0
    assert bucket.full_after_ns(BEGIN - SECOND) == bucket.full_after_ns(BEGIN) == SECOND
