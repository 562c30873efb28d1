"""The reserve of a contender: the messages that its limits per topic keep free, and the part of them that nobody used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from limiter.limits import UNLIMITED, Limit
from limiter.topics import parse_topic
from spark_jobs.backtest.result import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from limiter.rules.rule_set import RuleSet
    from spark_jobs.backtest.contender import Contender


def topic_limit(rules: RuleSet, protocol: str, topic: str) -> Limit:
    """The enforced limit of the topic itself; UNLIMITED where there is none, or it shares the bucket of a group."""
    name = parse_topic(protocol, topic)
    for effective in rules.effective(name, listener=protocol):
        if effective.per == "topic" and effective.rule.mode == "enforce" and effective.thing == name.text():
            return effective.limit
    return UNLIMITED


def add_reserve(contender: Contender, outcomes: Iterable[Outcome], observed_seconds: int) -> list[Outcome]:
    """The outcomes of one contender's day with their reserve; and one for each of its quotas whose topic was silent."""
    rules = contender.rule_set()
    found = list(outcomes)
    seen = {(each.protocol, each.topic) for each in found}
    silent = [quota for quota in contender.quotas if (quota.protocol, quota.topic) not in seen]
    found += [Outcome(contender.name, quota.protocol, quota.topic) for quota in silent]
    for each in found:
        limit = topic_limit(rules, each.protocol, each.topic)
        if limit.messages is not None:
            each.reserved = limit.messages.per_second * observed_seconds
            each.unused = max(0.0, each.reserved - (each.offered - each.refused))
        if limit.bytes is not None:
            each.reserved_bytes = limit.bytes.per_second * observed_seconds
            each.unused_bytes = max(0.0, each.reserved_bytes - (each.offered_bytes - each.refused_bytes))
    return found
