"""Views of rules: as they hold, as the file has them, and their live changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from admin.store.state import StoredOverride, StoredRule
from admin.views.limit_views import CandidateUsage, LimitText, not_enforced
from limiter.units import format_duration, format_rate, format_size

if TYPE_CHECKING:
    from limiter.limits import Adapt, Lag
    from limiter.rules.rule import Rule


class Adaptation(msgspec.Struct, frozen=True):
    """How a listener's cap follows the load of its broker; parts of the whole cap, from 0 to 1."""

    floor: float
    tighten: float
    every: str
    recover: float


class Followed(msgspec.Struct, frozen=True, omit_defaults=True):
    """The backlog that the rule's rate follows: a RocketMQ group's or an AMQP queue's."""

    target: int
    slowest: str
    group: str = ""
    queue: str = ""


class RuleView(msgspec.Struct, frozen=True):
    """A rule: as it holds, as the file has it, and its live change. `unfit`: why a live change does not hold.

    `live`: the rule was added live, by whom, until when and in which place; `file_limit` is then its own without its live change, and
    `in_file` says whether the file has a rule of this name too, which does not hold. `text` (of one rule asked for by name): as it would
    stand in the rules file. `candidate`: the limit tried beside it; `candidate_usage`: what that would have refused, over all its buckets.
    `scope`: fleet or gateway, where the rule names one. `would_refuse`: in shadow mode, the messages over it that passed, of its limits in
    use (null in another mode). `remarks`: a sentence where it is not enforced.
    """

    name: str
    place: str
    per: str
    match: dict[str, str]
    algorithm: str
    limit: LimitText
    action: str
    reply: str
    mode: str
    open_for: str
    max_delay: str
    fallback: str
    file_limit: LimitText
    origin: str
    routing_key_words: int | None = None
    ipv6_prefix: int | None = None
    spool_size: str | None = None
    max_age: str | None = None
    drop_expired: bool = False
    override: StoredOverride | None = None
    unfit: str | None = None
    candidate: LimitText | None = None
    candidate_usage: CandidateUsage | None = None
    weight: float = 1
    protected: bool = False
    adapt: Adaptation | None = None
    lag: Followed | None = None
    scope: str | None = None
    live: StoredRule | None = None
    in_file: bool = True
    text: dict[str, Any] | None = None
    would_refuse: int | None = None
    remarks: list[str] = []


class RuleList(msgspec.Struct, frozen=True):
    """A page of rules in the order in which they are tried; every page has the live changes whose rule is gone (`orphans`)."""

    items: list[RuleView]
    orphans: dict[str, StoredOverride]
    revision: int
    next: str | None
    total: int


def rule_view(
    rule: Rule, file_rule: Rule, stored: StoredOverride | None, unfit: str | None, live: StoredRule | None = None, *, in_file: bool = True
) -> RuleView:
    match = rule.match
    return RuleView(
        name=rule.name,
        place=rule.place,
        per=rule.per,
        match={name: match.text_of(name) for name in match.given()},
        algorithm=rule.algorithm,
        limit=LimitText.of_rule(rule),
        action=rule.action,
        reply=rule.reply,
        mode=rule.mode,
        open_for=format_duration(rule.breaker_ns()),
        max_delay=format_duration(rule.max_delay_ns),
        fallback=rule.fallback,
        file_limit=LimitText.of_rule(file_rule),
        origin="override" if live is not None or (stored is not None and unfit is None) else "file",
        live=live,
        in_file=in_file,
        routing_key_words=rule.routing_key_words,
        ipv6_prefix=rule.ipv6_prefix,
        spool_size=None if rule.spool_size is None else format_size(rule.spool_size),
        max_age=None if rule.max_age_ns is None else format_duration(rule.max_age_ns),
        drop_expired=rule.drop_expired,
        override=stored,
        unfit=unfit,
        candidate=LimitText.of_candidate(rule.candidate_limit()),
        weight=rule.weight,
        protected=rule.protected,
        adapt=None if rule.limit.adapt is None else adaptation(rule.limit.adapt),
        lag=None if rule.limit.lag is None else followed(rule.limit.lag),
        scope=rule.scope,
        remarks=not_enforced(rule, f"rule {rule.name}"),
    )


def adaptation(adapt: Adapt) -> Adaptation:
    return Adaptation(adapt.floor / 1000, adapt.tighten / 1000, format_duration(adapt.every_ns), adapt.recover / 1000)


def followed(lag: Lag) -> Followed:
    return Followed(lag.target, format_rate(lag.slowest), lag.group, lag.queue)
