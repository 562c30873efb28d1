"""Views of limits: the limits of a key, their use, and the reasons why they hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from admin.store.state import StoredOverride, format_time, key_target
from limiter.algorithms.setting_errors import has_burst
from limiter.algorithms.warm_up import DEFAULT_OVER_NS
from limiter.rules.rule_set import SHADOW
from limiter.units import format_byte_rate, format_duration, format_limit, format_rate, format_size

if TYPE_CHECKING:
    from common.views.topics import TopicView
    from limiter.buckets.candidate import CandidateCounts
    from limiter.limit_state import LimitState
    from limiter.limits import Limit
    from limiter.rules.explanation import Explanation
    from limiter.rules.rule import Rule
    from limiter.rules.rule_set import Effective


LONG_BURST_S: Final = 10  # of a rate that a live change names alone: as quotas have it, and more is worth a word (a guess)


class LimitText(msgspec.Struct, frozen=True, omit_defaults=True):
    """A limit as people write it, and as numbers. Absent: unlimited. Bursts are in tokens; with algorithm pacing there are none.

    `warm_up`: with that algorithm, the time that the rate takes to rise. `concurrent`: the most requests in flight; with algorithm adaptive
    the upper bound.
    """

    messages: str | None = None
    bytes: str | None = None
    messages_per_second: float | None = None
    bytes_per_second: float | None = None
    messages_burst: int | None = None
    bytes_burst: int | None = None
    concurrent: int | None = None
    warm_up: str | None = None

    @classmethod
    def of(cls, limit: Limit) -> LimitText:
        messages, size = limit.messages, limit.bytes
        return cls(
            messages=None if messages is None else format_rate(messages),
            bytes=None if size is None else format_byte_rate(size),
            messages_per_second=None if messages is None else messages.per_second,
            bytes_per_second=None if size is None else size.per_second,
            messages_burst=None if messages is None else limit.messages_capacity(),
            bytes_burst=None if size is None else limit.bytes_capacity(),
            concurrent=limit.concurrent,
        )

    @classmethod
    def of_rule(cls, rule: Rule) -> LimitText:
        """The limit of a rule: what its algorithm makes of it, too."""
        view = cls.of(rule.limit)
        if not has_burst(rule.algorithm):
            return msgspec.structs.replace(view, messages_burst=None, bytes_burst=None)
        if rule.algorithm == "warm_up":
            return msgspec.structs.replace(view, warm_up=format_duration(rule.limit.warm_up_ns or DEFAULT_OVER_NS))
        return view

    @classmethod
    def of_candidate(cls, limit: Limit | None) -> LimitText | None:
        return None if limit is None else cls.of(limit)


class RefusedClient(msgspec.Struct, frozen=True):
    """A client address, and how many messages a candidate would have refused it, at most."""

    client: str
    refused: int


class CandidateUsage(msgspec.Struct, frozen=True):
    """The verdicts of a candidate on the messages that arrived `since` then (null: none yet). None was enforced.

    `clients` are at most eight, the one refused most first: a client with more than an eighth of the refusals is among them.
    """

    would_admit: int
    would_refuse: int
    since: str | None
    clients: list[RefusedClient]


class Usage(msgspec.Struct, frozen=True):
    """A limit in use, now. Rates are those of the topic (null at other levels), means over ten seconds; those that end in `_1s` are of the
    last second. `used`: the share of the rate that passed in those ten seconds, of messages or bytes, whichever is more; 1 is all of it.
    Totals count messages since the limit came into use; `admitted` and `over_limit` what they cost, where the rule says so (`used` is then
    null).

    `over_limit`: messages that found it used up, each once. `held`: messages that waited for it at least once. `refused`: messages that did
    not pass because of it (refused, dropped, or their channel or connection was closed). `shadow_refused`: messages that passed over it in
    shadow mode, also under other rules that held here before; `would_refuse`: those of them under the rule that holds now (null in another
    mode). A message over several limits is held or refused by the one with the longest wait. `last_refused`: when one was over it last.
    `in_flight`, `concurrent_now`: with algorithms concurrency and adaptive, the requests in flight and the bound on them now. `rate_now`:
    with algorithm lag, the rate now. `cap_now`, `cap_reason`: of a listener's cap, the limit now and the reason, while it is below the
    rule's.
    """

    fill: float
    breaker: str
    wait_ms: float
    admitted: int
    admitted_bytes: int
    over_limit: int
    held: int
    refused: int
    shadow_refused: int
    last_refused: str | None
    would_refuse: int | None = None
    received_per_second: float | None = None
    forwarded_per_second: float | None = None
    refused_per_second: float | None = None
    bytes_per_second: float | None = None
    received_per_second_1s: float | None = None
    forwarded_per_second_1s: float | None = None
    refused_per_second_1s: float | None = None
    bytes_per_second_1s: float | None = None
    used: float | None = None
    candidate: CandidateUsage | None = None
    cap_now: LimitText | None = None
    rate_now: LimitText | None = None
    cap_reason: str | None = None
    in_flight: int | None = None
    concurrent_now: int | None = None


RATES: Final = [each.name for each in msgspec.structs.fields(Usage) if "_per_second" in each.name]  # as a topic's view has them


class Level(msgspec.Struct, frozen=True):
    """The limit that holds at one level (`per`) and its origin: override, file, quota, quota+hour, default. `operation`: produce, consume.

    `rule_limit`: the rule's own limit, where a quota or a live change holds over it (null: none does, or there is no rule).
    `candidate`: the limit tried beside the rule's own, or beside the live change that brings one. `candidate_here`: what would hold for
    this key if the candidate were promoted, where that is not the candidate itself: a quota and a live change hold over it, too.
    `usage.candidate`: the verdicts of what would hold here. `ceilings`: rules with `ceiling: true` that hold a quota lower than it was
    published, or raised. `cost`: what one message (for each `step` of its body), copy or operation counts, where that is not one; the
    limit's messages are then what it all costs.
    """

    per: str
    thing: str
    origin: str
    rule: str
    place: str
    limit: LimitText
    action: str
    reply: str
    mode: str
    open_for: str
    max_delay: str
    fallback: str
    by: str = ""
    at: str | None = None
    reason: str = ""
    expires: str | None = None
    usage: Usage | None = None
    operation: str = "produce"
    algorithm: str = "token_bucket"
    candidate: LimitText | None = None
    weight: float = 1
    protected: bool = False
    max_message_size: str | None = None
    copies: str = "count"
    cost: dict[str, str | int] | None = None
    rule_limit: LimitText | None = None
    candidate_here: LimitText | None = None
    ceilings: list[str] = msgspec.field(default_factory=list)


class Lost(msgspec.Struct, frozen=True):
    """A live change, rule (origin file or default) or quota that matches and does not hold; `reason`: what precedes it."""

    origin: str
    rule: str
    place: str
    limit: LimitText
    reason: str


class Missed(msgspec.Struct, frozen=True):
    """A rule that would match another sender; `reason`: the sender it is for."""

    rule: str
    place: str
    reason: str


class Explained(msgspec.Struct, frozen=True):
    """Why a level is as it is. `holds` null: no limit does. `rules`: how many are for the key's protocol and `operation`; `more`: how many
    are left out of the lists."""

    operation: str
    per: str
    holds: Level | None
    lost: list[Lost]
    missed: list[Missed]
    rules: int
    more: int


class KeyLimit(msgspec.Struct, frozen=True):
    """The limits of one key: one per level (of an AMQP queue also for consuming), and its live change if there is one.

    `explanation` (with `explain=1`): each level, with the rules that do not hold and why; also levels without a limit.
    `topic` ends in `.#` where it is a group of keys (a rule's routing_key_words): the key's own, or the one that the path names with
    `.%23`. `remarks`: sentences on limits that are not enforced, on bursts that stay, and on why a live change may have no
    effect.
    """

    protocol: str
    topic: str
    path: str
    revision: int
    override: StoredOverride | None
    levels: list[Level]
    explanation: list[Explained] | None = None
    remarks: list[str] = []


class LimitInUse(msgspec.Struct, frozen=True):
    """An item of the list: one limit in use, or changed live. `path` leads to the key (null where the level is no topic's)."""

    protocol: str
    path: str | None
    overflow: bool
    level: Level
    operation: str = "produce"


class LimitPage(msgspec.Struct, frozen=True):
    """One page; `next` is the cursor of the following one."""

    items: list[LimitInUse]
    next: str | None
    total: int


# ---- making them ----------------------------------------------------------------------------------------------------


def not_enforced(rule: Rule, whose: str) -> list[str]:
    """One sentence where the limit of `rule`, as it holds, lets all messages pass; none where it is enforced or limits nothing.

    `whose`: what is limited, as in `rule orders` or `orders, per topic`.
    """
    if rule.mode == "enforce" or rule.limit.limits_nothing():
        return []
    shown = format_limit(rule.limit, " and ")
    does = "is not even counted" if rule.mode == "off" else "passes too, and is counted as what it would refuse"
    return [f"the limit of {whose} ({shown}) is not enforced (mode: {rule.mode}): what is over it {does}; mode: enforce enforces it"]


def remarks_on_modes(found: Iterable[Effective]) -> list[str]:
    """A sentence on each limit that is not enforced, but on quotas that are tried (`quota-shadow`)."""
    return [
        sentence
        for effective in found
        if effective.origin != SHADOW
        for sentence in not_enforced(effective.rule, f"{effective.thing or effective.rule.name}, per {effective.per},")
    ]


def remarks_on_limits(change: StoredOverride | None, found: Iterable[Effective]) -> list[str]:
    """A sentence on each that is not enforced; and on each burst in tokens, a quota's above all, that stays under `change`, which names a
    rate alone, and lasts for LONG_BURST_S of that or more."""
    levels = list(found)
    said = remarks_on_modes(levels)
    if change is None or change.burst is not None:
        return said
    for effective in levels:
        limit = effective.rule.limit
        if effective.origin != "override" or not has_burst(effective.rule.algorithm):
            continue
        for given, rate, tokens, shown in (
            (change.messages, limit.messages, limit.messages_burst, f"{limit.messages_burst} messages"),
            (change.bytes, limit.bytes, limit.bytes_burst, format_size(limit.bytes_burst or 0)),
        ):
            if given and rate is not None and rate.amount and tokens is not None:
                seconds = tokens * rate.per_ns // rate.amount // 1_000_000_000
                if seconds >= LONG_BURST_S:
                    said.append(f"the burst stays {shown}, {seconds} s of {given}: name one, too, where less is to pass at once")
    return said


def level_of(effective: Effective, usage: Usage | None = None, operation: str = "produce") -> Level:
    rule, ruled = effective.rule, effective.ruled
    candidate, here = (LimitText.of_candidate(limit) for limit in (effective.candidate_limit(), rule.candidate_limit()))
    return Level(
        per=effective.per,
        thing=effective.thing,
        origin=effective.origin,
        rule=rule.name,
        place=effective.place,
        limit=LimitText.of_rule(rule),
        action=rule.action,
        reply=rule.reply,
        mode=rule.mode,
        open_for=format_duration(rule.breaker_ns()),
        max_delay=format_duration(rule.max_delay_ns),
        fallback=rule.fallback,
        by=effective.by,
        at=format_time(effective.at) if effective.at else None,
        reason=effective.reason,
        expires=None if effective.expires_at is None else format_time(effective.expires_at),
        usage=usage,
        operation=operation,
        algorithm=rule.algorithm,
        candidate=candidate,
        weight=rule.weight,
        protected=rule.protected,
        max_message_size=None if rule.max_message_size is None else format_size(rule.max_message_size),
        copies=rule.copies,
        cost=None if rule.cost is None else rule.cost.shown(),
        rule_limit=None if ruled.limit == rule.limit or ruled.limit.limits_nothing() else LimitText.of_rule(ruled),
        candidate_here=None if here == candidate else here,
        ceilings=[f"{roof.name} ({roof.place})" if roof.place else roof.name for roof in effective.roofs],
    )


def shorten_explanation(found: Explanation, operation: str, holds: Level | None) -> Explained:
    return Explained(
        operation=operation,
        per=found.per,
        holds=holds,
        lost=[Lost(loss.origin, loss.rule, loss.place, LimitText.of(loss.limit), loss.reason) for loss in found.losses],
        missed=[Missed(miss.rule, miss.place, miss.reason) for miss in found.misses],
        rules=found.rules,
        more=found.more,
    )


def candidate_usage(counts: CandidateCounts, time_of: Callable[[int], float]) -> CandidateUsage:
    return CandidateUsage(
        would_admit=counts.admitted,
        would_refuse=counts.refused,
        since=None if counts.since < 0 else format_time(time_of(counts.since)),
        clients=[RefusedClient(client, refused) for client, refused in counts.clients.items()],
    )


def levels_of(effectives: Iterable[Effective], operation: str = "produce") -> list[Level]:
    return [level_of(effective, operation=operation) for effective in effectives]


def usage_of(state: LimitState, rates: TopicView | None, time_of: Callable[[int], float]) -> Usage:
    """`rates` is the topic's item of the gateway's own list; `time_of` tells the time of day at a monotonic moment."""
    shown: dict[str, float] = {} if rates is None else {name: getattr(rates, name) for name in RATES}
    return Usage(
        fill=round(state.fill, 4),
        breaker=state.breaker,
        wait_ms=round(state.wait_ns / 1e6, 3),
        admitted=state.admitted,
        admitted_bytes=state.admitted_bytes,
        over_limit=state.over_limit,
        held=state.held,
        refused=state.refused,
        shadow_refused=state.shadow_refused,
        would_refuse=state.would_refuse if state.effective.rule.mode == "shadow" else None,
        rate_now=None if state.rate_now is None else LimitText.of(state.rate_now),
        cap_now=None if state.cap_now is None else LimitText.of(state.cap_now),
        cap_reason=state.cap_reason or None,
        in_flight=state.in_flight,
        concurrent_now=state.concurrent,
        last_refused=None if state.last_refused_at is None else format_time(time_of(state.last_refused_at)),
        **shown,
        used=None
        if rates is None or state.effective.rule.cost
        else used_share(limit_now(state.effective, state), rates.forwarded_per_second, rates.bytes_per_second),
        candidate=None if state.candidate is None else candidate_usage(state.candidate, time_of),
    )


def limit_now(effective: Effective, state: LimitState | None) -> Limit:
    """As a cap or a backlog has it."""
    return effective.rule.limit if state is None else state.cap_now or state.rate_now or effective.rule.limit


def used_share(limit: Limit, messages: float, size: float) -> float | None:
    """The share of `limit` that passes now, by the topic's messages and bytes a second, 1 at most; None without a rate in the limit.

    A burst may pass more than the rate in ten seconds; that is all of it.
    """
    shares = [
        min(1.0, passed / rate.per_second) if rate.per_second else 1.0
        for passed, rate in ((messages, limit.messages), (size, limit.bytes))
        if rate is not None
    ]
    return round(max(shares), 4) if shares else None


def in_use(state: LimitState, usage: Usage) -> LimitInUse:
    path = None if state.name is None else f"/v1/{key_target(state.name)}"
    return LimitInUse(state.protocol, path, state.overflow, level_of(state.effective, usage, state.operation), state.operation)
