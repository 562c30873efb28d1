"""The breaker, alone and with its bucket: `docs/design/limiter.md` 3."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limiter.buckets.breaker import Breaker
from support.models.asking import SECOND, Limit, Rate, Rule, ask, judge_of, key_of, per_topic

BEGIN = 3 * SECOND


def test_it_closes_after_its_time() -> None:
    breaker = Breaker(SECOND)
    breaker.trip(BEGIN, 10 * SECOND)
    assert breaker.remaining_ns(BEGIN) == SECOND
    assert breaker.is_open(BEGIN + SECOND - 1)
    assert not breaker.is_open(BEGIN + SECOND)


def test_it_closes_when_the_bucket_is_full() -> None:
    breaker = Breaker(60 * SECOND)
    breaker.trip(BEGIN, SECOND)
    assert breaker.remaining_ns(BEGIN) == SECOND


def test_an_open_breaker_is_not_prolonged() -> None:
    breaker = Breaker(SECOND)
    breaker.trip(BEGIN, 10 * SECOND)
    breaker.trip(BEGIN + SECOND // 2, 10 * SECOND)
    assert not breaker.is_open(BEGIN + SECOND)


def test_no_time_means_no_breaker() -> None:
    breaker = Breaker(0)
    breaker.trip(BEGIN, 10 * SECOND)
    assert not breaker.is_open(BEGIN)


def test_a_clock_set_far_back_closes_it() -> None:
    breaker = Breaker(SECOND)
    breaker.trip(BEGIN + 3600 * SECOND, 10 * SECOND)
    assert not breaker.is_open(BEGIN)
    assert repr(breaker) == "<Breaker closed>"


def test_a_jitter_of_the_clock_does_not_close_it() -> None:
    breaker = Breaker(SECOND)
    breaker.trip(BEGIN, 10 * SECOND)
    assert breaker.is_open(BEGIN - SECOND // 2)


def test_while_open_everything_is_refused_at_once_and_nothing_is_charged() -> None:
    judge = judge_of(per_topic(1000))
    key = key_of(judge, "orders")
    assert ask(judge, key, BEGIN, count=1500).passed == 1000
    for moment in range(1, 100):
        assert ask(judge, key, BEGIN + moment * SECOND // 100, count=50).passed == 0
    assert ask(judge, key, BEGIN + SECOND, count=2000).passed == 1000  # refilled meanwhile, none of the refused was charged


def test_without_breaker_the_bucket_decides_each_time() -> None:
    judge = judge_of(per_topic(1000, open_for_ns=0))
    key = key_of(judge, "orders")
    ask(judge, key, BEGIN, count=1500)
    assert ask(judge, key, BEGIN + SECOND // 10, count=200).passed == 100


def test_delay_and_block_have_no_breaker_unless_the_rule_says_so() -> None:
    assert per_topic(10, action="delay").breaker_ns() == 0
    assert per_topic(10, action="block").breaker_ns() == 0
    assert per_topic(10, action="delay", open_for_ns=5).breaker_ns() == 5
    assert per_topic(10, action="reject").breaker_ns() == SECOND


@pytest.mark.parametrize(
    ("burst_ns", "open_for_ns"), [(SECOND, SECOND), (2 * SECOND, 2 * SECOND), (5 * SECOND, SECOND), (SECOND, 5 * SECOND)]
)
def test_the_hint_is_what_remains_of_the_breaker(burst_ns: int, open_for_ns: int) -> None:
    """Guards the defect of the design it comes from: a hint of one interval (946 us) while the block lasts 998 ms."""
    judge = judge_of(Rule("r", limit=Limit(messages=Rate(1000), burst_ns=burst_ns), open_for_ns=open_for_ns))
    key = key_of(judge, "orders")
    first = ask(judge, key, BEGIN, count=100_000)
    assert first.wait_ns == min(open_for_ns, burst_ns)
    assert ask(judge, key, BEGIN + 1).wait_ns == first.wait_ns - 1
    assert ask(judge, key, BEGIN + first.wait_ns - 1).passed == 0
    assert ask(judge, key, BEGIN + first.wait_ns).passed == 1


@settings(max_examples=25, deadline=None)
@given(
    rate=st.sampled_from([1, 2, 3, 5, 10, 77, 1000, 44_100, 1_000_000]),
    burst_ms=st.sampled_from([1000, 2000, 5000]),
    open_share=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    step_us=st.sampled_from([2000, 3000, 7000]),
    size=st.sampled_from([0, 100]),
)
def test_endless_demand_gets_99_percent_of_the_rate_over_10_s(rate: int, burst_ms: int, open_share: float, step_us: int, size: int) -> None:
    """Property 2 of the bucket and the average of the breaker, by messages or by bytes, for open_for <= burst."""
    open_for_ns = int(burst_ms * 1_000_000 * open_share)
    limit = (
        Limit(messages=Rate(rate), burst_ns=burst_ms * 1_000_000)
        if size == 0
        else Limit(bytes=Rate(rate * size), burst_ns=burst_ms * 1_000_000)
    )
    judge = judge_of(Rule("r", limit=limit, open_for_ns=open_for_ns))
    key = key_of(judge, "orders")
    now, admitted = BEGIN, 0
    burst = rate * burst_ms // 1000
    while now < BEGIN + 10 * SECOND:
        request = ask(judge, key, now, count=10**9, size=size)
        admitted += request.passed
        now += max(step_us * 1000, request.wait_ns)  # whoever obeys the hint, asking every few milliseconds
    assert rate * 10 * 0.99 <= admitted <= rate * 10 + burst


@settings(max_examples=20, deadline=None)
@given(
    rate=st.sampled_from([1, 2, 3, 10, 77, 1000, 44_100, 1_000_000]),
    burst_ms=st.sampled_from([1000, 2000, 5000]),
    open_share=st.sampled_from([0.02, 0.3, 0.999, 1.0, 7.0]),
    load=st.sampled_from([1.05, 2.0, 10.0]),
    step_ms=st.sampled_from([5, 10]),
    by_bytes=st.booleans(),
)
def test_a_client_that_ignores_the_hint_gets_the_rate_too_in_any_ten_seconds(
    rate: int, burst_ms: int, open_share: float, load: float, step_ms: int, by_bytes: bool
) -> None:
    """Steady arrivals above the rate: what comes in while the breaker is open passes after it, whatever `open_for` is.

    A window may begin with the bucket empty and end with it full; so one burst is wanting at most. And a bucket that is full runs over
    until somebody asks: of one token, asked every 0.95 s, every other is lost, with and without a breaker.
    """
    limit = Limit(bytes=Rate(100 * rate), burst_ns=burst_ms * 10**6) if by_bytes else Limit(messages=Rate(rate), burst_ns=burst_ms * 10**6)
    judge = judge_of(Rule("r", limit=limit, open_for_ns=int(burst_ms * 10**6 * open_share)))
    key = key_of(judge, "orders")
    step, length = step_ms * 10**6, 25 * SECOND
    totals, offered = [0], 0
    for number in range(1, length // step + 1):
        arrived = int(rate * load * number * step / SECOND) - offered
        offered += arrived
        request = ask(judge, key, BEGIN + number * step, count=arrived, size=100 if by_bytes else 0) if arrived else None
        totals.append(totals[-1] + (0 if request is None else request.passed))
    window = 10 * SECOND // step
    burst = rate * burst_ms / 1000
    gap_s = max(step / SECOND, 1 / (rate * load))
    least = rate * 10 * burst_ms / (burst_ms + gap_s * 1000)
    assert totals[window] >= min(least, int(rate * load * 10)) - 1
    if load > 1.5:  # the burst is used up by the time that windows are looked at
        begin = min(len(totals) - window - 1, int(burst / (rate * (load - 1)) * SECOND) // step + 1)
        for first in range(begin, len(totals) - window):
            assert totals[first + window] - totals[first] >= least - burst - 1


@pytest.mark.parametrize("rate", [1, 2, 10, 1000, 1_000_000])
@pytest.mark.parametrize("open_for_ns", [SECOND // 100, SECOND, 60 * SECOND])
def test_a_warm_limit_loses_nothing_to_its_breaker_either(rate: int, open_for_ns: int) -> None:
    """Cold it lacks what warming up costs, half of its time, and no more."""
    limit = Limit(messages=Rate(rate), warm_up_ns=2 * SECOND)
    judge = judge_of(Rule("r", limit=limit, algorithm="warm_up", open_for_ns=open_for_ns))
    key = key_of(judge, "orders")
    now, admitted = BEGIN, 0
    while now < BEGIN + 20 * SECOND:
        request = ask(judge, key, now, count=10**9)
        admitted += request.passed
        now += max(2_000_000, request.wait_ns)
    assert 0.99 * rate * 19 <= admitted <= rate * 21


def test_a_paced_limit_has_no_breaker() -> None:
    rule = Rule("r", limit=Limit(messages=Rate(10)), algorithm="pacing")
    assert rule.breaker_ns() == 0
    judge = judge_of(rule)
    key = key_of(judge, "orders")
    ask(judge, key, BEGIN, count=10)
    assert ask(judge, key, BEGIN + SECOND // 10, count=10).passed == 1
