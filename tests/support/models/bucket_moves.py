"""Limits and histories that an algorithm may meet, for Hypothesis to draw."""

from __future__ import annotations

from functools import cache

from hypothesis import strategies as st

from limiter.algorithms import ALGORITHMS
from limiter.algorithms.base import Algorithm
from limiter.limits import SECOND, Limit, Rate
from support.models.algorithms import NO_RATES

BEGIN = 5 * SECOND

rates = st.builds(
    Rate, st.sampled_from([1, 2, 3, 7, 100, 999, 2000, 65_537, 1_000_000]), st.sampled_from([SECOND, 7 * SECOND, 60 * SECOND])
)
bursts = st.none() | st.integers(1, 5000)


@cache
def limits_of(name: str) -> st.SearchStrategy[Limit]:
    """Limits that a rule of this algorithm may have."""
    return st.builds(
        Limit,
        messages=rates,
        bytes=st.none() | rates,
        messages_burst=st.none() if name == "pacing" else bursts,
        bytes_burst=st.none() if name == "pacing" else bursts,
        burst_ns=st.none() if name == "pacing" else st.sampled_from([None, 10**7, 3 * SECOND]),
        warm_up_ns=st.sampled_from([0, 10**6, SECOND, 60 * SECOND]) if name == "warm_up" else st.just(0),
        concurrent=st.integers(1, 60) if name in NO_RATES else st.none(),
    )


# (nanoseconds later, requests alike, messages of each, bytes of each)
Moves = list[tuple[int, int, int, int]]
steps = st.lists(
    st.tuples(st.integers(0, 3 * SECOND) | st.integers(0, 1000), st.integers(1, 50), st.integers(1, 40), st.integers(0, 3000)), max_size=12
)


def play(name: str, limit: Limit, moves: Moves) -> tuple[Algorithm, int]:
    """A bucket after these moves, and the time it is then."""
    now = BEGIN
    bucket = ALGORITHMS[name](limit, now)
    for later, count, messages, size in moves:
        now += later
        passed = bucket.available(count, messages, size, now)
        bucket.take(passed, messages, size)
    return bucket, now
