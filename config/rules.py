"""Rules as written in `limits.yaml`, and as the limiter knows them (`limiter.rules.rule.Rule`).

The types here say how a rule is spelt. The limiter itself checks what a rule may say (`RuleError`), and this module finds the line of each
error. The limiter stops at a rule's first fault, so it is asked again without that field until it has named all faults.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, make_dataclass, replace
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar

from common.records import dataclass
from config.document import Node
from config.kinds import JSON, Choice, Kind, Name, Reading, Text, Whole, YesNo
from config.problems import SourceLocation, suggestion
from config.quantities import BurstTime, ByteRate, Duration, MessageRate, Percent, Size, Weight
from config.sections import REQUIRED, ListOf, OneOrMore, OrElse, Section, setting, settings_of
from limiter.algorithms import COUNTING
from limiter.algorithms.setting_errors import MAX_CONCURRENT
from limiter.algorithms.warm_up import DEFAULT_OVER_NS
from limiter.limits import SECOND, Adapt, Lag, Limit, LimitChange, Rate
from limiter.protocols import PROTOCOL_NAMES
from limiter.rules.cost import MAX_COST, PRICED, Cost
from limiter.rules.errors import NOT_YET, RuleError
from limiter.rules.match import MATCH_KEYS, Match
from limiter.rules.rows import CHOICES, DURATION, LISTENERS, SIZE, WHOLE, YES_NO, MatchKey, RuleSetting
from limiter.rules.rule import DEFAULT_MAX_DELAY_NS, RULE_SETTINGS, Rule

T = TypeVar("T")

MAX_LISTENERS: Final = 100  # names in one rule; a guess
MAX_SHARED: Final = 1024  # limits, the latest; a guess
MAX_BURST: Final = 10**15  # tokens; as limiter.limits.MAX_PER_SECOND


def kind_of_key(key: MatchKey) -> Kind[Any]:
    """How a key of `match` is written."""
    if key.choices:
        word = Choice(*key.choices)
        return OneOrMore(word, f"[{', '.join(key.choices[:2])}]", most=len(key.choices)) if key.kind == CHOICES else word
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
class WrittenLimit:
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


CostText: Any = make_dataclass(  # what a rule counts: the fields of `Cost`, and its operations
    "CostText",
    [
        ("step", Any, setting(Size("4KiB", "1B", "1GiB"), None, "A message costs one for each started step of its body. Default: one.")),
        ("copy", Any, setting(Whole(1, MAX_COST, 1), None, "What each copy costs that an AMQP publish names in CC and BCC.")),
        *((name, Any, setting(Whole(1, MAX_COST, 10), None, f"What one {name} costs.")) for name in PRICED),
    ],
    frozen=True, slots=True,
)  # fmt: skip


def kind_of(row: RuleSetting) -> Kind[Any]:
    """How a setting of a rule is written."""
    if row.choices:
        return Choice(*row.choices, not_yet=NOT_YET.get(row.key, ()))
    if row.kind == DURATION:
        return Duration(row.example, row.least, row.most)
    if row.kind == SIZE:
        return Size(row.example, row.least, row.most)
    if row.kind == WHOLE:
        return Whole(row.least, row.most, row.example)
    return YesNo() if row.kind == YES_NO else Weight(row.most)


OWN_SETTINGS: Final[dict[str, dict[str, Any]]] = {  # field of `Rule` -> the settings that stand in its place, or after it
    "name": {"name": setting(Name("orders"), REQUIRED, "Name of the rule in metrics, refusals and live changes.")},
    "match": {"match": setting(Section(MatchText), MatchText(), "Which messages the rule is for; default: all.")},
    "limit": {"limit": setting(Section(WrittenLimit), WrittenLimit(), "How much may pass.")},
    "algorithm": {
        "adaptive": setting(Section(AdaptiveText), None, "Of algorithm adaptive; default: {at_least: 4, start: 20}."),
        "warm_up": setting(Section(WarmUpText), None, "Of algorithm warm_up; default: {over: 10s}."),
        "lag": setting(
            Section(LagText), None, "Of algorithm lag: the backlog that the rate follows. The limit's messages are then the highest rate."
        ),
    },
    "open_for_ns": {"breaker": setting(Section(BreakerText), BreakerText(), "The circuit breaker of each key.")},
    "candidate": {
        "candidate": setting(
            SomeCandidate(CandidateText),
            None,
            "A limit to try: judged beside the enforced one and counted; `sluice rules promote` enforces it.",
        )
    },
    "cost": {
        "cost": setting(
            Section(CostText),
            None,
            "What is counted in the limit's messages for one message, copy or operation, so that one limit stands for the broker's work. "
            "What it does not name costs one.",
        )
    },
    "protected": {
        "adapt": setting(
            Section(AdaptText), None, "Of a listener's cap: it is tightened while its broker is overloaded; {} is all defaults."
        )
    },
}
GONE: Final = {
    "durable": "it was never released and is gone: remove it; a client that must know what has arrived uses confirms",
    "answer": "it was never released and is gone: remove it; of RocketMQ only one-way sends wait in the spool",
}


def text_fields() -> Iterator[tuple[str, Any, Any]]:
    """The settings of a rule, in the order of the fields of `Rule`."""
    for each in fields(Rule):
        row = RULE_SETTINGS.get(each.name)
        if row is not None:
            yield each.name, Any, setting(kind_of(row), row.default, row.doc, key=row.key)
        for name, own in OWN_SETTINGS.get(each.name, {}).items():
            yield name, Any, own


# One rule of the limiter. Not frozen, which would make each of 10,000 take four times as long.
RuleText: Any = make_dataclass("RuleText", text_fields(), slots=True, namespace={"gone": GONE})
KEYS_OF: Final = attrgetter(*MATCH_KEYS)
OPERATION: Final = [*MATCH_KEYS].index("operation")
WORDS_OF: Final = attrgetter(*RULE_SETTINGS)
SETTINGS_OF_RULES: Final = settings_of(RuleText)
LIMIT_SETTINGS: Final = settings_of(WrittenLimit)
SOME_LIMIT: Final = WrittenLimit(messages=Rate(1))
SOME_CONCURRENCY: Final = WrittenLimit(concurrent=MAX_CONCURRENT)


def some_limit(text: Any) -> WrittenLimit:
    """A limit that fits the rule's algorithm."""
    return SOME_CONCURRENCY if text.algorithm in COUNTING else SOME_LIMIT


class ReadRule(NamedTuple):
    """What is kept of a rule's sections for the checks of the whole file: they take more room than the rule."""

    name: str
    lag: LagText | None


class RuleKind(Kind[Rule]):
    """A rule of the limiter, read as RuleText and checked by the limiter."""

    placeholder = Rule("placeholder", limit=Limit(messages=Rate(1)))
    section = Section(RuleText)

    def read(self, node: Node, path: str, reading: Reading) -> Rule:
        before = len(reading.problems.found)
        sections = len(reading.sections)
        text = self.section.read(node, path, reading)
        reading.sections[sections:] = [(path, ReadRule(text.name, text.lag))]
        unread = [problem.path[len(path) + 1 :] for problem in reading.problems.found[before:]]
        if unread or not text.name:
            text = fill_unread(text, unread)
        try:
            return rule_of(text, node.location)
        except RuleError:
            pass
        for error in find_faults(text, node.location):
            message, _, remedy = error.message.rpartition("; ")
            location, field = self._blamed(error.field, path, node.location, reading)
            reading.problems.add(location, field, message or error.message, remedy if message else "see `sluice config schema --rules`")
        return self.placeholder

    def _blamed(self, field: str, path: str, rule: SourceLocation, reading: Reading) -> tuple[SourceLocation, str]:
        """The location of the field that the limiter refuses; the rule's where that field was not written."""
        full = f"{path}.{field}"
        location = reading.origins.get(full)
        return (location, full) if location is not None and location.line else (rule, full)

    def show(self, value: Rule) -> JSON:
        return self.section.show(text_of(value))

    def schema(self) -> dict[str, JSON]:
        return self.section.schema()


def find_faults(text: Any, location: SourceLocation) -> Iterator[RuleError]:
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


def without(text: Any, error: RuleError) -> Any:
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
    field, known = SETTINGS_OF_RULES[outer]
    value: Any = known.default
    if inner:
        part: Any = getattr(text, field)
        field_inside, known_inside = settings_of(type(part))[inner]
        value = replace(part, **{field_inside: known_inside.default})
    return replace(text, **{field: value})


def fields_of_several_protocols(match: Any) -> bool:
    given = [names for names in PROTOCOL_NAMES.values() if any(getattr(match, name) is not None for name in names.match_fields)]
    return len(given) > 1


def fill_unread(text: Any, unread: list[str]) -> Any:
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
    return outer not in SETTINGS_OF_RULES and (outer in LIMIT_SETTINGS or suggestion(outer, SETTINGS_OF_RULES) == "limit")


def rule_of(text: Any, location: SourceLocation) -> Rule:
    """The rule that `text` describes; raises RuleError."""
    limit, tried = text.limit, text.candidate
    keys = [*KEYS_OF(text.match)]
    keys[OPERATION] = one_word(text.match.operation)
    return Rule(
        name=text.name,
        match=Match(*keys),
        limit=limit_of(limit.messages, limit.bytes, limit.burst, limit.concurrent, text.adaptive, text.warm_up, text.adapt, text.lag),
        open_for_ns=text.breaker.open_for_ns,
        candidate=None if tried is None else LimitChange(tried.messages, tried.bytes, **burst_fields(tried.burst)),
        cost=None if text.cost is None else cost_of(text.cost),
        place=f"{location.file.rpartition('/')[2]}:{location.line}" if location.line else location.file,
        **dict(zip(RULE_SETTINGS, WORDS_OF(text), strict=True)),
    )


@lru_cache(maxsize=MAX_SHARED)
def limit_of(
    messages: Rate | None,
    size: Rate | None,
    burst: int | BurstText | None,
    concurrent: int | None,
    adaptive: AdaptiveText | None,
    warm_up: WarmUpText | None,
    adapt: AdaptText | None,
    lag: LagText | None,
) -> Limit:
    """The limit that these say. Rules that say the same share it: of 10,000 many do."""
    return Limit(
        messages=messages,
        bytes=size,
        **burst_fields(burst),
        concurrent=concurrent,
        at_least=None if adaptive is None else adaptive.at_least,
        start=None if adaptive is None else adaptive.start,
        warm_up_ns=0 if warm_up is None else warm_up.over_ns,
        adapt=copy_fields(Adapt, adapt),
        lag=None if lag is None else Lag(lag.target, lag.slowest, lag.group or "", lag.queue or ""),
    )


def text_of_cost(cost: Cost) -> dict[str, Any]:
    """The inverse of `cost_of`."""
    return {"step": cost.step, "copy": None if cost.copy == 1 else cost.copy, **dict(cost.operations)}


def one_word(words: tuple[str, ...] | None) -> str | tuple[str, ...] | None:
    return words[0] if words is not None and len(words) == 1 else words


def cost_of(text: Any) -> Cost | None:
    """None where all costs one."""
    priced = tuple((name, number) for name in PRICED if (number := getattr(text, name) or 1) != 1)
    found = Cost(text.step, text.copy or 1, priced)
    return None if found == Cost() else found


def copy_fields(kind: type[T], value: Any) -> T | None:
    """A `kind` with the fields of `value`, which are called the same."""
    return None if value is None else kind(**{each.name: getattr(value, each.name) for each in fields(value)})


def burst_fields(burst: int | BurstText | None) -> dict[str, int | None]:
    """The fields of a limit, or of a change of one."""
    if isinstance(burst, BurstText):
        return {"messages_burst": burst.messages, "bytes_burst": burst.bytes}
    return {"burst_ns": burst}


def burst_text(limit: Limit | LimitChange) -> int | BurstText | None:
    """The inverse of `burst_fields`."""
    if limit.messages_burst is None and limit.bytes_burst is None:
        return limit.burst_ns
    return BurstText(limit.messages_burst, limit.bytes_burst)


def text_of(rule: Rule) -> Any:
    """The inverse of `rule_of`, but for the location; the breaker is the one in force."""
    limit = rule.limit
    lag, tried = limit.lag, rule.candidate
    return RuleText(
        name=rule.name,
        match=MatchText(**{name: value_of(rule.match, name, key) for name, key in MATCH_KEYS.items()}),
        limit=WrittenLimit(limit.messages, limit.bytes, burst_text(limit), limit.concurrent),
        adaptive=None if limit.at_least is None and limit.start is None else AdaptiveText(limit.at_least, limit.start),
        warm_up=WarmUpText(limit.warm_up_ns) if limit.warm_up_ns else None,
        lag=None if lag is None else LagText(lag.target, lag.slowest, lag.group or None, lag.queue or None),
        breaker=BreakerText(rule.breaker_ns()),
        candidate=None if tried is None else CandidateText(tried.messages, tried.bytes, burst_text(tried)),
        adapt=copy_fields(AdaptText, limit.adapt),
        cost=None if rule.cost is None else CostText(**text_of_cost(rule.cost)),
        **{name: getattr(rule, name) for name in RULE_SETTINGS},
    )


def value_of(match: Match, name: str, key: MatchKey) -> Any:
    """A key of `match` as its kind shows it: one or several words as a tuple."""
    value = getattr(match, name)
    return (value,) if key.kind in {CHOICES, LISTENERS} and isinstance(value, str) else value


RULES: Final = ListOf(RuleKind(), "- {name: orders, match: {protocol: amqp, exchange: orders}, limit: {messages: 500/s}}")


@dataclass(frozen=True, slots=True)
class RulesFile:
    """A file of rules (`rules_file`): the first rule of a level whose pattern matches holds, in file order."""

    rules: tuple[Rule, ...] = setting(RULES, REQUIRED, "The rules, in the order in which they are tried.")
