"""Rules as plain values, to be sent to Spark's workers: compiled classes cannot be pickled."""

from __future__ import annotations

import dataclasses
from typing import Any

from limiter.limits import Adapt, Lag, Limit, LimitChange, Rate
from limiter.rules.match import Match
from limiter.rules.rule import Rule

KINDS: dict[str, type] = {kind.__name__: kind for kind in (Adapt, Lag, Limit, LimitChange, Match, Rate, Rule)}


def to_plain(value: Any) -> Any:
    """`value`, a rule or a part of one, as nested tuples and dictionaries."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return type(value).__name__, {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value


def from_plain(value: Any) -> Any:
    """The inverse of `to_plain`."""
    if isinstance(value, tuple):
        name, fields = value
        return KINDS[name](**{field: from_plain(inner) for field, inner in fields.items()})
    return value
