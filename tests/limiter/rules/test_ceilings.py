"""Ceilings: rules that no published quota passes, wherever they and the quota stand in the order of the rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limiter.limits import SECOND, Limit, LimitChange, Rate, lower_limit
from limiter.quota_snapshot import Quota
from limiter.rules.explanation import explain
from limiter.rules.hourly_raise import HourlyRaise
from limiter.rules.rule_set import SHADOW, Match, Override, Rule, RuleError, RuleSet
from limiter.rules.subject import Subject
from limiter.topics import amqp_topic, rocketmq_topic

ORDERS = rocketmq_topic(b"orders")
QUOTA = {ORDERS: Quota("rocketmq", "orders", messages=(70, 700), bytes=(1000, 9000), hourly_messages=3.0)}
ALL = Rule("all", Match(protocol="rocketmq"), limit=Limit(messages=Rate(1)))
GLOB = Rule("glob", Match(topic="ord*"), limit=Limit(messages=Rate(2)), place="limits.yaml:4")
RAISED = HourlyRaise({("rocketmq", "orders"): (1000.0, 0.0)}, 4.0)


def roof(name: str = "roof", rate: int = 50, **match: Any) -> Rule:
    return Rule(name, Match(**(match or {"protocol": "rocketmq"})), limit=Limit(messages=Rate(rate)), ceiling=True, place="limits.yaml:9")


@pytest.mark.parametrize(
    ("rules", "holds"),
    [
        ((ALL, GLOB), (70, 700)),
        ((roof(),), (50, 50)),  # it would hold without the quota
        ((ALL, GLOB, roof(topic="o*")), (50, 50)),  # another pattern comes before it
        ((ALL, GLOB, roof()), (50, 50)),  # a rule for everything, which patterns hide
        ((roof(), roof("lower", 30, topic="*s"), roof("higher", 90, topic="*")), (30, 30)),
        ((ALL, roof(topic="bills*")), (70, 700)),  # of other topics
        ((ALL, roof(rate=0)), (0, 0)),
        ((ALL, replace(roof(), mode="shadow")), (70, 700)),
        ((ALL, replace(roof(), mode="off")), (70, 700)),
    ],
)
def test_no_quota_and_no_raise_passes_a_ceiling_wherever_it_stands(rules: tuple[Rule, ...], holds: tuple[int, int]) -> None:
    (published,) = RuleSet(rules, quotas=QUOTA).effective(ORDERS)
    (raised,) = RuleSet(rules, quotas=QUOTA, hourly=RAISED).effective(ORDERS)
    tried = RuleSet(rules, shadow_quotas=QUOTA).effective(ORDERS)[-1]
    free = holds == (70, 700)
    assert (published.limit.messages, published.limit.messages_capacity()) == (Rate(holds[0]), holds[1])
    assert (raised.limit.messages, raised.limit.messages_capacity()) == ((Rate(280), 2800) if free else (Rate(holds[0]), holds[1]))
    assert tried.origin == SHADOW
    assert tried.limit.messages == Rate(holds[0])
    assert (published.limit.bytes, published.limit.bytes_capacity()) == (Rate(1000), 9000)  # the ceilings say nothing of bytes
    assert (published.roofs == ()) is free


def test_what_a_person_has_named_or_changed_passes_a_ceiling() -> None:
    exact = Rule("exact", Match(protocol="rocketmq", topic="orders"), limit=Limit(messages=Rate(90)))
    (by_file,) = RuleSet((roof(), exact), quotas=QUOTA).effective(ORDERS)
    (live,) = RuleSet((roof(),), quotas=QUOTA, overrides={ORDERS: Override(messages=Rate(80))}).effective(ORDERS)
    (higher,) = RuleSet((roof(),), quotas=QUOTA, rule_overrides={"roof": Override(messages=Rate(60))}).effective(ORDERS)
    assert [(each.origin, each.limit.messages, each.roofs == ()) for each in (by_file, live)] == [
        ("file", Rate(90), True),
        ("override", Rate(80), True),
    ]
    assert higher.limit.messages == Rate(60)


def test_a_group_of_topics_and_a_candidate_stay_below_it() -> None:
    words = Rule("words", Match(protocol="amqp"), limit=Limit(messages=Rate(1)), routing_key_words=1, candidate=LimitChange(bytes=Rate(5)))
    group = amqp_topic(b"/", b"events", b"order.#")
    rules = RuleSet((words, roof(protocol="amqp")), quotas={group: Quota("amqp", group.text(), messages=(70, 700))})
    (effective,) = rules.effective(amqp_topic(b"/", b"events", b"order.eu"))
    candidate = effective.rule.candidate_limit()
    assert candidate is not None
    assert (effective.thing, effective.limit.messages, candidate.messages) == ("%2F/events/order.#", Rate(50), Rate(50))


def test_a_limit_without_a_burst_gets_none() -> None:
    paced = Rule("paced", Match(topic="o*"), limit=Limit(messages=Rate(1)), algorithm="pacing")
    (effective,) = RuleSet((paced, roof()), quotas=QUOTA).effective(ORDERS)
    assert effective.limit == Limit(messages=Rate(50), bytes=Rate(1000))


def test_why_a_quota_is_lower_than_published_is_told() -> None:
    (found,) = explain(RuleSet((ALL, GLOB, roof()), quotas=QUOTA), Subject(ORDERS, "orders"))
    first = found.losses[0]
    assert (first.rule, first.limit.messages, first.reason) == ("roof", Rate(50), "is a ceiling, which holds the quota down to here")


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"per": "client", "limit": Limit(messages=Rate(1))}, "is for published quotas"),
        ({"match": Match(topic="o*", operation="consume"), "limit": Limit(messages=Rate(1))}, "is for published quotas"),
        ({"match": Match(user="ana"), "limit": Limit(messages=Rate(1))}, "match.user says whose messages"),
        ({"match": Match(listener="rocket"), "limit": Limit(messages=Rate(1))}, "match.listener says whose messages"),
        ({"mode": "off"}, "give messages or bytes"),
    ],
)
def test_a_ceiling_that_could_hold_nothing_down_is_refused(said: dict[str, Any], field: str) -> None:
    with pytest.raises(RuleError, match=field) as caught:
        Rule("roof", ceiling=True, **said)
    assert caught.value.field == "ceiling"


RATES = st.none() | st.integers(0, 50).map(Rate) | st.integers(1, 50).map(lambda amount: Rate(amount, 60 * SECOND))
LIMITS = st.builds(
    Limit, RATES, RATES, st.none() | st.integers(1, 90), st.none() | st.integers(1, 90), st.none() | st.integers(1, 9 * SECOND)
)


@given(LIMITS, LIMITS)
def test_the_lesser_limit_lets_pass_no_more_than_either(limit: Limit, other: Limit) -> None:
    found = lower_limit(limit, other, bursts=True)
    for name in ("messages", "bytes"):
        rates = [rate for each in (limit, other) if (rate := getattr(each, name)) is not None]
        assert getattr(found, name) == min(rates, key=lambda rate: rate.amount / rate.per_ns, default=None)
        sizes = [getattr(each, f"{name}_capacity")() for each in (limit, other) if getattr(each, name) is not None]
        lowest = getattr(found, name) is not None and getattr(found, name).amount == 0
        assert getattr(found, f"{name}_capacity")() == (0 if lowest else min([size for size in sizes if size], default=0))
    assert lower_limit(limit, limit, bursts=True) is limit
