"""A contender: one set of limits that a backtest tries, as plain values; and the reasons why rules cannot be replayed from a log."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from limiter.algorithms import COUNTING
from limiter.quota_snapshot import Quota
from limiter.rules.match import SENDER_KEYS
from limiter.rules.rule_set import RuleSet
from limiter.topics import parse_topic
from spark_jobs.backtest.plain import from_plain, to_plain

if TYPE_CHECKING:
    from collections.abc import Iterable

    from limiter.rules.rule import Rule
    from limiter.topics import TopicName

SENDERS: Final = ("client", "user", "group")  # levels and match fields that tell the senders of a topic apart


@dataclass(frozen=True)
class Contender:
    """Limits to be tried, under `name`. `rules` are `to_plain` of limits.yaml's, `quotas` the published ones that hold over them.

    `most`: times its rate that a quota may be raised to within the day; 0: none is.
    """

    name: str
    rules: tuple[Any, ...] = ()
    quotas: tuple[Quota, ...] = ()
    most: float = 0.0

    def rule_set(self) -> RuleSet:
        """The rules and quotas as the gateway has them in force."""
        quotas: dict[TopicName, Quota] = {parse_topic(quota.protocol, quota.topic): quota for quota in self.quotas}
        return RuleSet(tuple(from_plain(rule) for rule in self.rules), quotas=quotas)

    def to_plain(self) -> tuple[Any, ...]:
        """The contender as plain values, for a worker that has not found the limiter yet."""
        quotas = tuple(
            ((quota.protocol, quota.topic, quota.messages, quota.bytes), (quota.hourly_messages, quota.hourly_bytes))
            for quota in self.quotas
        )
        return self.name, self.rules, quotas, self.most

    @staticmethod
    def from_plain(plain: tuple[Any, ...]) -> Contender:
        """The inverse of `to_plain`, but for the quotas' evidence."""
        name, rules, quotas, most = plain
        return Contender(
            name, rules, tuple(replace(Quota(*own), hourly_messages=one, hourly_bytes=other) for own, (one, other) in quotas), most
        )

    def tells_senders_apart(self) -> bool:
        """Whether any rule looks at who sends; if none does, a topic's messages are all alike to it."""
        rules: list[Rule] = [from_plain(rule) for rule in self.rules]
        return any(rule.per in SENDERS or any(name in SENDERS for name in rule.match.given()) for rule in rules)


def make_contender(name: str, rules: Iterable[Rule] = (), quotas: Iterable[Quota] = (), most: float = 0.0) -> tuple[Contender, list[str]]:
    """The contender of these limits, and a sentence for each rule that a log says too little about: those are left out."""
    kept: list[Any] = []
    notes: list[str] = []
    for rule in rules:
        found = explain_unreplayable(rule)
        if found is None:
            kept.append(to_plain(replace(rule, candidate=None)))
        else:
            notes.append(
                f"rule {rule.name} ({rule.place}) is not replayed: {found}" if rule.place else f"rule {rule.name} is not replayed: {found}"
            )
    return Contender(name, tuple(kept), tuple(quotas), most), notes


def explain_unreplayable(rule: Rule) -> str | None:
    """Why `rule` cannot be judged from the log; None: it can be."""
    if rule.mode == "off":
        return None
    if not rule.match.is_published():
        return f"it is for operation: {rule.match.text_of('operation')}; the backtest is of what is published"
    if rule.algorithm in COUNTING or rule.limit.concurrent is not None:
        return "it counts requests in flight, and the log has no times of answers"
    if rule.cost is not None:
        return "it counts what messages cost, and the log has no size of each"
    if rule.algorithm == "lag":
        return "it follows a backlog, which is not in the log"
    if rule.per == "connection":
        return "it is per connection, and the log adds up a client's connections"
    unknown = next((name for name, key in SENDER_KEYS.items() if not key.logged and name in rule.match.given()), None)
    return None if unknown is None else f"it names a {unknown}, which is not in the log"
