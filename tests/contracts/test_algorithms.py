"""What every limiter algorithm promises (`limiter/algorithms/base.py`), over every member of `ALGORITHMS`."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limiter.algorithms import ALGORITHMS
from limiter.algorithms.base import Algorithm
from limiter.limits import NEVER, Limit, Rate

SECOND = 1_000_000_000
BEGIN = 5 * SECOND

rates = st.builds(
    Rate, st.sampled_from([1, 2, 3, 7, 100, 999, 2000, 65_537, 1_000_000]), st.sampled_from([SECOND, 7 * SECOND, 60 * SECOND])
)
bursts = st.none() | st.integers(1, 5000)
limits = st.builds(
    Limit,
    messages=rates,
    bytes=st.none() | rates,
    messages_burst=bursts,
    bytes_burst=bursts,
    burst_ns=st.sampled_from([None, 10**7, 3 * SECOND]),
)
# (nanoseconds later, requests alike, messages of each, bytes of each)
steps = st.lists(
    st.tuples(st.integers(0, 3 * SECOND) | st.integers(0, 1000), st.integers(1, 50), st.integers(1, 40), st.integers(0, 3000)), max_size=12
)

every_algorithm = pytest.mark.parametrize("name", sorted(ALGORITHMS))


def play(name: str, limit: Limit, moves: list[tuple[int, int, int, int]]) -> tuple[Algorithm, int]:
    """A bucket after these moves, and the time it is then."""
    now = BEGIN
    bucket = ALGORITHMS[name](limit, now)
    for later, count, messages, size in moves:
        now += later
        passed = bucket.available(count, messages, size, now)
        bucket.take(passed, messages, size)
    return bucket, now


@every_algorithm
@settings(max_examples=40, deadline=None)
@given(limit=limits, moves=steps, count=st.integers(1, 60), messages=st.integers(1, 40), size=st.integers(0, 3000))
def test_a_run_admits_as_many_as_its_requests_one_by_one(
    name: str, limit: Limit, moves: list[tuple[int, int, int, int]], count: int, messages: int, size: int
) -> None:
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
@settings(max_examples=40, deadline=None)
@given(limit=limits, moves=steps, messages=st.integers(1, 40), size=st.integers(0, 3000))
def test_the_wait_is_true_to_the_nanosecond(
    name: str, limit: Limit, moves: list[tuple[int, int, int, int]], messages: int, size: int
) -> None:
    bucket, now = play(name, limit, moves)
    wait = bucket.wait_ns(messages, size, now)
    assert (wait == 0) == (bucket.available(1, messages, size, now) == 1)
    if wait > 0:
        assert bucket.available(1, messages, size, now + wait - 1) == 0
        assert bucket.available(1, messages, size, now + wait) == 1


@every_algorithm
@settings(max_examples=40, deadline=None)
@given(limit=limits, moves=steps)
def test_no_window_admits_more_than_burst_and_rate(name: str, limit: Limit, moves: list[tuple[int, int, int, int]]) -> None:
    now = BEGIN
    bucket = ALGORITHMS[name](limit, now)
    admitted = []  # (when, messages, largest request)
    for later, count, messages, size in moves:
        now += later
        passed = bucket.available(count, messages, size, now)
        bucket.take(passed, messages, size)
        admitted.append((now, passed * messages, messages))
    assert limit.messages is not None
    capacity = limit.messages_capacity()
    for first, (begin, _, _) in enumerate(admitted):
        for end, _, _ in admitted[first:]:
            inside = [(messages, largest) for when, messages, largest in admitted if begin <= when <= end]
            oversized = max((largest for messages, largest in inside if messages and largest > capacity), default=0)
            allowed = capacity + Fraction(limit.messages.amount * (end - begin), limit.messages.per_ns) + oversized
            assert sum(messages for messages, _ in inside) <= allowed


@every_algorithm
@settings(max_examples=40, deadline=None)
@given(limit=limits, moves=steps, looks=st.integers(1, 4))
def test_looking_changes_nothing(name: str, limit: Limit, moves: list[tuple[int, int, int, int]], looks: int) -> None:
    looked_at, now = play(name, limit, moves)
    untouched, _ = play(name, limit, moves)
    for _ in range(looks):
        looked_at.available(3, 1, 10, now)
        looked_at.wait_ns(2, 10, now)
        looked_at.full_in_ns(2, 10, now)
        looked_at.is_full(now)
        looked_at.fill(now)
    later = now + 12_345
    assert looked_at.available(10**6, 1, 1, later) == untouched.available(10**6, 1, 1, later)
    assert looked_at.wait_ns(7, 9, later) == untouched.wait_ns(7, 9, later)


@every_algorithm
@settings(max_examples=40, deadline=None)
@given(limit=limits, other=limits, moves=steps)
def test_a_changed_limit_keeps_the_fill_in_proportion(
    name: str, limit: Limit, other: Limit, moves: list[tuple[int, int, int, int]]
) -> None:
    old, new = Limit(messages=limit.messages, messages_burst=5000), Limit(messages=other.messages, messages_burst=other.messages_burst)
    bucket, now = play(name, old, moves)
    before = bucket.fill(now)
    bucket.change(new, now)
    assert new.messages is not None
    step = 1 / (new.messages_capacity() * new.messages.per_ns)  # what one bucket can tell apart
    assert before - step - 1e-9 <= bucket.fill(now) <= before + 1e-9
    assert bucket.available(10**9, 1, 0, now) <= new.messages_capacity()


@every_algorithm
def test_a_changed_limit_admits_at_its_own_rate_from_then_on(name: str) -> None:
    bucket = ALGORITHMS[name](Limit(messages=Rate(100)), BEGIN)
    bucket.take(bucket.available(100, 1, 0, BEGIN), 1, 0)
    bucket.change(Limit(messages=Rate(1000)), BEGIN)
    assert bucket.available(10**6, 1, 0, BEGIN) == 0
    assert bucket.available(10**6, 1, 0, BEGIN + SECOND // 2) == 500


@every_algorithm
def test_a_rate_of_zero_refuses_everything_for_ever_and_is_forgotten_for_nothing(name: str) -> None:
    bucket = ALGORITHMS[name](Limit(messages=Rate(0)), BEGIN)
    assert bucket.available(1, 1, 0, BEGIN) == 0
    assert bucket.available(1, 0, 0, BEGIN + 10**18) == 0
    assert bucket.wait_ns(1, 0, BEGIN) == NEVER
    assert bucket.is_full(BEGIN)


@every_algorithm
def test_a_rate_raised_from_zero_gives_no_free_burst(name: str) -> None:
    bucket = ALGORITHMS[name](Limit(messages=Rate(0)), BEGIN)
    bucket.change(Limit(messages=Rate(1000)), BEGIN + SECOND)
    assert bucket.available(1000, 1, 0, BEGIN + SECOND) == 0
    assert bucket.available(1000, 1, 0, BEGIN + SECOND + SECOND // 10) == 100


@every_algorithm
def test_what_was_unlimited_begins_full(name: str) -> None:
    bucket = ALGORITHMS[name](Limit(messages=Rate(10)), BEGIN)
    bucket.change(Limit(messages=Rate(10), bytes=Rate(500)), BEGIN)
    assert bucket.available(10, 1, 50, BEGIN) == 10
    bucket.change(Limit(bytes=Rate(500)), BEGIN)
    assert bucket.available(100, 1, 5, BEGIN) == 100


@every_algorithm
def test_a_fill_can_be_restored(name: str) -> None:
    bucket = ALGORITHMS[name](Limit(messages=Rate(100), bytes=Rate(1000)), BEGIN)
    bucket.set_fill(0.25, BEGIN)
    assert bucket.fill(BEGIN) == pytest.approx(0.25)
    assert bucket.available(100, 1, 0, BEGIN) == 25
    assert bucket.available(100, 1, 100, BEGIN) == 2


@every_algorithm
@settings(max_examples=40, deadline=None)
@given(limit=limits, jumps=st.lists(st.integers(-20 * SECOND, 5 * SECOND) | st.integers(-1000, 1000), min_size=1, max_size=20))
def test_a_clock_that_jumps_grants_nothing_and_does_not_stall(name: str, limit: Limit, jumps: list[int]) -> None:
    """Time counts only where the clock goes forward; after any jump a wait is still true."""
    assert limit.messages is not None
    now = 100 * SECOND
    bucket = ALGORITHMS[name](Limit(messages=limit.messages, messages_burst=limit.messages_burst), now)
    admitted, forward = 0, 0
    capacity = Limit(messages=limit.messages, messages_burst=limit.messages_burst).messages_capacity()
    for jump in jumps:
        now += jump
        forward += max(0, jump)
        passed = bucket.available(10**7, 1, 0, now)
        bucket.take(passed, 1, 0)
        admitted += passed
        assert admitted <= capacity + Fraction(limit.messages.amount * forward, limit.messages.per_ns)
    wait = bucket.wait_ns(1, 0, now)
    assert wait <= Fraction(limit.messages.per_ns, limit.messages.amount) + 1 + SECOND
    assert bucket.available(1, 1, 0, now + wait) == 1


@every_algorithm
@settings(max_examples=40, deadline=None)
@given(
    limit=limits,
    moves=steps,
    messages=st.integers(0, 5000),
    size=st.integers(0, 500_000),
    debt_ns=st.sampled_from([0, SECOND, 10 * SECOND]),
)
def test_what_is_settled_is_charged_in_full_or_leaves_the_debt_that_is_allowed(
    name: str, limit: Limit, moves: list[tuple[int, int, int, int]], messages: int, size: int, debt_ns: int
) -> None:
    bucket, now = play(name, limit, moves)
    owed = bucket.wait_ns(0, 0, now)
    bucket.settle(messages, size, debt_ns, now)
    wait = bucket.wait_ns(0, 0, now)
    assert owed <= wait <= max(owed, debt_ns)
    if wait < debt_ns:
        bucket.settle(-messages, -size, debt_ns, now)
        untouched, _ = play(name, limit, moves)
        assert bucket.fill(now) == untouched.fill(now)
        assert bucket.wait_ns(1, 1, now) == untouched.wait_ns(1, 1, now)


@every_algorithm
@settings(max_examples=40, deadline=None)
@given(limit=limits, moves=steps, messages=st.integers(0, 5000), size=st.integers(0, 500_000))
def test_what_is_given_back_never_makes_more_than_a_full_bucket(
    name: str, limit: Limit, moves: list[tuple[int, int, int, int]], messages: int, size: int
) -> None:
    bucket, now = play(name, limit, moves)
    bucket.settle(-messages, -size, 0, now)
    full = ALGORITHMS[name](limit, now)
    assert bucket.available(10**6, 1, 1, now) <= full.available(10**6, 1, 1, now)
