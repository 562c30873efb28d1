"""The rate of a limit that follows its consumers: a model of a topic, looked at once a second."""

from __future__ import annotations

import pytest

from limiter.algorithms.lag import LagControlledBucket
from limiter.algorithms.lag_controller import LagController
from limiter.limits import SECOND, Lag, Limit, Rate
from limiter.quota_snapshot import Quota
from limiter.rules.rule_set import Override
from support.models.asking import Match, Rule, RuleSet, ask, judge_of, key_of, rocketmq_topic

FASTEST, SLOWEST, TARGET = 1000, 20, 500
LIMIT = Limit(messages=Rate(FASTEST), lag=Lag(TARGET, Rate(SLOWEST), group="billing"))


class Topic:
    """Producers that always want more than they may, consumers that take `speed` per second; one step a second."""

    def __init__(self, speed: int, demand: int = 1000) -> None:
        self.controller = LagController(LIMIT)
        self.rate = float(FASTEST)
        self.speed = speed
        self.demand = demand
        self.backlog = 0.0
        self.worst = 0.0

    def run(self, seconds: int) -> Topic:
        for _ in range(seconds):
            there = self.backlog + min(self.demand, self.rate)
            taken = min(there, self.speed)
            self.backlog = there - taken
            self.worst = max(self.worst, self.backlog)
            self.rate = self.controller.next_rate(LIMIT, int(self.backlog), int(taken), 1.0).per_second
        return self


def test_it_settles_at_what_the_consumers_take_and_at_the_target() -> None:
    topic = Topic(speed=200).run(20)
    rates = [topic.run(1).rate for _ in range(30)]
    assert 180 <= sum(rates) / len(rates) <= 220
    assert TARGET / 4 <= topic.backlog <= TARGET * 1.5


def test_the_overshoot_is_what_came_in_until_it_was_seen() -> None:
    assert Topic(speed=200).run(60).worst <= TARGET + (FASTEST - 200) * 4


def test_consumers_that_become_faster_are_followed_up_to_the_fastest() -> None:
    topic = Topic(speed=200).run(30)
    topic.speed = 2000
    assert topic.run(12).rate == FASTEST


def test_consumers_that_stop_get_the_slowest_and_are_found_again() -> None:
    topic = Topic(speed=200).run(30)
    topic.speed = 0
    assert topic.run(15).rate == SLOWEST
    topic.speed = 400
    topic.run(60)
    assert 300 <= sum(topic.run(1).rate for _ in range(20)) / 20 <= 500


def test_a_topic_with_little_to_do_is_not_slowed() -> None:
    assert Topic(speed=200, demand=50).run(60).rate == FASTEST


def test_a_rate_never_leaves_its_bounds() -> None:
    controller = LagController(LIMIT)
    looks = [(0, 10**9), (10**9, 0), (0, 0), (TARGET, 3), (TARGET + 1, 10**6), (-5, -5)] * 5
    rates = [controller.next_rate(LIMIT, backlog, taken, 0.5).per_second for backlog, taken in looks]
    assert min(rates) >= SLOWEST
    assert max(rates) <= FASTEST


def test_a_bucket_that_is_steered_keeps_its_fill_in_proportion() -> None:
    bucket = LagControlledBucket(LIMIT, 0)
    bucket.take(500, 1, 0)
    bucket.set_rate(Rate(100), 0)
    assert bucket.available(1000, 1, 0, 0) == 50
    assert bucket.available(1000, 1, 0, SECOND // 2) == 100


def test_another_limit_leaves_the_rate_where_it_is_as_far_as_it_allows() -> None:
    bucket = LagControlledBucket(LIMIT, 0)
    bucket.set_rate(Rate(100), 0)
    bucket.change(Limit(messages=Rate(400), lag=Lag(TARGET, Rate(SLOWEST), group="billing")), 0)
    assert bucket.limit.messages == Rate(100)
    bucket.change(Limit(messages=Rate(50), lag=Lag(TARGET, Rate(SLOWEST), group="billing")), 0)
    assert bucket.limit.messages == Rate(50)
    bucket.change(Limit(messages=Rate(900), lag=Lag(TARGET, Rate(300), group="billing")), 0)
    assert bucket.limit.messages == Rate(300)


def test_a_limit_that_was_lowered_while_the_broker_was_asked_holds() -> None:
    bucket = LagControlledBucket(LIMIT, 0)
    bucket.change(Limit(messages=Rate(50), lag=Lag(TARGET, Rate(SLOWEST), group="billing")), 0)
    bucket.set_rate(Rate(900), 0)
    assert bucket.limit.messages == Rate(50)


@pytest.mark.parametrize("where", ["live", "quota", "rule"])
def test_a_limit_set_below_the_slowest_holds_as_it_is(where: str) -> None:
    """It fits no `lag`; found out by the judge only, message by message, it would limit nothing."""
    rule = Rule("followed", Match(protocol="rocketmq"), limit=LIMIT, algorithm="lag")
    name, override = rocketmq_topic(b"orders"), Override(messages=Rate(0))
    if where == "live":
        rules = RuleSet((rule,), None, {name: override})
    elif where == "quota":
        rules = RuleSet((rule,), None, None, {name: Quota("rocketmq", "orders", messages=(0, 0))})
    else:
        rules = RuleSet((rule,), {"followed": override})
    (effective,) = rules.effective(name)
    assert (effective.rule.algorithm, effective.limit) == ("token_bucket", Limit(messages=Rate(0)))
    judge = judge_of(rule)
    key = key_of(judge, "orders")
    assert ask(judge, key, 0).passed == 1
    judge.replace(rules, 0)
    assert ask(judge, key, 10 * SECOND).passed == 0


def test_a_changed_limit_keeps_the_rate_that_was_found_within_its_bounds() -> None:
    bucket = LagControlledBucket(LIMIT, 0)
    bucket.set_rate(Rate(100), 0)
    for messages, slowest, found in ((1000, 20, 100), (60, 20, 60), (1000, 200, 200)):
        bucket.change(Limit(messages=Rate(messages), lag=Lag(TARGET, Rate(slowest), group="billing")), 0)
        assert bucket.limit.messages == Rate(found)


def test_a_limit_without_messages_may_come_and_go() -> None:
    bucket = LagControlledBucket(LIMIT, 0)
    bucket.change(Limit(bytes=Rate(5), lag=LIMIT.lag), 0)
    assert bucket.limit.messages is None
    bucket.change(LIMIT, 0)
    assert bucket.limit.messages == Rate(FASTEST)
