"""Ten simple rules that a person would take, each with the best factor in hindsight: what a method is measured against."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from spark_jobs.method.memory import Floats, Memory, find_greatest, find_newest, mean_of


def decayed(values: Floats, half_life: float = 7.0) -> Floats:
    known = ~np.isnan(values)
    weight = 0.5 ** (np.arange(values.shape[1])[::-1] / half_life) * known
    return np.asarray((np.where(known, values, 0.0) * weight).sum(axis=1) / np.maximum(weight.sum(axis=1), 1e-12))


def same_weekday(memory: Memory) -> Floats:
    week_ago = memory.busiest[:, -7] if memory.days >= 7 else np.full(len(memory.keys), np.nan)
    return np.where(np.isnan(week_ago), find_newest(memory.busiest), week_ago)


RULES: Final[dict[str, Callable[[Memory], Floats]]] = {
    "yesterday's maximum": lambda memory: find_newest(memory.busiest),
    "yesterday's p99": lambda memory: find_newest(memory.p99),
    "yesterday's mean": lambda memory: find_newest(memory.mean),
    "maximum of 7 days": lambda memory: find_greatest(memory.busiest[:, -7:]),
    "maximum of 28 days": lambda memory: find_greatest(memory.busiest[:, -28:]),
    "mean of 7 days": lambda memory: mean_of(memory.mean[:, -7:]),
    "mean p99 of 7 days": lambda memory: mean_of(memory.p99[:, -7:]),
    "decayed p99": lambda memory: decayed(memory.p99),
    "decayed maximum": lambda memory: decayed(memory.busiest),
    "maximum a week ago": same_weekday,
}
"""Each gives a rate per topic, for the day to come, that the score scales by one factor for all topics."""
