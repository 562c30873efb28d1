"""Overload: the rate that a topic of jobs exceeds for a fixed share of its time, on the average of its past days.

The naive way is the size of a usual job, for each topic alike. It shares the fleet's reserve badly: a topic with many short jobs has its
largest one soon, and gets a size that is hardly ever needed; one with a few long jobs is refused for minutes. A message per second more
of quota saves one message for each second of overload. So the least is refused, for a given reserve, where all topics are overloaded for
the same time, whatever their jobs are like (docs/design/quotas.md 3).

All seconds of all days count alike, not one number of each day. So the rate is nearly the same from night to night, where one from the
needs of days goes up and down with each job.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from spark_jobs.method.memory import Floats, Memory
from spark_jobs.state.loss_surface import OVERLOADS

SHARE: Final = 0.002  # of the time: 3 minutes of a day; of 0.0001 to 0.01
MOST_LOST: Final = 0.03  # of the demand: one short job in weeks does not last for SHARE of the time; of none, 0.01, 0.02, 0.03 and 0.05
SPREAD: Final = 0.1  # of the logarithm of a job's rate: the next one is not as large as any that was seen; of 0.1, 0.2, 0.3, 0.6
HALF_LIFE_DAYS: Final = 60.0  # as that of k
_PARTS: Final = -np.diff((*OVERLOADS, 0.0))  # of the time: between one share and the next
_LOGISTIC: Final = 1.702  # makes the logistic distribution nearly the normal one, which numpy does not have
_LOGS: Final = (-12.0, 26.0)  # logarithms of rates, per second: all that there are, bytes too
_HALVINGS: Final = 40


def sufficient(memory: Memory) -> Floats:
    """The rate per second of each topic that its past days exceed for SHARE of their time, and at which they lose at most MOST_LOST of
    their demand; NaN where no day is known. Days of states from before rates of overload were kept do not count."""
    age = np.arange(memory.days)[::-1]
    kept = ~np.isnan(memory.overloaded).all(axis=2)
    silent = (memory.mean == 0) & np.logical_or.accumulate(kept.any(axis=0))
    weights = np.where((kept | silent) & ~np.isnan(memory.mean), 0.5 ** (age / HALF_LIFE_DAYS), 0.0)
    whole = weights.sum(axis=1)
    weights /= np.where(whole > 0, whole, 1.0)[:, None]
    parts = weights[:, :, None] * _PARTS
    rates = np.nan_to_num(memory.overloaded)
    logs = np.log(np.maximum(rates, np.exp(_LOGS[0])))
    demand = (weights * np.nan_to_num(memory.mean)).sum(axis=1)

    def overloaded(at: Floats) -> Floats:
        away = np.clip(_LOGISTIC * (logs - at[:, None, None]) / SPREAD, -60.0, 60.0)
        return np.asarray((parts / (1 + np.exp(-away))).sum(axis=(1, 2)))

    def lost(at: Floats) -> Floats:
        return np.asarray((parts * np.maximum(rates - np.exp(at)[:, None, None], 0.0)).sum(axis=(1, 2)))

    found = np.maximum(_crossing(overloaded, np.full(len(whole), SHARE)), _crossing(lost, MOST_LOST * demand))
    return np.where(whole > 0, np.exp(found), np.nan)


def _crossing(falling: Callable[[Floats], Floats], level: Floats) -> Floats:
    """Where a function of the logarithm of the rate falls to `level`, for all topics at once."""
    low, high = (np.full(len(level), each) for each in _LOGS)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        above = falling(middle) > level
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return high
