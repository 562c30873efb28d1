"""The quota maths again, in plain Python and by brute force: what the Spark job's answers are compared with."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from fractions import Fraction
from functools import cache
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


def burst(series: Mapping[int, int], rate: Fraction) -> Fraction:
    """max over s <= t of A(s, t) - rate (t - s), by trying every pair."""
    best = Fraction(0)
    for start in series:
        total = 0
        for end in sorted(tick for tick in series if tick >= start):
            total += series[end]
            best = max(best, total - rate * (end - start))
    return best


@cache
def bucket(amount: int) -> int:
    """The k with 1.02^k <= amount < 1.02^(k+1), found with whole numbers."""
    k, power, scaled = 0, 102, amount * 100  # 102^(k+1) and amount * 100^(k+1)
    while power <= scaled:
        k, power, scaled = k + 1, power * 102, scaled * 100
    return k


@cache
def bucket_top(k: int) -> int:
    """The largest whole number below 1.02^(k+1); 0 for the idle bucket."""
    return 0 if k < 0 else max(1, math.ceil(Fraction(102, 100) ** (k + 1)) - 1)


def percentile(weighted: Sequence[tuple[int, int]], permille: int) -> int:
    """The smallest value with at least so many thousandths of the weight at or below it."""
    total = sum(weight for _, weight in weighted)
    below = 0
    for value, weight in sorted(weighted):
        below += weight
        if below * 1000 >= total * permille:
            return value
    raise ValueError("no weight")


def formula(
    days: Mapping[str, Series], today: str, *, permille: int, margin: int, half_life: int, weighting: str, observed: Mapping[str, Series]
) -> int:
    """The rate by docs/design/quotas.md 1 for one topic and dimension (classes: 24 hours of weekdays, 24 of weekends).

    `days`: date -> second of the epoch -> amount; `observed`: date -> the observed seconds.
    """
    classes: dict[tuple[bool, int], list[tuple[int, int]]] = defaultdict(list)
    for name, series in days.items():
        day = date.fromisoformat(name)
        age = (date.fromisoformat(today) - day).days
        weight = round(2 ** (20 - age / half_life))
        most = max(series.values())
        for second in observed[name]:
            value = min(most, bucket_top(bucket(series[second]) if second in series else -1))
            mass = weight * value if weighting == "load" else weight
            if mass:
                classes[(day.weekday() >= 5, second % 86_400 // 3600)].append((value, mass))
    worst = max(percentile(weighted, permille) for weighted in classes.values())
    return max(1, math.ceil(Fraction(worst * (100 + margin) * (len(days) + 1), 100 * len(days))))


def refused(series: Mapping[int, int], rate: int, size: int) -> int:
    """What a bucket refuses, second by second, idle seconds too."""
    if not series:
        return 0
    level, lost = size, 0
    for tick in range(min(series), max(series) + 1):
        if tick > min(series):
            level = min(size, level + rate)
        taken = min(level, series.get(tick, 0))
        lost += series.get(tick, 0) - taken
        level -= taken
    return lost
