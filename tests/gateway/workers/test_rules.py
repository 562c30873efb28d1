"""Rule sets on their way to a worker: the same rules, live changes and quotas come out; evidence stays at home."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import get_args, get_type_hints

import msgspec
import pytest

from gateway.workers.rules import TYPES, decode, differ_in_raise_only, encode, hourly_raise, raise_of, tag_types
from limiter.limits import Limit, LimitChange, Rate
from limiter.quota_snapshot import Quota
from limiter.rules.cost import Cost
from limiter.rules.hourly_raise import HourlyRaise
from limiter.rules.level_keys import LevelKey
from limiter.rules.live_change import Override
from limiter.rules.match import Match
from limiter.rules.rule import Rule
from limiter.rules.rule_set import RuleSet
from limiter.topics import amqp_topic, rocketmq_topic
from limiter.units import parse_duration, parse_rate

RULES = (
    Rule("all", Match(protocol="rocketmq"), limit=Limit(messages=Rate(1, 3_000_000_000), burst_ns=2_000_000_000), place="limits.yaml:2"),
    Rule("some", Match(vhost="/", exchange="e", routing_key="a.#"), limit=Limit(bytes=Rate(5), bytes_burst=7), action="delay", weight=2.5),
    Rule("few", Match(client="10.0.0.0/8"), per="client", limit=Limit(concurrent=5), algorithm="concurrency", open_for_ns=0),
    Rule(
        "work",
        Match(operation=("open", "declare")),
        per="user",
        limit=Limit(messages=Rate(5)),
        cost=Cost(operations=(("declare", 9),)),
    ),
)


def test_a_rule_set_comes_out_as_it_went_in() -> None:
    topic = amqp_topic(b"\xff", b"", b"q")
    rules = RuleSet(
        RULES,
        {"all": Override(messages=Rate(7), by="ann", at=1.5, reason="why", expires_at=10.0)},
        {topic: Override(bytes=Rate(9), mode="shadow")},
        {rocketmq_topic(b"t"): Quota("rocketmq", "t", (0.5, 3), None, {"days": 28})},
        42,
        5.0,
        shadow_quotas={rocketmq_topic(b"u"): Quota("rocketmq", "u", (2, 3), None, {"days": 28})},
        level_overrides={LevelKey("consume", "client", "", "2001:db8::/64"): Override(messages=Rate(3))},
    )
    found = decode(encode(rules))
    assert (found.file_rules, found.rules, found.revision) == (RULES, rules.rules, 42)
    assert (found.rule_overrides, found.overrides) == (rules.rule_overrides, rules.overrides)
    assert found.level_overrides == rules.level_overrides
    assert found.quotas == {rocketmq_topic(b"t"): Quota("rocketmq", "t", (0.5, 3))}
    assert found.shadow_quotas == {rocketmq_topic(b"u"): Quota("rocketmq", "u", (2, 3))}


@pytest.mark.parametrize("change", [
    Override(messages=Rate(5), messages_burst=10**20), Override(bytes=Rate(5), bytes_burst=10**5000),
    Override(messages=Rate(5), burst_ns=parse_duration("9999999h")), Override(messages=parse_rate("0.123456789012345678/s")),
    Override(candidate=LimitChange(messages=parse_rate("0.000000000000000000001/s"), messages_burst=2**63)),
])  # fmt: skip
def test_a_number_of_any_size_goes_over(change: Override) -> None:
    """Such a change was durable, and from then on no change of anything reached a worker, and no gateway with workers started."""
    rules = RuleSet(RULES, {"all": change})
    assert decode(encode(rules)).rule_overrides == rules.rule_overrides == {"all": change}


def test_an_expired_change_is_not_sent() -> None:
    rules = RuleSet(RULES, {"all": Override(messages=Rate(7), expires_at=10.0)}, now_s=11.0)
    assert decode(encode(rules)).rule_overrides == {}


def test_an_unknown_type_is_named() -> None:
    with pytest.raises(TypeError, match="add its type to TYPES"):
        tag_types(object())


def types_in(cls: type, found: set[type]) -> set[type]:
    """The dataclasses that `cls` is made of, itself included."""
    if is_dataclass(cls) and cls not in found:
        found.add(cls)
        for hint in get_type_hints(cls).values():
            for inner in (hint, *get_args(hint)):
                if isinstance(inner, type):
                    types_in(inner, found)
    return found


@pytest.mark.parametrize("cls", [Rule, Override])
def test_every_type_that_a_rule_may_be_made_of_is_known(cls: type) -> None:
    assert {each.__name__ for each in types_in(cls, set())} <= TYPES.keys()


def test_a_raise_goes_over_with_its_rules_or_alone() -> None:
    topic = rocketmq_topic(b"t")
    published = {topic: Quota("rocketmq", "t", (10, 100), hourly_messages=3.0)}
    before = RuleSet(RULES, {"all": Override(messages=Rate(7))}, quotas=published, revision=42)
    raised = before.raised_by(HourlyRaise({("rocketmq", "t"): (5.0, 0.5)}, 4.0, {("rocketmq", "t"): (1.0, 7.0)}))
    with_rules = decode(encode(raised))
    alone = decode(encode(before)).raised_by(hourly_raise(msgspec.msgpack.decode(msgspec.msgpack.encode(raise_of(raised)))))
    for found in (raised, with_rules, alone):
        (effective,) = found.effective(topic)
        assert (effective.origin, effective.limit.messages, found.revision) == ("quota+hour", Rate(15), 42)
        assert found.rule_overrides == before.rule_overrides
    (effective,) = alone.raised_by(hourly_raise(raise_of(before))).effective(topic)
    assert effective.origin == "quota"


def test_only_a_set_with_the_same_rules_changes_and_quotas_differs_in_its_raise_alone() -> None:
    before = RuleSet(RULES, {"all": Override(messages=Rate(7))}, quotas={}, revision=42)
    hourly = HourlyRaise({}, 4.0)
    assert differ_in_raise_only(before, before.raised_by(hourly))
    for other in (
        RuleSet((*RULES,), before.rule_overrides, quotas=before.quotas, revision=43),
        RuleSet(RULES, before.rule_overrides, quotas={}, revision=42),
        RuleSet(RULES, {}, quotas=before.quotas, revision=42),
        RuleSet(RULES[:2], before.rule_overrides, quotas=before.quotas, revision=42),
    ):
        assert not differ_in_raise_only(before, other)
