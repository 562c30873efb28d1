"""The quota maths again, in plain Python and by brute force: what the Spark job's answers are compared with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

Key = tuple[str, str, str]  # protocol, topic, dimension
Series = dict[int, int]  # second or tick -> amount


def usage(lines: Iterable[Mapping[str, Any]]) -> dict[Key, Series]:
    """Demand per topic, dimension and second of good lines without drops."""
    found: dict[Key, Series] = defaultdict(lambda: defaultdict(int))
    for line in lines:
        if line.get("heartbeat") or line["operation"] != "produce":
            continue
        key = (line["protocol"], line["topic"])
        found[(*key, "messages")][line["ts"]] += line["messages"] + line["refused_messages"]
        found[(*key, "bytes")][line["ts"]] += line["bytes"] + line["refused_bytes"]
    return {key: {second: amount for second, amount in series.items() if amount} for key, series in found.items()}


def ticks(lines: Iterable[Mapping[str, Any]]) -> dict[int, int]:
    """second -> its number among the observed seconds."""
    return {second: tick for tick, second in enumerate(sorted({line["ts"] for line in lines}))}


def refused(series: Mapping[int, int], rate: Fraction, size: int) -> Fraction:
    """What a bucket refuses, second by second, idle seconds too."""
    if not series:
        return Fraction(0)
    level, lost = Fraction(size), Fraction(0)
    for tick in range(min(series), max(series) + 1):
        if tick > min(series):
            level = min(Fraction(size), level + rate)
        taken = min(level, Fraction(series.get(tick, 0)))
        lost += series.get(tick, 0) - taken
        level -= taken
    return lost
