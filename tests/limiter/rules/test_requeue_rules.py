"""Rules for what clients give back: what fits them, and what is said where something does not."""

from __future__ import annotations

from typing import Any

import pytest

from limiter.limits import SECOND, Limit, Rate
from limiter.rules.errors import RuleError
from limiter.rules.rule_set import Match, Rule, RuleSet
from limiter.rules.subject import Subject
from limiter.topics import amqp_topic

SOME = Limit(messages=Rate(20))


def requeues(**more: Any) -> Rule:
    match = Match(operation="requeue", **more.pop("match", {}))
    return Rule("requeues", match, **{"limit": SOME, **more})


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"action": "drop"}, "action"),
        ({"action": "close"}, "action"),
        ({"action": "spool"}, "action"),
        ({"action": "block"}, "action"),
        ({"fallback": "close"}, "fallback"),
        ({"fallback": "drop"}, "fallback"),
        ({"limit": Limit(bytes=Rate(1000))}, "limit.bytes"),
        ({"limit": Limit(concurrent=5), "algorithm": "concurrency"}, "algorithm"),
        ({"per": "exchange"}, "per"),
        ({"backoff_ns": -1}, "backoff"),
        ({"backoff_ns": 3601 * SECOND}, "backoff"),
        ({"routing_key_words": 1}, "routing_key_words"),
        ({"weight": 3.0}, "weight"),
        ({"match": {"exchange": "orders"}}, "match.exchange"),
        ({"match": {"topic": "orders"}}, "match.topic"),
        ({"match": {"topic": "%DLQ%*"}}, "match.topic"),
        ({"match": {"group": "billing"}, "per": "vhost"}, "per"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_field(more: dict[str, Any], field: str) -> None:
    with pytest.raises(RuleError) as refused:
        requeues(**more)
    assert refused.value.field == field


def test_a_backoff_is_for_it_alone() -> None:
    assert requeues(backoff_ns=30 * SECOND).backoff_ns == 30 * SECOND
    with pytest.raises(RuleError) as refused:
        Rule("publishes", limit=SOME, backoff_ns=SECOND)
    assert refused.value.field == "backoff"


@pytest.mark.parametrize("per", ["topic", "vhost", "group", "namespace", "user", "client", "listener", "connection", "rule"])
def test_each_level_fits_and_none_has_a_breaker_or_is_a_cap(per: str) -> None:
    rule = requeues(per=per)
    assert rule.breaker_ns() == 0
    assert not rule.is_cap()


def test_it_is_for_its_operation_alone() -> None:
    rules = RuleSet((requeues(match={"queue": "jobs"}), Rule("publishes", limit=SOME)))
    name = amqp_topic(b"/", b"", b"jobs")
    found = {op: [each.rule.name for each in rules.matched(Subject(name, name.text(), operation=op))] for op in ("produce", "requeue")}
    assert found == {"produce": ["publishes"], "requeue": ["requeues"]}
