"""The gate of a member that spaces its messages: what becomes of what is due when the rate changes, and when more came than was known."""

from __future__ import annotations

import pytest

from limiter.algorithms import ALGORITHMS
from limiter.algorithms.base import Algorithm
from limiter.leases.lease import Lease
from limiter.leases.leased_tokens import LeasedTokens
from limiter.leases.paced_lease import Gate, PacedLease
from limiter.leases.sharing import member_limit
from limiter.limits import SECOND, Limit, Rate

START = 10**12
MINUTE = 60 * SECOND
DEBT_NS = 10 * SECOND


def paced(limit: Limit, members: int) -> Algorithm:
    """`members` 1: one process."""
    if members == 1:
        return ALGORITHMS["pacing"](limit, START)
    return PacedLease(member_limit(limit, "pacing"), START, Lease(members))


def per_minute(messages: int) -> Limit:
    return Limit(messages=Rate(messages, MINUTE))


@pytest.mark.parametrize("members", [1, 2, 4])
@pytest.mark.parametrize("passes", [0, 5])
def test_a_rate_of_zero_is_over_when_it_is_raised_again(members: int, passes: int) -> None:
    """What passes meanwhile in any case, or is settled, owes nothing for ever. Until November 2026 a member was closed for 146 years."""
    bucket = paced(Limit(messages=Rate(100), bytes=Rate(10**6)), members)
    bucket.take(bucket.available(1, 1, 100, START), 1, 100)
    bucket.change(Limit(messages=Rate(0), bytes=Rate(10**6)), START + SECOND)
    bucket.settle(passes, 1000, DEBT_NS, START + 2 * SECOND)
    bucket.change(Limit(messages=Rate(100), bytes=Rate(10**6)), START + 3 * SECOND)
    assert bucket.peek_ns(1, 100, START + 4 * SECOND) < SECOND


@pytest.mark.parametrize("members", [1, 2, 4])
def test_a_raised_rate_shortens_what_must_be_waited_for(members: int) -> None:
    bucket = paced(per_minute(1), members)
    assert bucket.available(1, 1, 0, START) == 1
    bucket.take(1, 1, 0)
    assert bucket.peek_ns(1, 0, START) > 50 * SECOND
    bucket.change(Limit(messages=Rate(1000)), START)
    assert bucket.peek_ns(1, 0, START) < SECOND


def test_a_lowered_rate_does_not_lengthen_it() -> None:
    gate, tokens = Gate(Rate(1000), START), LeasedTokens(Rate(1000), 300, 2, START)
    gate.charge(50, tokens, Lease(2), START)
    wait = gate.wait_ns(START)
    assert wait > 0
    gate.change(Rate(1, MINUTE), START)
    assert gate.wait_ns(START) == wait


@pytest.mark.parametrize("members", [1, 2, 4])
def test_an_answer_that_is_larger_than_was_reserved_is_paid_for_as_long_as_debts_may_be(members: int) -> None:
    bucket = paced(Limit(bytes=Rate(10_000)), members)
    bucket.settle(0, 1_000_000, DEBT_NS, START)
    assert bucket.peek_ns(0, 1, START) == pytest.approx(DEBT_NS, rel=0.02)
    bucket.settle(0, 1_000_000, DEBT_NS, START)
    assert bucket.peek_ns(0, 1, START) == pytest.approx(DEBT_NS, rel=0.02), "and no longer for a second one"
