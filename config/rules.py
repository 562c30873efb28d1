"""Rules as written in `limits.yaml`, and as the limiter knows them (`limiter.rules.rule.Rule`).

The types here say how a rule is spelt. The limiter itself checks what a rule may say (`RuleError`), and this module finds the line of each
error. The limiter stops at a rule's first fault, so it is asked again without that field until it has named all faults.
"""

# ruff: noqa: RUF009  -- setting() makes a dataclasses.field of immutable values

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, make_dataclass, replace
from typing import Any, ClassVar, Final

from config.document import Node
from config.kinds import JSON, Choice, Kind, Name, Reading, Text, Whole, YesNo
from config.problems import SourceLocation, suggestion
from config.quantities import BurstTime, ByteRate, Duration, MessageRate, Percent, Size, Weight
from config.sections import REQUIRED, ListOf, OneOrMore, OrElse, Section, setting, settings_of
from limiter.algorithms import ALGORITHMS, COUNTING
from limiter.algorithms.setting_errors import MAX_CONCURRENT
from limiter.algorithms.warm_up import DEFAULT_OVER_NS
from limiter.limits import SECOND, Adapt, Lag, Limit, LimitChange, Rate
from limiter.protocols import OPERATIONS, PROTOCOL_NAMES
from limiter.rules.actions import ACTIONS, FALLBACKS
from limiter.rules.patterns import IPV6_BITS
from limiter.rules.rows import LISTENERS, MatchKey
from limiter.rules.rule import (
    DEFAULT_MAX_DELAY_NS,
    MATCH_KEYS,
    MAX_WEIGHT,
    MAX_WORDS,
    MODES,
    NOT_YET,
    PER,
    REPLIES,
    SCOPES,
    Match,
    Rule,
    RuleError,
)

MAX_LISTENERS: Final = 100  # names in one rule; a guess
MAX_BURST: Final = 10**15  # tokens; as limiter.limits.MAX_PER_SECOND


def kind_of_key(key: MatchKey) -> Kind[Any]:
    """How a key of `match` is written."""
    if key.choices:
        return Choice(*key.choices)
    return OneOrMore(Text(key.example), f"[{key.example}, backup]", most=MAX_LISTENERS) if key.kind == LISTENERS else Text(key.example)


MatchText: Any = make_dataclass(  # which messages a rule is for: the keys of `Match`
    "MatchText", [(name, Any, setting(kind_of_key(key), None, key.doc)) for name, key in MATCH_KEYS.items()], frozen=True, slots=True
)


@dataclass(frozen=True, slots=True)
class BurstText:
    """The burst in tokens."""

    messages: int | None = setting(Whole(1, MAX_BURST, 500), None, "Messages at once.")
    bytes: int | None = setting(Size("1MiB", "1B", "900000GiB"), None, "Bytes at once.")


@dataclass(frozen=True, slots=True)
class LimitText:
    """How much may pass: messages, bytes, or requests in flight. 0/s refuses everything; a field left out is unlimited."""

    messages: Rate | None = setting(MessageRate(), None, "Messages per time, e.g. 500/s, 30k/min.")
    bytes: Rate | None = setting(ByteRate(), None, "Bytes per time, e.g. 10MiB/s.")
    burst: int | BurstText | None = setting(
        OrElse(Section(BurstText), BurstTime()), None, "The burst: a time of the rate (default 1s), or tokens."
    )
    concurrent: int | None = setting(
        Whole(1, MAX_CONCURRENT, 64),
        None,
        "With algorithm concurrency or adaptive: the most requests in flight, that is sends the broker has not answered and "
        "publishes it has not confirmed.",
    )


@dataclass(frozen=True, slots=True)
class CandidateText:
    """A limit that is judged beside the enforced one and only counted; a field left out is as in `limit`."""

    messages: Rate | None = setting(MessageRate(), None, "Messages per time, e.g. 300/s.")
    bytes: Rate | None = setting(ByteRate(), None, "Bytes per time, e.g. 5MiB/s.")
    burst: int | BurstText | None = setting(OrElse(Section(BurstText), BurstTime()), None, "The burst: a time of the rate, or tokens.")


class SomeCandidate(Section[CandidateText]):
    """A candidate with at least one field, which the limiter checks."""

    def schema(self) -> dict[str, JSON]:
        return {**super().schema(), "type": "object", "minProperties": 1}


@dataclass(frozen=True, slots=True)
class BreakerText:
    """What happens when the bucket of a key runs dry."""

    open_for_ns: int | None = setting(
        Duration("1s", "0s", "1h"),
        None,
        "Refuse everything for this long once a bucket ran dry; 0s: no breaker. Default: 1s, with action delay or block 0s.",
        key="open_for",
    )


@dataclass(frozen=True, slots=True)
class LagText:
    """The backlog that a limit follows: one of group and queue."""

    target: int = setting(Whole(1, MAX_BURST, 10_000), REQUIRED, "Number of waiting messages at which the backlog settles.")
    slowest: Rate = setting(MessageRate(), REQUIRED, "Lowest rate, however far behind the consumers are; e.g. 50/s.")
    group: str | None = setting(Text("billing"), None, "RocketMQ: the consumer group.")
    queue: str | None = setting(Text("jobs"), None, "AMQP: the queue, in the rule's vhost (match.vhost, exact) or else in /.")


@dataclass(frozen=True, slots=True)
class WarmUpText:
    """How a limit warms up."""

    over_ns: int = setting(
        Duration("10s", "1ms", "24h"),
        DEFAULT_OVER_NS,
        "In use, the rate rises from a third of the limit to the limit over this time; after as long without use it is cold again.",
        key="over",
    )


@dataclass(frozen=True, slots=True)
class AdaptiveText:
    """Bounds of the number of requests in flight; the upper one is `limit: {concurrent: ...}`."""

    at_least: int | None = setting(Whole(1, MAX_CONCURRENT, 4), None, "Lower bound; default: 4, or concurrent where that is less.")
    start: int | None = setting(Whole(1, MAX_CONCURRENT, 20), None, "The number at the start; default: 20, within at_least and concurrent.")


@dataclass(frozen=True, slots=True)
class AdaptText:
    """How a listener's cap follows the load that its broker reports."""

    floor: int = setting(Percent("20%", 1, 1000), 200, "Lower bound, as a share of the cap.")
    tighten: int = setting(Percent("20%", 1, 900), 200, "The cap is tightened by this share of its current value each time.")
    every_ns: int = setting(
        Duration("1s", "100ms", "1h"),
        SECOND,
        "Tightened at most once in this time, and recovers once this time has passed without tightening.",
        key="every",
    )
    recover: int = setting(Percent("5%", 1, 1000), 50, "Share of the whole cap that comes back each second.")


@dataclass(frozen=True, slots=True)
class RuleText:
    """One rule of the limiter."""

    gone: ClassVar[dict[str, str]] = {
        "durable": "it was never released and is gone: remove it; a client that must know what has arrived uses confirms",
        "answer": "it was never released and is gone: remove it; of RocketMQ only one-way sends wait in the spool",
    }
    name: str = setting(Name("orders"), REQUIRED, "Name of the rule in metrics, refusals and live changes.")
    match: Any = setting(Section(MatchText), MatchText(), "Which messages the rule is for; default: all.")
    per: str = setting(
        Choice(*PER), "topic", "There is one bucket per this; exchange and vhost are AMQP's, group and namespace RocketMQ's."
    )
    limit: LimitText = setting(Section(LimitText), LimitText(), "How much may pass.")
    algorithm: str = setting(
        Choice(*ALGORITHMS, not_yet=NOT_YET.get("algorithm", ())),
        "token_bucket",
        "How the limit is kept. pacing: messages one interval apart, without a burst; warm_up: rising from a third of the limit after "
        "idleness; concurrency: a number of requests in flight; adaptive: as many as the broker's latency allows; lag: as fast as "
        "consumers keep up.",
    )
    adaptive: AdaptiveText | None = setting(Section(AdaptiveText), None, "Of algorithm adaptive; default: {at_least: 4, start: 20}.")
    warm_up: WarmUpText | None = setting(Section(WarmUpText), None, "Of algorithm warm_up; default: {over: 10s}.")
    lag: LagText | None = setting(
        Section(LagText), None, "Of algorithm lag: the backlog that the rate follows. The limit's messages are then the highest rate."
    )
    breaker: BreakerText = setting(Section(BreakerText), BreakerText(), "The circuit breaker of each key.")
    action: str = setting(
        Choice(*ACTIONS),
        "reject",
        "What happens to a message over the limit. block: the connection is not read until the message passes; close: the AMQP channel or "
        "the RocketMQ connection is closed (where consumers are limited: the channel of a basic.get); spool: it waits as long as it "
        "takes, on disk where memory would not do (of RocketMQ only one-way sends; others are refused).",
    )
    fallback: str = setting(Choice(*FALLBACKS), "delay", "What happens where reject has no answer (AMQP without confirms).")
    reply: str = setting(Choice(*REPLIES), "flow_control", "The code that refuses RocketMQ clients: flow_control 215, system_busy 2.")
    max_delay_ns: int = setting(
        Duration("1s", "1ms", "8s"),
        DEFAULT_MAX_DELAY_NS,
        "With action delay: the longest time a message is held before it is refused. At most 2.5s, because RocketMQ's clients give up "
        "after 3s; at most 8s for rules of AMQP alone, because Java's NIO clients give up a write after 10s, Bunny after 30s.",
        key="max_delay",
    )
    spool_size: int | None = setting(
        Size("1GiB", "1MiB", "1024GiB"),
        None,
        "With action spool: bytes of files for this rule's messages; then its clients are not read. Default: spool.max_size.",
    )
    max_age_ns: int | None = setting(
        Duration("10min", "1s", "720h"),
        None,
        "With action spool: the longest time a message waits; then it is refused, or dropped where its channel has no confirms. Default: "
        "as long as it takes. Messages of a transaction wait on.",
        key="max_age",
    )
    drop_expired: bool = setting(
        YesNo(),
        False,
        "With action spool: a message waits no longer than its own AMQP property expiration says; then it is given up as for max_age. "
        "Leave it out where expiration is a delay, as with a queue that dead-letters what expires.",
    )
    routing_key_words: int | None = setting(
        Whole(1, MAX_WORDS, 2),
        None,
        "AMQP topics whose routing keys agree in this many first words share a bucket; for keys with ids in them.",
    )
    ipv6_prefix: int | None = setting(
        Whole(1, IPV6_BITS, 64),
        None,
        "With per: client: IPv6 addresses that agree in this many first bits are one client; default 64, because a host may take any of "
        "them. 128: each address is one.",
    )
    scope: str | None = setting(
        Choice(*SCOPES),
        None,
        "Where gateways form a fleet: fleet, all of them share this rule's buckets; gateway, each has its own. Default: fleet for "
        "token_bucket, but for per: connection and a listener's cap.",
    )
    mode: str = setting(Choice(*MODES), "enforce", "enforce; shadow: evaluated and counted, never enforced; off.")
    candidate: CandidateText | None = setting(
        SomeCandidate(CandidateText),
        None,
        "A limit to try: judged beside the enforced one and counted; `sluice rules promote` enforces it.",
    )

    weight: float = setting(
        Weight(MAX_WEIGHT),
        1.0,
        "The topic's weight in a listener's cap (a rule with per: listener): when the cap binds, 3 gets three times what 1 gets.",
    )
    protected: bool = setting(YesNo(), False, "When a listener's cap binds, the topic is served before all unprotected ones.")
    adapt: AdaptText | None = setting(
        Section(AdaptText), None, "Of a listener's cap: it is tightened while its broker is overloaded; {} is all defaults."
    )


RULE_SETTINGS: Final = settings_of(RuleText)
LIMIT_SETTINGS: Final = settings_of(LimitText)
SOME_LIMIT: Final = LimitText(messages=Rate(1))
SOME_CONCURRENCY: Final = LimitText(concurrent=MAX_CONCURRENT)


def some_limit(text: RuleText) -> LimitText:
    """A limit that fits the rule's algorithm."""
    return SOME_CONCURRENCY if text.algorithm in COUNTING else SOME_LIMIT


class RuleKind(Kind[Rule]):
    """A rule of the limiter, read as RuleText and checked by the limiter."""

    placeholder = Rule("placeholder", limit=Limit(messages=Rate(1)))
    section = Section(RuleText)

    def read(self, node: Node, path: str, reading: Reading) -> Rule:
        before = len(reading.problems.found)
        text = self.section.read(node, path, reading)
        unread = [problem.path[len(path) + 1 :] for problem in reading.problems.found[before:]]
        text = readable(text, unread)
        errors = list(faults(text, node.location))
        for error in errors:
            message, _, remedy = error.message.rpartition("; ")
            location, field = self._blamed(error.field, path, node.location, reading)
            reading.problems.add(location, field, message or error.message, remedy if message else "see `sluice config schema --rules`")
        return self.placeholder if errors else rule_of(text, node.location)

    def _blamed(self, field: str, path: str, rule: SourceLocation, reading: Reading) -> tuple[SourceLocation, str]:
        """The location of the field that the limiter refuses; the rule's where that field was not written."""
        full = f"{path}.{field}"
        location = reading.origins.get(full)
        return (location, full) if location is not None and location.line else (rule, full)

    def show(self, value: Rule) -> JSON:
        return self.section.show(text_of(value))

    def schema(self) -> dict[str, JSON]:
        return self.section.schema()


def faults(text: RuleText, location: SourceLocation) -> Iterator[RuleError]:
    """All faults that the limiter finds in the rule, at most one per field."""
    reported: set[str] = set()
    while True:
        try:
            rule_of(text, location)
        except RuleError as error:
            if error.field in reported:
                return
            reported.add(error.field)
            yield error
            text = without(text, error)
        else:
            return


def without(text: RuleText, error: RuleError) -> RuleText:
    """The rule without the field of `error`, so that the next fault is found."""
    outer, _, inner = error.field.partition(".")
    if outer == "algorithm":
        text = replace(text, limit=SOME_LIMIT, adaptive=None)  # which are said of that algorithm
    if outer == "limit":
        return replace(text, limit=some_limit(text))
    if outer == "lag":
        return replace(text, algorithm="token_bucket", lag=None)  # half of it would be a fault of its own
    match = text.match
    if outer == "match" and inner != "client" and match.protocol is None and fields_of_several_protocols(match):
        # Which protocol was meant, and so what fits it, is not known.
        text = replace(text, per="topic", reply="flow_control", max_delay_ns=DEFAULT_MAX_DELAY_NS)
    field, known = RULE_SETTINGS[outer]
    value: Any = known.default
    if inner:
        part: Any = getattr(text, field)
        field_inside, known_inside = settings_of(type(part))[inner]
        value = replace(part, **{field_inside: known_inside.default})
    return replace(text, **{field: value})


def fields_of_several_protocols(match: Any) -> bool:
    given = [names for names in PROTOCOL_NAMES.values() if any(getattr(match, name) is not None for name in names.match_fields)]
    return len(given) > 1


def readable(text: RuleText, unread: list[str]) -> RuleText:
    """The rule with acceptable values in the fields that could not be read, whose faults are reported already."""
    if not text.name:
        text = replace(text, name="unread")
    if "match.protocol" in unread:
        text = replace(text, match=replace(text.match, protocol=None), max_delay_ns=DEFAULT_MAX_DELAY_NS)
    if "match.client" in unread:
        text = replace(text, match=replace(text.match, client=None))
    if any(field.partition(".")[0] == "candidate" for field in unread):
        text = replace(text, candidate=None)
    return replace(text, limit=some_limit(text)) if any(map(_means_limit, unread)) else text


def _means_limit(field: str) -> bool:
    """Whether `field` is probably a misspelt part of the limit (`limit.mesages`, `limt`): an empty limit is then no fault of its own."""
    outer, _, inner = field.partition(".")
    if outer == "limit":
        return suggestion(inner.partition(".")[0], LIMIT_SETTINGS) != "burst"
    return outer not in RULE_SETTINGS and (outer in LIMIT_SETTINGS or suggestion(outer, RULE_SETTINGS) == "limit")


def rule_of(text: RuleText, location: SourceLocation) -> Rule:
    """The rule that `text` describes; raises RuleError."""
    limit = text.limit
    tokens = limit.burst if isinstance(limit.burst, BurstText) else BurstText()
    return Rule(
        name=text.name,
        match=Match(**{name: getattr(text.match, name) for name in MATCH_KEYS}),
        per=text.per,
        limit=Limit(
            messages=limit.messages,
            bytes=limit.bytes,
            messages_burst=tokens.messages,
            bytes_burst=tokens.bytes,
            burst_ns=limit.burst if isinstance(limit.burst, int) else None,
            concurrent=limit.concurrent,
            at_least=None if text.adaptive is None else text.adaptive.at_least,
            start=None if text.adaptive is None else text.adaptive.start,
            warm_up_ns=0 if text.warm_up is None else text.warm_up.over_ns,
            adapt=adapt_of(text.adapt),
            lag=lag_of(text.lag),
        ),
        algorithm=text.algorithm,
        open_for_ns=text.breaker.open_for_ns,
        action=text.action,
        reply=text.reply,
        max_delay_ns=text.max_delay_ns,
        mode=text.mode,
        candidate=candidate_of(text.candidate),
        weight=text.weight,
        protected=text.protected,
        place=f"{location.file.rpartition('/')[2]}:{location.line}" if location.line else location.file,
        fallback=text.fallback,
        routing_key_words=text.routing_key_words,
        ipv6_prefix=text.ipv6_prefix,
        spool_size=text.spool_size,
        max_age_ns=text.max_age_ns,
        drop_expired=text.drop_expired,
        scope=text.scope,
    )


def lag_of(text: LagText | None) -> Lag | None:
    return None if text is None else Lag(text.target, text.slowest, text.group or "", text.queue or "")


def lag_text(lag: Lag | None) -> LagText | None:
    """The inverse of `lag_of`."""
    return None if lag is None else LagText(lag.target, lag.slowest, lag.group or None, lag.queue or None)


def adapt_of(text: AdaptText | None) -> Adapt | None:
    return None if text is None else Adapt(text.floor, text.tighten, text.every_ns, text.recover)


def adapt_text(adapt: Adapt | None) -> AdaptText | None:
    """The inverse of `adapt_of`."""
    return None if adapt is None else AdaptText(adapt.floor, adapt.tighten, adapt.every_ns, adapt.recover)


def candidate_of(text: CandidateText | None) -> LimitChange | None:
    if text is None:
        return None
    tokens = text.burst if isinstance(text.burst, BurstText) else BurstText()
    burst_ns = text.burst if isinstance(text.burst, int) else None
    return LimitChange(text.messages, text.bytes, tokens.messages, tokens.bytes, burst_ns)


def candidate_text(candidate: LimitChange | None) -> CandidateText | None:
    """The inverse of `candidate_of`."""
    if candidate is None:
        return None
    burst: int | BurstText | None = candidate.burst_ns
    if candidate.messages_burst is not None or candidate.bytes_burst is not None:
        burst = BurstText(candidate.messages_burst, candidate.bytes_burst)
    return CandidateText(candidate.messages, candidate.bytes, burst)


def text_of(rule: Rule) -> RuleText:
    """The inverse of `rule_of`, but for the location; the breaker is the one in force."""
    limit = rule.limit
    burst: int | BurstText | None = limit.burst_ns
    if limit.messages_burst is not None or limit.bytes_burst is not None:
        burst = BurstText(limit.messages_burst, limit.bytes_burst)
    return RuleText(
        name=rule.name,
        match=MatchText(**{name: getattr(rule.match, name) for name in MATCH_KEYS} | {"listener": rule.match.listeners() or None}),
        per=rule.per,
        limit=LimitText(limit.messages, limit.bytes, burst, limit.concurrent),
        algorithm=rule.algorithm,
        adaptive=None if limit.at_least is None and limit.start is None else AdaptiveText(limit.at_least, limit.start),
        warm_up=WarmUpText(limit.warm_up_ns) if limit.warm_up_ns else None,
        lag=lag_text(limit.lag),
        breaker=BreakerText(rule.breaker_ns()),
        action=rule.action,
        fallback=rule.fallback,
        reply=rule.reply,
        max_delay_ns=rule.max_delay_ns,
        routing_key_words=rule.routing_key_words,
        ipv6_prefix=rule.ipv6_prefix,
        spool_size=rule.spool_size,
        max_age_ns=rule.max_age_ns,
        drop_expired=rule.drop_expired,
        scope=rule.scope,
        mode=rule.mode,
        candidate=candidate_text(rule.candidate),
        weight=rule.weight,
        protected=rule.protected,
        adapt=adapt_text(limit.adapt),
    )


RULES: Final = ListOf(RuleKind(), "- {name: orders, match: {protocol: amqp, exchange: orders}, limit: {messages: 500/s}}")


@dataclass(frozen=True, slots=True)
class RulesFile:
    """A file of rules (`rules_file`): the first rule of a level whose pattern matches holds, in file order."""

    rules: tuple[Rule, ...] = setting(RULES, REQUIRED, "The rules, in the order in which they are tried.")
