"""The six properties of rates (docs/design/limiter.md 2), over every algorithm whose limit is a rate, each by its own bound
(`support.models.algorithms`).

`pacing` has no burst, `warm_up` admits less when cold. What all algorithms promise: `test_algorithms.py`.
"""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limiter.algorithms import ALGORITHMS, RATE_ALGORITHMS
from limiter.algorithms.fills import UNIT, messages_of
from limiter.limits import NEVER, SECOND, Limit, Rate
from limiter.rules.rule import Rule
from support.models.algorithms import RATES, tokens
from support.models.asking import ask, judge_of, key_of
from support.models.bucket_moves import BEGIN, Moves, limits_of, play, steps

every_rate = pytest.mark.parametrize("name", sorted(RATES))


def at_once(name: str, limit: Limit) -> int:
    """How many requests of one message (and no bytes) pass at once, as new."""
    assert limit.messages is not None
    return RATES[name].at_once(limit.messages, limit.messages_capacity(), limit.warm_up_ns) if limit.messages.amount else 0


@every_rate
@settings(max_examples=40, deadline=None)
@given(data=st.data(), moves=steps)
def test_no_window_admits_more_than_burst_and_rate(name: str, data: st.DataObject, moves: Moves) -> None:
    """Property 1, of messages and of bytes."""
    limit = data.draw(limits_of(name))
    now = BEGIN
    bucket = ALGORITHMS[name](limit, now)
    admitted = []  # (when, how many passed, messages and bytes of each)
    for later, count, messages, size in moves:
        now += later
        passed = bucket.available(count, messages, size, now)
        bucket.take(passed, messages, size)
        if passed:
            admitted.append((now, passed, (messages, size)))
    dimensions = ((limit.messages, limit.messages_capacity()), (limit.bytes, limit.bytes_capacity()))
    for which, (rate, capacity) in enumerate(dimensions):
        for first, (begin, _, _) in enumerate(admitted):
            for last in range(first, len(admitted)):
                inside = [(passed * costs[which], costs[which]) for _, passed, costs in admitted[first : last + 1]]
                largest = max(cost for _, cost in inside)
                if rate is not None:
                    window = admitted[last][0] - begin
                    assert sum(sums for sums, _ in inside) <= RATES[name].most(rate, capacity, window, largest)


@every_rate
@pytest.mark.parametrize("rate", [1, 3, 77, 1000, 44_100, 1_000_000])
@pytest.mark.parametrize("step_ms", [2, 7])
@pytest.mark.parametrize("by_bytes", [False, True])
def test_endless_demand_gets_what_the_rate_brings_in(name: str, rate: int, step_ms: int, by_bytes: bool) -> None:
    """Property 2: asked every few milliseconds, as the gateway does, or after the wait where that is longer."""
    limit = Limit(bytes=Rate(100 * rate)) if by_bytes else Limit(messages=Rate(rate))
    size = 100 if by_bytes else 0
    bucket = ALGORITHMS[name](limit, BEGIN)
    now, admitted = BEGIN, 0
    while now < BEGIN + 30 * SECOND:
        passed = bucket.available(10**9, 1, size, now)
        bucket.take(passed, 1, size)
        admitted += passed
        now += max(step_ms * 1_000_000, bucket.wait_ns(1, size, now))
    late = tokens(Rate(rate), RATES[name].late_ns)
    assert admitted >= Fraction(99, 100) * (30 * rate - late)
    assert admitted <= RATES[name].most(Rate(rate), rate, 30 * SECOND, 1) - late + 1


@every_rate
@settings(max_examples=40, deadline=None)
@given(data=st.data(), moves=steps, messages=st.integers(1, 40), size=st.integers(0, 3000))
def test_the_wait_is_true_to_the_nanosecond(name: str, data: st.DataObject, moves: Moves, messages: int, size: int) -> None:
    """Property 4; also for what costs more than the burst."""
    bucket, now = play(name, data.draw(limits_of(name)), moves)
    wait = bucket.wait_ns(messages, size, now)
    if wait > 0:
        assert bucket.available(1, messages, size, now + wait - 1) == 0
        assert bucket.available(1, messages, size, now + wait) == 1


@every_rate
def test_a_request_that_costs_more_than_the_burst_passes_in_its_turn_and_is_paid_for(name: str) -> None:
    """A batch of 320 at 10/s: it passes, and the rate holds over the minutes after."""
    bucket = ALGORITHMS[name](Limit(messages=Rate(10), warm_up_ns=SECOND if name == "warm_up" else 0), BEGIN)
    now, admitted = BEGIN, 0
    for _ in range(10):
        now += bucket.wait_ns(320, 0, now)
        assert bucket.available(1, 320, 0, now) == 1
        bucket.take(1, 320, 0)
        admitted += 320
        assert bucket.available(1, 1, 0, now) == 0
    assert admitted - 320 <= (now - BEGIN) / SECOND * 10 + 10
    assert now - BEGIN <= (9 * 32 + 10) * SECOND


@every_rate
@settings(max_examples=25, deadline=None)
@given(data=st.data(), moves=steps)
def test_a_changed_limit_keeps_the_fill_in_proportion(name: str, data: st.DataObject, moves: Moves) -> None:
    """Property 6, clamped to the new burst; what is owed may shrink."""
    old, new = (
        Limit(messages=limit.messages, messages_burst=limit.messages_burst)
        for limit in (data.draw(limits_of(name)), data.draw(limits_of(name)))
    )
    bucket, now = play(name, old, moves)
    before = bucket.fill(now)
    bucket.change(new, now)
    assert new.messages is not None
    step = 1 / (max(1, new.messages_capacity() if name != "pacing" else 0) * new.messages.per_ns)  # what one bucket can tell apart
    assert before - step - 1e-9 <= bucket.fill(now) <= before + 1e-9
    if name == "warm_up":  # it may have been warm
        assert bucket.available(10**9, 1, 0, now) <= new.messages_capacity()
    else:
        assert bucket.available(10**9, 1, 0, now) <= at_once(name, new)


@every_rate
@pytest.mark.parametrize("counts", ["messages", "bytes"])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ((100, 1, 20), (100, 1, 1000)),  # amount, seconds and burst
        ((100, 1, 100), (100, 1, 1)),
        ((1, 60, 1), (1000, 1, 1000)),
        ((1000, 1, 10), (10, 1, 10)),
    ],
)
def test_after_a_change_a_debt_is_paid_in_the_time_that_it_took_or_the_same_number_takes_whichever_is_shorter(
    name: str, counts: str, old: tuple[int, int, int], new: tuple[int, int, int]
) -> None:
    first, second = (
        Limit(**{counts: Rate(amount, seconds * SECOND), f"{counts}_burst": None if name == "pacing" else burst})  # type: ignore[arg-type]
        for amount, seconds, burst in (old, new)
    )
    bucket = ALGORITHMS[name](first, BEGIN)
    bucket.set_fill(1.0, BEGIN)
    bucket.take(1, 2000, 2000)
    owed_ns = bucket.wait_ns(0, 0, BEGIN)
    assert owed_ns > 0
    bucket.change(second, BEGIN)
    same_number_ns = owed_ns * old[0] * new[1] / (old[1] * new[0])
    interval_ns = new[1] * SECOND // new[0] if name == "pacing" else 0  # what one owes is no debt there
    assert bucket.wait_ns(0, 0, BEGIN) == pytest.approx(min(owed_ns, same_number_ns), rel=0.001, abs=interval_ns)


@every_rate
def test_a_changed_rate_holds_from_then_on(name: str) -> None:
    bucket = ALGORITHMS[name](Limit(messages=Rate(100)), BEGIN)
    bucket.set_fill(0.0, BEGIN)  # warm, where that makes a difference
    bucket.change(Limit(messages=Rate(1000)), BEGIN)
    now, admitted = BEGIN, 0
    while now < BEGIN + SECOND // 2:
        passed = bucket.available(10**6, 1, 0, now)
        bucket.take(passed, 1, 0)
        admitted += passed
        now += max(1, bucket.wait_ns(1, 0, now))
    assert 498 <= admitted <= 500


@every_rate
def test_a_rate_of_zero_refuses_everything_for_ever_and_is_forgotten_for_nothing(name: str) -> None:
    bucket = ALGORITHMS[name](Limit(messages=Rate(0)), BEGIN)
    assert bucket.available(1, 1, 0, BEGIN) == 0
    assert bucket.available(1, 0, 0, BEGIN + 10**18) == 0
    assert bucket.wait_ns(1, 0, BEGIN) == NEVER
    assert bucket.is_full(BEGIN)
    assert bucket.full_after_ns(BEGIN) == 0
    assert messages_of(bucket.fills(BEGIN)) == UNIT
    bucket.settle(5, 0, SECOND, BEGIN)
    bucket.set_fill(0.5, BEGIN)
    bucket.set_fills(bucket.fills(BEGIN), BEGIN)
    assert bucket.available(1, 0, 0, BEGIN + 10**18) == 0


@every_rate
def test_a_rate_raised_from_zero_gives_no_free_burst(name: str) -> None:
    bucket = ALGORITHMS[name](Limit(messages=Rate(0)), BEGIN)
    bucket.change(Limit(messages=Rate(1000)), BEGIN + SECOND)
    assert bucket.available(1000, 1, 0, BEGIN + SECOND) == 0
    assert bucket.available(1, 1, 0, BEGIN + SECOND + 3_000_000) == 1


@every_rate
def test_lowered_to_zero_and_raised_again_it_has_gained_nothing(name: str) -> None:
    bucket, now = play(name, Limit(messages=Rate(1000)), [(0, 5000, 1, 0)])
    bucket.change(Limit(messages=Rate(0)), now)
    bucket.change(Limit(messages=Rate(1000)), now + SECOND)
    assert bucket.available(1000, 1, 0, now + SECOND) == 0


@every_rate
def test_a_rate_that_was_unlimited_begins_as_new(name: str) -> None:
    bucket = ALGORITHMS[name](Limit(messages=Rate(1000)), BEGIN)
    bucket.change(Limit(messages=Rate(1000), bytes=Rate(5000)), BEGIN)
    new = ALGORITHMS[name](Limit(messages=Rate(1000), bytes=Rate(5000)), BEGIN)
    assert bucket.available(1000, 1, 50, BEGIN) == new.available(1000, 1, 50, BEGIN) > 0
    bucket.change(Limit(bytes=Rate(5000)), BEGIN)
    assert bucket.available(10**6, 0, 50, BEGIN) == new.available(10**6, 0, 50, BEGIN)


@every_rate
@pytest.mark.parametrize("other", sorted(RATES))
@settings(max_examples=15, deadline=None)
@given(data=st.data(), moves=steps)
def test_another_algorithm_goes_on_with_the_fill(name: str, other: str, data: st.DataObject, moves: Moves) -> None:
    """As the ledger does it: what was empty is empty, and nobody gets more than a new one would."""
    limit = data.draw(limits_of("pacing"))
    bucket, now = play(name, limit, moves)
    fill = bucket.fill(now)
    after = ALGORITHMS[other](limit, now)
    after.set_fill(fill, now)
    assert after.fill(now) == pytest.approx(fill, abs=1e-6)
    assert after.available(10**7, 1, 0, now) <= (limit.messages_capacity() if other == "warm_up" else at_once(other, limit))
    if fill == 0.0:
        assert after.available(1, 1, 1, now) == 0


@every_rate
@settings(max_examples=25, deadline=None)
@given(data=st.data(), jumps=st.lists(st.integers(-20 * SECOND, 5 * SECOND) | st.integers(-1000, 1000), min_size=1, max_size=20))
def test_a_clock_that_jumps_grants_nothing_and_does_not_stall(name: str, data: st.DataObject, jumps: list[int]) -> None:
    """Property 5: time counts only where the clock goes forward; after any jump a wait is still true."""
    drawn = data.draw(limits_of(name))
    limit = Limit(messages=drawn.messages, messages_burst=drawn.messages_burst, warm_up_ns=drawn.warm_up_ns)
    rate = limit.messages
    assert rate is not None
    now = 100 * SECOND
    bucket = ALGORITHMS[name](limit, now)
    admitted, forward = 0, 0
    for jump in jumps:
        now += jump
        forward += max(0, jump)
        passed = bucket.available(10**7, 1, 0, now)
        bucket.take(passed, 1, 0)
        admitted += passed
        assert admitted <= RATES[name].most(rate, limit.messages_capacity(), forward, 1)
    wait = bucket.wait_ns(1, 0, now)
    assert wait <= 3 * Fraction(rate.per_ns, rate.amount) + 1 + SECOND
    assert bucket.available(1, 1, 0, now + wait) == 1


@every_rate
@pytest.mark.parametrize("which", ["messages", "bytes"])
@settings(max_examples=25, deadline=None)
@given(data=st.data(), moves=steps, cost=st.integers(0, 500_000), debt_ns=st.sampled_from([0, SECOND, 10 * SECOND]))
def test_a_settlement_is_charged_in_full_or_leaves_the_debt_that_is_allowed(
    name: str, which: str, data: st.DataObject, moves: Moves, cost: int, debt_ns: int
) -> None:
    drawn = data.draw(limits_of(name))
    limit = Limit(messages=drawn.messages, warm_up_ns=drawn.warm_up_ns)
    messages, size = cost, 0
    if which == "bytes":
        limit, messages, size = Limit(bytes=drawn.messages, warm_up_ns=drawn.warm_up_ns), 0, cost
    bucket, now = play(name, limit, moves)
    owed = bucket.wait_ns(0, 0, now)
    bucket.settle(messages, size, debt_ns, now)
    wait = bucket.wait_ns(0, 0, now)
    assert owed <= wait <= max(owed, debt_ns)
    if wait < debt_ns:
        bucket.settle(-messages, -size, debt_ns, now)
        untouched, _ = play(name, limit, moves)
        assert bucket.fills(now) == untouched.fills(now)
        assert bucket.wait_ns(1, 1, now) == untouched.wait_ns(1, 1, now)


@pytest.mark.parametrize("name", RATE_ALGORITHMS)
@pytest.mark.parametrize("rate", [1, 1000, 1_000_000])
def test_its_limit_changed_live_is_still_kept_by_the_same_algorithm(name: str, rate: int) -> None:
    """Rate, then burst, then the algorithm itself, in a judge in use: no change is worth a message.

    But for what is left of a cold `warm_up`: less than the 3 tokens of a message, which five times the burst makes 15.
    """
    judge = judge_of(Rule("r", limit=Limit(messages=Rate(rate)), algorithm=name, open_for_ns=0))
    key = key_of(judge, "orders")
    ask(judge, key, BEGIN, count=10**7)
    for changed in (
        Rule("r", limit=Limit(messages=Rate(7 * rate)), algorithm=name, open_for_ns=0),
        Rule("r", limit=Limit(messages=Rate(rate), burst_ns=None if name == "pacing" else 5 * SECOND), algorithm=name, open_for_ns=0),
        *(Rule("r", limit=Limit(messages=Rate(rate)), algorithm=other, open_for_ns=0) for other in RATE_ALGORITHMS),
    ):
        judge.replace(judge_of(changed).rules, BEGIN)
        assert ask(judge, key, BEGIN, count=10**7).passed <= (15 if name == "warm_up" else 0)
