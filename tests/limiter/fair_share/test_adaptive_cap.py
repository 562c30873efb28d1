"""A cap that listens to its broker: down by parts, up by amounts, never below its floor nor above what the rule says."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limiter.fair_share.adaptive_cap import AdaptiveCap
from limiter.judge import Judge
from limiter.limits import Adapt
from limiter.rules.live_change import Override
from support.models.asking import SECOND, Limit, Match, Rate, Rule, RuleSet, ask, judge_of, key_of

BEGIN = 5 * SECOND
MS = SECOND // 1000
TICK = 250 * MS  # how often the gateway tells
ADAPT = Adapt(floor=200, tighten=200, every_ns=SECOND, recover=50)
LIMIT = Limit(messages=Rate(1000), bytes=Rate(10_000), messages_burst=500, adapt=ADAPT)


def cap(adapt: Adapt | None = ADAPT, rate: int = 1000) -> Rule:
    return Rule("cap", per="listener", limit=Limit(messages=Rate(rate), adapt=adapt))


def used(*rules: Rule) -> Judge:
    """A judge whose cap of listener `l` is in use."""
    judge = judge_of(*rules)
    ask(judge, key_of(judge, "a"), BEGIN)
    return judge


def rate(judge: Judge, now: int) -> str:
    (state,) = judge.caps("l", now)
    return str(state.now.messages)


# ---- the numbers alone -------------------------------------------------------------------------------------------------


def test_a_signal_makes_it_smaller_by_a_part_once_in_a_while() -> None:
    adaptive_cap = AdaptiveCap(LIMIT)
    seen = []
    for ms in range(0, 3000, 250):
        adaptive_cap.on_overload("blocked", BEGIN + ms * MS)
        seen.append(adaptive_cap.permille)
    assert seen == [800] * 4 + [640] * 4 + [512] * 4
    assert (adaptive_cap.reason, adaptive_cap.counts) == ("blocked", {"blocked": 3})


def test_it_never_falls_below_its_floor() -> None:
    adaptive_cap = AdaptiveCap(LIMIT)
    for second in range(30):
        adaptive_cap.on_overload("blocked", BEGIN + second * SECOND)
    assert adaptive_cap.permille == 200


def test_it_recovers_by_the_same_amount_each_second_and_not_before_it_could_be_tightened_again() -> None:
    adaptive_cap = AdaptiveCap(LIMIT)
    adaptive_cap.on_overload("blocked", BEGIN)
    seen = []
    for tick in range(1, 25):
        adaptive_cap.recover(BEGIN + tick * TICK)
        if tick % 4 == 0:
            seen.append(adaptive_cap.permille)
    assert seen == [800, 850, 900, 950, 1000, 1000]
    assert (adaptive_cap.reason, adaptive_cap.since) == ("", 0)


def test_all_of_the_limit_is_scaled_but_the_time_of_a_burst() -> None:
    adaptive_cap = AdaptiveCap(LIMIT)
    adaptive_cap.on_overload("blocked", BEGIN)
    assert adaptive_cap.scale_limit() == Limit(Rate(800), Rate(8000), messages_burst=400, adapt=ADAPT)


def test_a_cap_that_does_not_adapt_hears_nothing() -> None:
    adaptive_cap = AdaptiveCap(Limit(messages=Rate(1000)))
    adaptive_cap.on_overload("blocked", BEGIN)
    assert (adaptive_cap.permille, adaptive_cap.counts) == (1000, {})


@pytest.mark.parametrize(("changed", "expected"), [(Adapt(floor=900), 900), (None, 1000), (Adapt(floor=100), 800)])
def test_changed_bounds_of_adaption_hold_at_once(changed: Adapt | None, expected: int) -> None:
    adaptive_cap = AdaptiveCap(LIMIT)
    adaptive_cap.on_overload("blocked", BEGIN)
    adaptive_cap.change(Limit(messages=Rate(2000), adapt=changed))
    assert adaptive_cap.permille == expected


def test_a_clock_that_is_set_back_does_not_keep_it_tight() -> None:
    adaptive_cap = AdaptiveCap(LIMIT)
    adaptive_cap.on_overload("blocked", BEGIN + 3600 * SECOND)
    for second in range(10):
        adaptive_cap.recover(BEGIN + second * SECOND)
    assert adaptive_cap.permille == 1000


@settings(max_examples=100, deadline=None)
@given(steps=st.lists(st.tuples(st.integers(0, 3 * SECOND), st.booleans()), max_size=60), floor=st.integers(1, 1000))
def test_it_stays_between_its_floor_and_the_whole(steps: list[tuple[int, bool]], floor: int) -> None:
    adaptive_cap = AdaptiveCap(Limit(messages=Rate(1000), adapt=Adapt(floor=floor)))
    now = BEGIN
    for later, busy in steps:
        now += later
        before = adaptive_cap.permille
        if busy:
            adaptive_cap.on_overload("blocked", now)
            assert adaptive_cap.permille <= before
        else:
            adaptive_cap.recover(now)
            assert adaptive_cap.permille >= before
        assert floor <= adaptive_cap.permille <= 1000


# ---- in the judge ------------------------------------------------------------------------------------------------------


def test_tightening_is_told_once_when_it_begins_and_once_when_it_is_over() -> None:
    judge = used(cap())
    told = []
    for tick in range(40):
        for event, state in judge.observe_broker_load("l", "timeout_clean_queue" if tick < 8 else "", BEGIN + tick * TICK):
            told.append((tick, event, state.reason, str(state.now.messages)))
    assert told == [(0, "tightening", "timeout_clean_queue", "800/s"), (37, "recovered", "", "1000/s")]


def test_only_the_listener_that_is_told_of_is_tightened() -> None:
    judge = used(cap())
    assert ask(judge, key_of(judge, "a", listener="other"), BEGIN).passed == 1
    judge.observe_broker_load("other", "blocked", BEGIN)
    assert rate(judge, BEGIN) == "1000/s"
    judge.observe_broker_load("l", "blocked", BEGIN)
    assert rate(judge, BEGIN) == "800/s"


def test_a_tightened_cap_admits_less_and_protected_topics_still_come_first() -> None:
    judge = used(cap(), Rule("mine", limit=Limit(), protected=True, match=Match(topic="mine")))
    mine, flood = key_of(judge, "mine"), key_of(judge, "flood")
    passed = [0, 0]
    for ms in range(0, 15_000, 2):
        now = BEGIN + ms * MS
        if ms % 250 == 0:
            judge.observe_broker_load("l", "blocked", now)
        found = ask(judge, mine, now, count=1).passed if ms % 6 == 0 else 0, ask(judge, flood, now, count=40).passed
        if ms >= 10_000:
            passed[0] += found[0]
            passed[1] += found[1]
    assert passed[0] >= 0.99 * 5000 / 6
    assert 970 <= sum(passed) <= 1010  # a fifth of 1,000/s, of which most is the protected topic's


def test_a_change_of_the_rule_keeps_it_tightened_in_proportion() -> None:
    judge = used(cap())
    judge.observe_broker_load("l", "blocked", BEGIN)
    judge.replace(RuleSet((cap(rate=500),)), BEGIN)
    assert rate(judge, BEGIN) == "400/s"
    judge.replace(RuleSet((cap(adapt=None, rate=500),)), BEGIN)
    assert rate(judge, BEGIN) == "500/s"


def test_a_live_change_of_its_rate_leaves_it_adapting() -> None:
    judge = used(cap())
    judge.observe_broker_load("l", "blocked", BEGIN)
    judge.replace(RuleSet((cap(),), {"cap": Override(messages=Rate(500))}), BEGIN)
    assert rate(judge, BEGIN) == "400/s"


def test_with_no_rule_that_adapts_nothing_is_told() -> None:
    judge = used(cap(adapt=None))
    assert judge.observe_broker_load("l", "blocked", BEGIN) == []
    assert rate(judge, BEGIN) == "1000/s"


# ---- against a broker that can take only so much -----------------------------------------------------------------------


class Broker:
    """Works off `takes` messages per second from a queue; says that it is busy while something waits for longer than 200 ms."""

    def __init__(self) -> None:
        self.takes = 1000
        self.queued = 0.0

    def busy(self, arrived: int, elapsed: int) -> bool:
        self.queued = max(0.0, self.queued + arrived - self.takes * elapsed / SECOND)
        return self.queued > self.takes * 0.2


def simulate(adapt: Adapt | None, seconds: int = 120) -> tuple[list[int], list[float]]:
    """Per second: what passed and what was queued, with a broker that takes half as much from second 20 to 60."""
    judge = used(cap(adapt))
    key, other = key_of(judge, "a"), key_of(judge, "b")
    broker = Broker()
    chance = random.Random(6)
    passed, queued = [0] * seconds, [0.0] * seconds
    busy = False
    arrived = 0
    for tick in range(seconds * 100):
        now = BEGIN + tick * 10 * MS
        second = tick // 100
        broker.takes = 500 if 20 <= second < 60 else 1000
        found = sum(ask(judge, each, now, count=chance.randrange(10, 20)).passed for each in (key, other))
        passed[second] += found
        arrived += found
        busy = broker.busy(found, 10 * MS)
        queued[second] = max(queued[second], broker.queued)
        if tick % 25 == 24:
            judge.observe_broker_load("l", "busy" if busy else "", now)
    return passed, queued


def test_a_simulated_broker_that_slows_down_is_followed_down_and_up() -> None:
    fixed, adapting = simulate(None), simulate(ADAPT)
    assert max(fixed[1]) > 15_000  # 30 s of its work in its queue
    assert max(adapting[1][30:60]) < 500  # one second of it
    assert 0.8 * 500 * 30 < sum(adapting[0][30:60]) <= 1.05 * 500 * 30  # and it has enough to do
    assert sum(adapting[0][75:]) >= 0.97 * 1000 * 45  # recovered
    downs = sum(later < earlier for earlier, later in pairwise(adapting[0][75:]))
    assert downs < 20
