"""A rule set on its way to a worker: values of the limiter's own types as MessagePack, and back.

The configuration's text would not do: the file may have been edited since the parent read it, and live changes and quotas are not in it.
Every field of every type goes over, whatever its name, so a new field of a rule needs no line here. Quotas go without their evidence,
which is for people.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any, Final

import msgspec

from limiter.limits import Adapt, Lag, Limit, LimitChange, Rate
from limiter.quota_snapshot import Quota
from limiter.rules.cost import Cost
from limiter.rules.hourly_raise import HourlyRaise
from limiter.rules.level_keys import LevelKey
from limiter.rules.live_change import Override
from limiter.rules.match import Match
from limiter.rules.rule import Rule
from limiter.rules.rule_set import RuleSet
from limiter.topics import TopicName

TYPES: Final[dict[str, Any]] = {cls.__name__: cls for cls in (Rule, Match, Limit, LimitChange, Rate, Adapt, Lag, Cost, Override, Quota)}
TUPLE: Final = ""  # the type name of a tuple
LONG: Final = "int"  # the type name of a number that MessagePack has no room for
LONG_BITS: Final = 63
TOPIC: Final = "TopicName"
LEVEL_KEY: Final = "LevelKey"


def tag_types(value: object) -> object:
    """`value` as lists that begin with the name of their type. Raises TypeError for a type that is not in TYPES."""
    if isinstance(value, TopicName):
        return [TOPIC, *value]
    if isinstance(value, LevelKey):
        return [LEVEL_KEY, *value]
    if isinstance(value, tuple | list):
        return [TUPLE, *(tag_types(each) for each in value)]
    if isinstance(value, int) and value.bit_length() > LONG_BITS:  # a burst as good as none, the period of a rate with many decimal places
        return [LONG, hex(value)]
    if value is None or isinstance(value, str | int | float | bytes):
        return value
    name = type(value).__name__
    if name not in TYPES or not is_dataclass(value):
        raise TypeError(f"{value!r}: no rule is made of this; add its type to TYPES")
    return [name, {field.name: tag_types(getattr(value, field.name)) for field in fields(value) if field.name != "evidence"}]


def untag_types(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    name = value[0]
    if name == TUPLE:
        return tuple(untag_types(each) for each in value[1:])
    if name == LONG:
        return int(value[1], 16)
    if name == TOPIC:
        return TopicName(*value[1:])
    if name == LEVEL_KEY:
        return LevelKey(*value[1:])
    return TYPES[name](**{field: untag_types(inner) for field, inner in value[1].items()})


def encode(rules: RuleSet) -> bytes:
    """The rule set as it holds now, without what has expired."""
    return msgspec.msgpack.encode(
        [
            tag_types(rules.file_rules),
            [[name, tag_types(change)] for name, change in rules.rule_overrides.items()],
            [[tag_types(topic), tag_types(change)] for topic, change in rules.overrides.items()],
            [[tag_types(topic), tag_types(quota)] for topic, quota in rules.quotas.items()],
            [[tag_types(topic), tag_types(quota)] for topic, quota in rules.shadow_quotas.items()],
            rules.revision,
            raise_of(rules),
            [[tag_types(key), tag_types(change)] for key, change in rules.level_overrides.items()],
        ]
    )


def decode(data: bytes) -> RuleSet:
    """The inverse. A change with an end holds until the parent sends other rules: its clock decides."""
    file_rules, rule_overrides, overrides, quotas, shadow_quotas, revision, hourly, levels = msgspec.msgpack.decode(data)
    return RuleSet(
        untag_types(file_rules),
        {name: untag_types(change) for name, change in rule_overrides},
        {untag_types(topic): untag_types(change) for topic, change in overrides},
        {untag_types(topic): untag_types(quota) for topic, quota in quotas},
        revision,
        shadow_quotas={untag_types(topic): untag_types(quota) for topic, quota in shadow_quotas},
        hourly=hourly_raise(hourly),
        level_overrides={untag_types(key): untag_types(change) for key, change in levels},
    )


# The intraday raise goes alone when it changes: 10,000 quotas with it would stall a worker's loop for 70 ms (2026-11).

DemandOnWire = list[tuple[str, str, float, float]]  # protocol, topic, messages and bytes per second
RaiseOnWire = tuple[float, DemandOnWire, DemandOnWire]  # at most, demand of the hour, surges


def raise_of(rules: RuleSet) -> RaiseOnWire | None:
    hourly = rules.hourly
    if hourly is None:
        return None
    demand, surges = ([(*place, *means) for place, means in each.items()] for each in (hourly.demand, hourly.surges))
    return hourly.most, demand, surges


def hourly_raise(sent: RaiseOnWire | None) -> HourlyRaise | None:
    """The inverse."""
    if sent is None:
        return None
    most, *both = sent
    demand, surges = ({(protocol, text): (messages, size) for protocol, text, messages, size in each} for each in both)
    return HourlyRaise(demand, most, surges)


def differ_in_raise_only(one: RuleSet, other: RuleSet) -> bool:
    """Whether the intraday raise is all in which two sets of one store may differ."""
    return (
        one.file_rules is other.file_rules
        and one.quotas is other.quotas
        and one.shadow_quotas is other.shadow_quotas
        and one.revision == other.revision
        and one.overrides == other.overrides
        and one.rule_overrides == other.rule_overrides
        and one.level_overrides == other.level_overrides
    )


@lru_cache(maxsize=1)  # all workers are told the same
def change_of(before: RuleSet | None, rules: RuleSet) -> bytes | None:
    """The rules for a worker that has `before`; None: it is told of the raise alone."""
    return None if before is not None and differ_in_raise_only(before, rules) else encode(rules)
