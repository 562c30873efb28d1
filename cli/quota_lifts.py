"""Which quotas are above the rule that holds for their topic today, by the gateway's rules and its own way of choosing among them.

A first quota is bound by no rail, since there is none before it: a day with one flood gives the topic the flood as its limit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from cli.client import AdminClient
from cli.output import print_status
from common.figures import pluralise
from limiter.limits import Limit, Rate
from limiter.quota_snapshot import Snapshot
from limiter.rules.errors import RuleError
from limiter.rules.match import MATCH_KEYS, Match
from limiter.rules.rule import Rule
from limiter.rules.rule_set import Effective, RuleSet
from limiter.topics import parse_topic
from limiter.units import parse_byte_rate, parse_rate
from spark_jobs.nights.plan import show_rate
from spark_jobs.nights.rails import DIMENSIONS

MAX_SHOWN: Final = 3  # quotas; named by the plan of those above their rules


@dataclass(frozen=True, slots=True)
class LiftedQuota:
    """A quota above the rule that holds today: rates per second, of the dimension that it lifts most."""

    protocol: str
    topic: str
    dimension: str
    rule: str
    by_rule: float
    by_quota: float

    @property
    def factor(self) -> float:
        return self.by_quota / self.by_rule if self.by_rule else float("inf")

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("protocol", "topic", "dimension", "rule", "by_rule", "by_quota")}

    def text(self) -> str:
        rule, quota = (show_rate(self.dimension, rate) for rate in (self.by_rule, self.by_quota))
        return f"{self.protocol} {self.topic}: {rule} by rule {self.rule}, {quota} by its quota"


def find_lifted(client: AdminClient, published: Snapshot) -> tuple[LiftedQuota, ...]:
    """The quotas of `published` that let more pass than the rule of today, the largest factor first; under their ceilings."""
    quotas = {parse_topic(each.protocol, each.topic): each for each in published.quotas}
    rules = RuleSet(tuple(_rules(client.items("/v1/rules"))), quotas=quotas) if quotas else RuleSet()
    found: list[LiftedQuota] = []
    for name, quota in quotas.items():
        for each in rules.effective(name):
            if each.origin == "quota" and each.ruled.mode == "enforce":
                found += _lifts(quota.protocol, quota.topic, each)
    return tuple(sorted(found, key=lambda each: -each.factor))


def _lifts(protocol: str, topic: str, holding: Effective) -> list[LiftedQuota]:
    """What the quota lifts most; nothing where it lifts nothing. A rule that does not limit a dimension is not lifted."""
    found = []
    for dimension in DIMENSIONS:
        before: Rate | None = getattr(holding.ruled.limit, dimension)
        after: Rate | None = getattr(holding.limit, dimension)
        if before is not None and after is not None and after.per_second > before.per_second:
            found.append(LiftedQuota(protocol, topic, dimension, holding.ruled.name, before.per_second, after.per_second))
    return sorted(found, key=lambda each: -each.factor)[:1]


def _rules(views: Iterable[dict[str, Any]]) -> Iterable[Rule]:
    """The rules for what is published to a topic, with their match, rates and ceiling; a newer gateway's are left out."""
    for view in views:
        if view.get("per", "topic") != "topic":
            continue
        limit = view.get("limit") or {}
        messages, size = limit.get("messages"), limit.get("bytes")
        rates = Limit(parse_rate(messages) if messages else None, parse_byte_rate(size) if size else None)
        try:
            yield Rule(
                str(view["name"]), Match(**{name: _value(name, text) for name, text in (view.get("match") or {}).items()}), limit=rates,
                mode="off" if rates.limits_nothing() else str(view.get("mode", "enforce")), ceiling=bool(view.get("ceiling")),
                routing_key_words=view.get("routing_key_words"),
            )  # fmt: skip
        except (RuleError, TypeError):
            continue


def _value(name: str, text: str) -> Any:
    """What a match says, from its words: several listeners or operations are one text there."""
    words = tuple(text.split(", ")) if name in MATCH_KEYS and name in {"listener", "operation"} else (text,)
    return words if len(words) > 1 else words[0]


def report_lifted(found: tuple[LiftedQuota, ...], count: int) -> None:
    """Say how many of `count` quotas are above their rules, which most, and the way out."""
    if not found:
        return
    verb = "is" if len(found) == 1 else "are"
    print_status(f"{len(found)} of {pluralise(count, 'quota')} {verb} above the rule that holds today; by the largest factor:")
    for each in found[:MAX_SHOWN]:
        print_status(f"  {each.text()}")
    print_status(
        "what a quota may lift is bounded by `ceiling: true` of the rule, and by `compute --set ceiling_messages=N` for all topics"
    )
