"""The shape: how many times a topic's forecast level its quota must be. Learned from its own days, and from the fleet where those are few.

What a day needs (`need`, the least rate that refuses a thousandth of it) is predicted twice. From the **level**: most topics are busier in
their busiest seconds when they send more. And from the **needs** of earlier days: a topic of jobs needs the size of one job, however many
there are in a day. Which of the two has been nearer to the truth on this topic's past days says how much each counts; both are corrected by
what they were wrong by in the mean, and a topic whose days differ gets more than one that is always the same.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from spark_jobs.method.level import forecasts
from spark_jobs.method.memory import KEPT_OF_A_SPARSE_DAY, Floats, Memory

PRIOR: Final = 6.0  # times the level; the need of a fleet of which nothing is known (quota-method: five real series)
PRIOR_SPREAD: Final = 0.5  # of ln(need / prediction), standard deviation; where nothing is known (a guess)
PRIOR_DAYS: Final = 5  # the fleet's peakiness weighs as much as so many days of the topic's own
LEAST_SPREAD: Final = 0.1  # no prediction is trusted to be nearer than a tenth
SPREADS: Final = 0.75  # standard deviations that are added; of 0, 0.5, 0.75, 1 and 2 the best on the generated weeks
SPARSE_MESSAGES: Final = 500  # a day; below it the level says little, and the forecast need is taken as it is
MIN_DAYS: Final = 2  # with needs, before they are believed


class Shape(NamedTuple):
    """Per topic: the rate that the method proposes before the fleet's factor k, and what it is made of. NaN: nothing is known."""

    base: Floats  # per second
    level: Floats  # F: forecast demand per second
    peakiness: Floats  # V: base / level


class Residuals(NamedTuple):
    """ln(need / prediction) of a topic's past days: how many, their mean and variance, both drawn towards the fleet's."""

    days: Floats
    mean: Floats
    variance: Floats


def shape(memory: Memory, half_life_days: float = 7.0) -> Shape:
    """The proposal for the day to come."""
    levels = forecasts(memory.mean, memory.weekdays, half_life_days)
    silent = np.isnan(memory.need) & ~np.isnan(memory.mean)
    demanded = np.where(silent, 0.0, memory.need)
    needs = means_before(demanded)
    level = levels[:, -1]
    from_level = residuals(memory, levels, level, math.log(PRIOR))
    from_needs = residuals(memory, needs, level, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        by_level, by_need = np.log(level) + from_level.mean, np.log(needs[:, -1]) + from_needs.mean
        trust = from_needs.variance**2 / (from_level.variance**2 + from_needs.variance**2)
        believed = (from_needs.days >= MIN_DAYS) & np.isfinite(by_need)
        middle = np.where(believed, trust * by_level + (1 - trust) * by_need, by_level)
        spread = np.sqrt(np.where(believed, np.minimum(from_level.variance, from_needs.variance), from_level.variance))
        base = np.exp(middle + SPREADS * spread)
        sparse = forecasts(memory.messages, memory.weekdays, half_life_days)[:, -1] < SPARSE_MESSAGES
        if sparse.any():
            own = forecasts(demanded, memory.weekdays, half_life_days)[:, -1]
            base = np.where(sparse & (own > 0), own, base)
        return Shape(base, level, np.where(level > 0, base / level, np.nan))


def means_before(values: Floats) -> Floats:
    """The mean of all known earlier days, for each day and for the one to come: (topics x days + 1). Recent days do not count more: the
    size
    of a job has no trend, and a mean of few days is noise that every topic pays for."""
    known = ~np.isnan(values)
    none = np.zeros((len(values), 1))
    count = np.concatenate([none, known.cumsum(axis=1)], axis=1)
    total = np.concatenate([none, np.where(known, values, 0.0).cumsum(axis=1)], axis=1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def residuals(memory: Memory, predicted: Floats, level: Floats, prior: float) -> Residuals:
    """How far `predicted` (topics x days + 1) was from what the days needed. The fleet's mean counts by level; `prior`: its mean where
    no day of any topic is known."""
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.log(memory.need / predicted[:, :-1])
    usable = np.isfinite(logs) & (memory.messages >= KEPT_OF_A_SPARSE_DAY)
    logs = np.where(usable, logs, 0.0)
    count = usable.sum(axis=1).astype(np.float64)
    own = logs.sum(axis=1) / np.maximum(count, 1)
    spread = np.where(usable, (logs - own[:, None]) ** 2, 0.0).sum(axis=1) / np.maximum(count, 1)
    weight = np.where(count > 0, np.nan_to_num(level), 0.0)
    fleet, fleet_variance = prior, PRIOR_SPREAD**2
    if weight.sum() > 0:
        fleet = float((weight * own).sum() / weight.sum())
        fleet_variance = float((weight * spread).sum() / weight.sum()) + LEAST_SPREAD**2
    mean = (logs.sum(axis=1) + PRIOR_DAYS * fleet) / (count + PRIOR_DAYS)
    squares = np.where(usable, (logs - mean[:, None]) ** 2, 0.0).sum(axis=1)
    return Residuals(count, mean, (squares + PRIOR_DAYS * fleet_variance) / (count + PRIOR_DAYS))
