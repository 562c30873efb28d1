"""Memories made by hand, for tests of one step of the method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.method.memory import Floats, Memory
from spark_jobs.method.remember import Remembering
from spark_jobs.method.residuals import Residuals, compute_own_residuals, shrink_to_fleet
from spark_jobs.state.loss_surface import OVERLOADS
from spark_jobs.state.remembered import Remembered


def memory_of(mean: Any, need: Any = None, messages: Any = None, **others: Any) -> Memory:
    """Topics x days of `mean`; the rest follows: need twice the mean, busiest thrice, enough messages, not limited. Day 0 is a Monday."""
    level = np.atleast_2d(np.asarray(mean, np.float64))
    topics, days = level.shape

    def filled(value: Any, default: Any) -> Any:
        return np.broadcast_to(np.asarray(default if value is None else value, np.float64), level.shape).copy()

    arrays = {"busiest": 3 * level, "p99": 2.5 * level, "largest": np.ones_like(level), "evenness": np.ones_like(level)}
    arrays |= {name: filled(value, 0) for name, value in others.items() if name not in {"censored", "overloaded"}}
    return Memory(
        keys=tuple(("rocketmq", f"t{at}") for at in range(topics)),
        weekdays=np.arange(days + 1) % 7,
        mean=level,
        messages=filled(messages, level * 86_400),
        need=filled(need, 2 * level),
        overloaded=np.asarray(others.get("overloaded", np.full((*level.shape, len(OVERLOADS)), np.nan)), np.float64),
        censored=np.asarray(others.get("censored", np.zeros(level.shape)), np.bool_),
        **arrays,
    )


def remember(table: pa.Table, observed: Mapping[str, int], dimension: str, keys: Sequence[tuple[str, str]], **others: Any) -> Memory:
    """The memory of one dimension, from the rows of all its days; the rest as `Remembering`."""
    found = Remembering(observed, dimension, keys, **others)
    found.add(table)
    return found.make_memory()


def remembered_of(table: pa.Table) -> Remembered:
    """The rows of a table in memory."""

    def read(days: Sequence[str], names: Sequence[str]) -> pa.Table:
        return table.select(list(names)).filter(pc.is_in(table["day"], pa.array(days, pa.string())))

    return Remembered(read, sorted(set(table["day"].unique().to_pylist())), 0)


def compute_residuals(memory: Memory, predicted: Floats, level: Floats, prior: float, quantile: float) -> Residuals:
    return shrink_to_fleet(compute_own_residuals(memory, predicted, quantile), level, prior)
