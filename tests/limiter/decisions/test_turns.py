"""Turns: a batch, or a larger message, that waits beside a flood of smaller ones, which take each token as it comes."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limiter.judge import Judge
from limiter.limits import SECOND, Lag, Limit, Rate
from limiter.request import Request
from limiter.rules.cost import Cost
from limiter.rules.match import Match
from limiter.rules.rule import Rule
from limiter.rules.rule_set import RuleSet
from support.models.asking import ask, judge_of, key_of
from support.models.turns import Mix

NOW = 1_000 * SECOND
MIB = 1 << 20


def after_turns(judge: Judge, large: tuple[int, int], small: tuple[int, int], step_ns: int) -> tuple[int, int, int]:
    """When the large one passes that is held from 2 s on, and what has passed by then, or in 10 s: messages and bytes.

    The small ones begin with all of the burst.
    """
    key = key_of(judge, "orders")
    held = Request(key, 1, *large)
    burst = ask(judge, key, NOW, count=MIB, messages=small[0], size=small[1]).passed
    messages, size = burst * small[0], burst * small[1]
    for now in range(NOW, NOW + 10 * SECOND, step_ns):
        some = ask(judge, key, now, messages=small[0], size=small[1])
        messages += some.passed * small[0]
        size += some.passed * small[1]
        if now >= NOW + 2 * SECOND:
            judge.decide([held], now)
            held.again = True
            if held.passed:
                return now - NOW - 2 * SECOND, messages + large[0], size + large[1]
    return 0, messages, size


@pytest.mark.parametrize("algorithm", ["token_bucket", "warm_up"])
@pytest.mark.parametrize(
    ("limit", "large", "small", "cost_s"),
    [
        (Limit(messages=Rate(100)), (4, 400), (1, 100), 0.04),
        (Limit(messages=Rate(100)), (32, 3200), (1, 100), 0.32),
        (Limit(messages=Rate(100)), (300, 300), (1, 1), 1),  # more than the burst: a full bucket's time
        (Limit(bytes=Rate(MIB)), (1, 50_000), (1, 10_000), 0.05),
        (Limit(messages=Rate(200), bytes=Rate(MIB)), (1, 300_000), (1, 10_000), 0.3),
    ],
)
def test_a_larger_one_that_waits_beside_smaller_ones_passes_when_its_cost_would_have_come_in_and_the_limit_holds(
    algorithm: str, limit: Limit, large: tuple[int, int], small: tuple[int, int], cost_s: float
) -> None:
    judge = judge_of(Rule("topics", limit=limit, algorithm=algorithm, action="delay", open_for_ns=0))
    rates = ((limit.messages, 0), (limit.bytes, 1))
    step = min(rate.per_ns * small[at] // rate.amount for rate, at in rates if rate is not None) * 9 // 10
    took, *passed = after_turns(judge, large, small, step)
    assert 0 < took <= cost_s * SECOND * (3 if algorithm == "warm_up" else 1) + 2 * step
    for rate, at in rates:
        if rate is not None:
            assert passed[at] <= rate.tokens_in(SECOND) + rate.tokens_in(2 * SECOND + took) + large[at]


def test_however_many_large_ones_wait_half_of_the_rate_is_left_for_small_ones() -> None:
    judge = judge_of(Rule("topics", limit=Limit(bytes=Rate(MIB)), action="delay", open_for_ns=0))
    key = key_of(judge, "orders")
    held = [Request(key, 1, 1, 100_000) for _ in range(50)]
    small = large = 0
    for now in range(NOW, NOW + 10 * SECOND, SECOND // 500):
        judge.decide(held, now)
        large += sum(each.passed for each in held)
        held = [Request(key, 1, 1, 100_000) if each.passed else each for each in held]
        small += ask(judge, key, now, size=4000).passed
    assert small * 4000 + large * 100_000 <= 11 * MIB + 100_000
    assert small * 4000 >= 0.45 * 10 * MIB
    assert large * 100_000 >= 0.45 * 10 * MIB


def test_one_whose_turn_has_come_is_not_refused_with_others_like_it() -> None:
    judge = judge_of(Rule("topics", limit=Limit(messages=Rate(100)), action="delay", open_for_ns=0))
    key = key_of(judge, "orders")
    ask(judge, key, NOW, count=100)
    first, second, late = (Request(key, 1, 10, 0) for _ in range(3))
    judge.decide([first, second], NOW)
    ask(judge, key, NOW + SECOND // 10, count=10)
    judge.decide([late, second], NOW + SECOND // 10)
    assert (late.passed, second.passed) == (0, 1)


def test_at_a_cap_and_for_single_messages_there_are_no_turns() -> None:
    limit = Limit(messages=Rate(100))
    _, messages, _ = after_turns(judge_of(Rule("topics", limit=limit, open_for_ns=0)), (1, 0), (1, 0), SECOND // 1000)
    assert messages <= 1100
    judge = judge_of(Rule("cap", per="listener", limit=limit, open_for_ns=0))
    key = key_of(judge, "orders")
    held = Request(key, 1, 10, 0)
    ask(judge, key, NOW, count=100)
    judge.decide([held], NOW)
    ask(judge, key, NOW + SECOND // 10, count=10)
    judge.decide([held], NOW + SECOND // 10)
    assert held.passed == 0


@pytest.mark.parametrize("cost", [None, Cost(step=1000)])
def test_deliveries_have_no_turns(cost: Cost | None) -> None:
    """The next would be told so long a wait that it is taken back from its consumer."""
    limit = Limit(bytes=Rate(10_000)) if cost is None else Limit(messages=Rate(10))
    judge = judge_of(Rule("topics", Match(operation="consume"), limit=limit, cost=cost, open_for_ns=0))
    key = key_of(judge, "orders", operation="consume")
    held = Request(key, 1, 1, 5000)
    ask(judge, key, NOW, count=10, size=1000)
    for tenth in range(20):
        ask(judge, key, NOW + tenth * SECOND // 10, size=1000)
        judge.decide([held], NOW + tenth * SECOND // 10)
        assert held.passed == 0


def test_a_raised_limit_holds_for_turns_at_once() -> None:
    """One has just had its turn, and another been told its time, at a rate of one a minute."""

    def rules(rate: Rate) -> RuleSet:
        return RuleSet((Rule("work", Match(operation=("open", "declare")), per="user", limit=Limit(messages=rate, messages_burst=10),
            open_for_ns=0, cost=Cost(operations=(("declare", 10),))),))  # fmt: skip

    judge = Judge(rules(Rate(1, 60 * SECOND)))
    cheap, dear = (key_of(judge, "t", user="shop", operation=operation) for operation in ("open", "declare"))
    first, second = Request(dear, 1, 1, 0), Request(dear, 1, 1, 0)
    ask(judge, cheap, NOW, count=10)
    judge.decide([first, second], NOW)
    now = NOW + 600 * SECOND
    ask(judge, cheap, now, count=10)
    judge.decide([first, second], now)
    assert (first.passed, second.passed) == (1, 0)
    judge.replace(rules(Rate(100)), now)
    since = now
    while not second.passed and now < since + SECOND:
        now += SECOND // 100
        ask(judge, cheap, now)
        judge.decide([second], now)
    assert now - since <= 3 * SECOND // 10


@pytest.mark.parametrize(
    ("where", "algorithm"),
    [
        *(("process", each) for each in ("token_bucket", "warm_up", "lag")),
        *(("workers", each) for each in ("token_bucket", "warm_up", "lag")),
        *(("fleet", each) for each in ("token_bucket", "warm_up")),
    ],
)
@settings(max_examples=8)
@given(
    members=st.integers(2, 4),
    costs=st.lists(st.integers(6, 20), min_size=1, max_size=3),
    held=st.booleans(),
    counts_bytes=st.booleans(),
    event=st.sampled_from(("", "raised", "no owner")),
    seed=st.integers(0, 1000),
)
def test_half_of_what_comes_in_is_for_small_ones_and_half_for_large_ones_wherever_that_is_decided(
    *, where: str, algorithm: str, members: int, costs: list[int], held: bool, counts_bytes: bool, event: str, seed: int
) -> None:
    """At a lag's slowest rate, a tenth, and for a member's part, it takes so much longer to pay what a turn has owed.

    `held`: the small ones wait, too.
    """
    members = 1 if where == "process" else members
    lag = algorithm == "lag"
    if lag or not counts_bytes:
        limit, large, small = Limit(messages=Rate(100)), [(cost, 0) for cost in costs], (1, 0)
    else:
        limit, large, small = Limit(bytes=Rate(100_000)), [(1, 1000 * cost) for cost in costs], (1, 1000)
    if lag:
        limit = replace(limit, lag=Lag(100, Rate(10), group="readers"))
    mix = Mix(limit, algorithm, members, large, small, fleet=where == "fleet")
    token_ns = members * SECOND // (10 if lag else 100)  # in which a member gets one
    random = Random(seed)
    mix.run(8 * max(costs), token_ns // 2, random, held=held)
    if event == "raised":
        mix.change(2)
        token_ns //= 1 if lag else 2
    elif event == "no owner":
        mix.lose_owner()
    mix.start_counting()
    mix.run((20 if algorithm == "token_bucket" else 50) * max(costs), token_ns // 2, random, held=held)
    dearest = max(large)[counts_bytes and not lag]
    found = mix.passed()
    assert sum(map(sum, found)) >= 2 * len(found) * dearest  # of one member 1.9 times it came once, where chance gave others more
    for passed_large, passed_small in found:
        passed = passed_large + passed_small
        assert passed_small >= 0.45 * passed - dearest
        assert passed_large >= 0.45 * passed - dearest


def test_small_ones_that_wait_too_do_not_take_a_large_ones_turn() -> None:
    """Forty of 10 kB, asked again every 5 ms, and one of 50 kB, asked again every 100 ms, at 1 MiB/s."""
    judge = judge_of(Rule("topics", limit=Limit(bytes=Rate(MIB)), action="delay", open_for_ns=0))
    key = key_of(judge, "orders")
    ask(judge, key, NOW, count=200, size=10_000)
    small = [Request(key, 1, 1, 10_000) for _ in range(40)]
    large = Request(key, 1, 1, 50_000)
    passed = 0
    for at in range(1000):
        now = NOW + at * SECOND // 200
        if at % 20 == 0:
            judge.decide([large], now)
            passed += large.passed
            large = Request(key, 1, 1, 50_000) if large.passed else large
        for each in small:
            judge.decide([each], now)
        small = [Request(key, 1, 1, 10_000) if each.passed else each for each in small]
    assert passed >= 15
