"""Views of rules: as they hold, as the file has them, and their live changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from admin.store.state import StoredOverride, StoredRule
from admin.views.limit_views import CandidateUsage, LimitText, not_enforced
from limiter.rules.rows import DURATION, SIZE
from limiter.rules.rule import RULE_SETTINGS
from limiter.units import format_duration, format_rate, format_size

if TYPE_CHECKING:
    from limiter.limits import Adapt, Lag
    from limiter.rules.rows import RuleSetting
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


def setting_field(row: RuleSetting) -> tuple[Any, ...]:
    """A setting of a rule as a field of its view."""
    if row.default is None:
        return row.key, row.json_type | None, None
    return (row.key, row.json_type) if row.json_type is str else (row.key, row.json_type, row.default)


def shown_settings(rule: Rule) -> dict[str, Any]:
    """The settings of `rule` that are one word or number."""
    found = {}
    for name, row in RULE_SETTINGS.items():
        value, form = getattr(rule, name), FORMS.get(row.kind)
        found[row.key] = value if value is None or form is None else form(value)
    return found


FORMS: Final[dict[str, Callable[[Any], str]]] = {DURATION: format_duration, SIZE: format_size}
if TYPE_CHECKING:

    class SettingsView(msgspec.Struct, frozen=True, kw_only=True):
        mode: str
else:
    SettingsView = msgspec.defstruct("SettingsView", map(setting_field, RULE_SETTINGS.values()), frozen=True, kw_only=True)


class RuleView(SettingsView, frozen=True, kw_only=True):
    """A rule: as it holds, as the file has it, and its live change. `unfit`: why a live change does not hold.

    `live`: the rule was added live, by whom, until when and in which place; `file_limit` is then its own without its live change, and
    `in_file` says whether the file has a rule of this name too, which does not hold. `text` (of one rule asked for by name): as it would
    stand in the rules file. `candidate`: the limit tried beside it; `candidate_usage`: what that would have refused, over all its buckets.
    `cost`: what one message, copy or operation counts, where that is not one. `scope`: fleet or gateway, where the rule names one.
    `would_refuse`: in shadow mode, the messages over it that passed, of its limits in use (null in another mode). `remarks`: a sentence
    where it is not enforced.
    """

    name: str
    place: str
    match: dict[str, str]
    limit: LimitText
    open_for: str
    file_limit: LimitText
    origin: str
    override: StoredOverride | None = None
    unfit: str | None = None
    candidate: LimitText | None = None
    candidate_usage: CandidateUsage | None = None
    adapt: Adaptation | None = None
    lag: Followed | None = None
    cost: dict[str, str | int] | None = None
    live: StoredRule | None = None
    in_file: bool = True
    text: dict[str, Any] | None = None
    would_refuse: int | None = None
    remarks: list[str] = msgspec.field(default_factory=list)


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
        **shown_settings(rule),
        name=rule.name,
        place=rule.place,
        match={name: match.text_of(name) for name in match.given()},
        limit=LimitText.of_rule(rule),
        open_for=format_duration(rule.breaker_ns()),
        file_limit=LimitText.of_rule(file_rule),
        origin="override" if live is not None or (stored is not None and unfit is None) else "file",
        live=live,
        in_file=in_file,
        override=stored,
        unfit=unfit,
        candidate=LimitText.of_candidate(rule.candidate_limit()),
        adapt=None if rule.limit.adapt is None else adaptation(rule.limit.adapt),
        lag=None if rule.limit.lag is None else followed(rule.limit.lag),
        cost=None if rule.cost is None else rule.cost.shown(),
        remarks=not_enforced(rule, f"rule {rule.name}"),
    )


def adaptation(adapt: Adapt) -> Adaptation:
    return Adaptation(adapt.floor / 1000, adapt.tighten / 1000, format_duration(adapt.every_ns), adapt.recover / 1000)


def followed(lag: Lag) -> Followed:
    return Followed(lag.target, format_rate(lag.slowest), lag.group, lag.queue)
