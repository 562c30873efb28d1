"""Which of three rules of a level holds, for every field of `match` at every level, with exact names, globs and word patterns.

One rule is for everything, one has a pattern, one the exact name; whatever their order in the file, the exact one holds where its field
names the key of its level, else the first of the two in the file; and who is not meant gets the rule for everything.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import pytest

from limiter.limits import Limit, Rate
from limiter.operations import OF_TOPICS, OPERATION_RECORDS, OPERATIONS
from limiter.quota_snapshot import Quota
from limiter.rules.match import PROTOCOLS
from limiter.rules.rule_set import Match, Override, Rule, RuleSet
from limiter.rules.rule_words import PER
from limiter.topics import TopicName, amqp_topic, rocketmq_topic
from support.cases import cases

ORDERS = amqp_topic(b"/shop", b"events", b"order.eu.1")
JOBS = amqp_topic(b"/shop", b"", b"jobs")
SHOP = rocketmq_topic(b"shop%orders")
ASKING = {"listener": "rabbit", "client": "10.0.0.7", "user": "shop", "group": b"billing"}
AMQP_LEVELS = [per for per in PER if per not in {"group", "namespace"}]
ROCKETMQ_LEVELS = [per for per in PER if per not in {"exchange", "vhost"}]


@dataclass(frozen=True)
class Field:
    """A field of `match`: the key it is asked about, the exact name, patterns that match too, and a name that does not."""

    name: str
    key: TopicName
    exact: str
    patterns: tuple[str, ...]
    other: str
    names: tuple[str, ...]  # the levels whose key the exact name is
    more: dict[str, str] = field(default_factory=dict)  # what else the rules say, bare ones too where it is the protocol

    @property
    def levels(self) -> list[str]:
        return AMQP_LEVELS if self.key.protocol == "amqp" else ROCKETMQ_LEVELS


FIELDS = [
    Field("listener", ORDERS, "rabbit", ("rab*", "r?bbit", "[r]abbit"), "rocket", ("listener",)),
    Field("vhost", ORDERS, "/shop", ("/s*", "*"), "/", ("vhost",)),
    Field("exchange", ORDERS, "events", ("ev*", "event?"), "orders", ("exchange",)),
    Field("routing_key", ORDERS, "order.eu.1", ("order.#", "order.*.1", "#", "order.eu*"), "bill", ()),
    Field("routing_key", ORDERS, "order.eu.1", ("order.#", "*.eu.*"), "bill", tuple(AMQP_LEVELS), {"exchange": "events"}),
    Field("queue", JOBS, "jobs", ("jo*", "j?bs"), "mail", tuple(AMQP_LEVELS)),
    Field("topic", SHOP, "shop%orders", ("shop%*", "*"), "shop%bills", tuple(ROCKETMQ_LEVELS)),
    Field("group", SHOP, "billing", ("bil*",), "other", ("group",)),
    Field("namespace", SHOP, "shop", ("s*", "sho[p]"), "store", ("namespace",)),
    Field("user", ORDERS, "shop", ("sh*", "*"), "guest", ("user",)),
    Field("client", ORDERS, "10.0.0.7", ("10.0.0.0/8", "10.0.0.6/31", "0.0.0.0/0"), "192.168.0.0/16", ("client",)),
    Field("client", ORDERS, "10.0.0.7/32", ("10.0.0.0/29",), "10.0.0.8", ("client",)),
]  # fmt: skip
CASES = [(each, per, pattern) for each in FIELDS for per in each.levels for pattern in each.patterns]


def rule(name: str, per: str, **match: str) -> Rule:
    return Rule(name, Match(**match), per=per, limit=Limit(messages=Rate(1)))


def holder(rules: tuple[Rule, ...], key: TopicName) -> tuple[str, str]:
    """Name and origin of what holds."""
    (effective,) = RuleSet(rules).effective(key, **ASKING, connection=7)  # type: ignore[arg-type]
    return effective.rule.name, effective.origin


def test_exact_before_patterns_before_bare_and_else_in_file_order() -> None:
    with cases() as case:
        for each, per, pattern in CASES:
            with case(f"{each.name}-{per}-{pattern}"):
                exact = rule("exact", per, **{each.name: each.exact}, **each.more)
                globbed = rule("pattern", per, **{each.name: pattern}, **each.more)
                other = rule("other", per, **{each.name: each.other}, **each.more)
                bare = rule("bare", per, protocol=each.key.protocol)
                named = per in each.names
                both_named = per == "exchange" and (each.name == "queue" or "exchange" in each.more)  # whatever the routing key
                all_bare = each.name == "listener" and per != "listener"  # a listener alone leaves a rule bare
                for order in itertools.permutations((exact, globbed, bare)):
                    first = exact if named and not both_named else min((exact, globbed), key=order.index)
                    assert holder((other, *order), each.key) == (order[0].name if all_bare else first.name, "file" if named else "default")
                assert holder((other, bare), each.key) == ("bare", "default")
                assert RuleSet((other,)).effective(each.key, **ASKING, connection=7) == []  # type: ignore[arg-type]


@pytest.mark.parametrize("per", PER)
def test_protocol_and_operation_leave_a_rule_bare(per: str) -> None:
    key = ORDERS if per in AMQP_LEVELS else SHOP
    for protocol, operation in itertools.product(PROTOCOLS, OPERATIONS):
        fits = operation == "produce" or per != "exchange"
        if per == "topic" and operation not in OF_TOPICS:
            continue
        if protocol == key.protocol and fits and protocol in OPERATION_RECORDS[operation].protocols:
            said = rule("said", per, protocol=protocol, operation=operation)
            bare = rule("bare", per, operation=operation)
            for order in itertools.permutations((said, bare)):
                found = RuleSet(order).effective(key, **ASKING, operation=operation, connection=7)  # type: ignore[arg-type]
                assert [effective.rule.name for effective in found] == [order[0].name]
    wrong = "rocketmq" if key.protocol == "amqp" else "amqp"
    if per not in {"exchange", "vhost", "group", "namespace"}:
        assert RuleSet((rule("wrong", per, protocol=wrong),)).effective(key, **ASKING) == []  # type: ignore[arg-type]
    consume = rule("consume", per, operation="consume") if per != "exchange" else rule("consume", "topic", operation="consume")
    assert RuleSet((consume,)).effective(key, **ASKING) == []  # type: ignore[arg-type]


@pytest.mark.parametrize("key", [ORDERS, SHOP])
def test_live_change_exact_name_quota_pattern_bare(key: TopicName) -> None:
    """docs/design/contract.md 3, in full: each is taken away in turn, and the next holds."""
    named = {"topic": "shop%orders"} if key is SHOP else {"exchange": "events", "routing_key": "order.eu.1"}
    globbed = {"topic": "shop%*"} if key is SHOP else {"routing_key": "order.#"}
    rules = [rule("bare", "topic", protocol=key.protocol), rule("pattern", "topic", **globbed), rule("exact", "topic", **named)]
    quotas = {key: Quota(key.protocol, key.text(), messages=(5, 5))}

    def origin(overrides: dict[TopicName, Override], quotas: dict[TopicName, Quota]) -> tuple[str, str]:
        (effective,) = RuleSet(tuple(rules), overrides=overrides, quotas=quotas).effective(key)
        return effective.origin, effective.rule.name

    assert origin({key: Override(messages=Rate(9))}, quotas) == ("override", "exact")
    assert origin({}, quotas) == ("file", "exact")
    rules.pop()
    assert origin({}, quotas) == ("quota", "pattern")
    assert origin({}, {}) == ("default", "pattern")
    rules.pop()
    assert origin({}, {}) == ("default", "bare")
