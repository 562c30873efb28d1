"""The shape: how many times a topic's forecast level its quota must be. Learned from its own days, and from the fleet where those are few.

A day's need (`need`, the least rate that refuses a thousandth of it) is predicted twice. From the **level**: most topics are busier in
their busiest seconds when they send more. And from the **needs** of earlier days: a topic of jobs needs the size of one job, however many
there are in a day. Each of the two counts by how near it was to the truth on the topic's past days. Both are corrected by their past
errors, and a topic of jobs whose days differ gets more than one that is always the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from spark_jobs.method.level import forecast, forecast_each_day
from spark_jobs.method.memory import Floats, Memory, find_greatest
from spark_jobs.method.overload import find_sufficient_rates
from spark_jobs.method.residuals import Residuals, compute_own_residuals, shrink_to_fleet

PRIOR: Final = 6.0  # times the level; the need of a fleet of which nothing is known (quota-method: five real series)
MIDDLE: Final = 0.6  # quantile of need / forecast: above most days and below events; of 0.5, 0.6, 0.7 and 0.8 (docs/design/quotas.md 3)
SPREADS: Final = 0.5  # standard deviations that are added to the prediction from the needs; of 0, 0.4, 0.5, 0.75 and 1
TRUST_DAYS: Final = 10  # days after which the better prediction counts with a power higher by one; of 5, 6, 10 and none
FIRST_WEEK: Final = 7  # days in which the greatest need and the larger prediction count too, less each day; of 0, 5, 7, 10 and 14
JOBS: Final = (4.0, 8.0)  # times the level: no need is a job's below the first, all are above the second; generated events reach 4
CERTAIN: Final = 4  # power of the trust in its level by which a topic of jobs, too, is left to it; of 1, 2, 4 and infinity
SPARSE_MESSAGES: Final = 500  # messages a day; below them a day's level and need are chance, and the mean of all needs is taken as it is
MIN_DAYS: Final = 2  # days with needs, before they are believed
BLOCK: Final = 4096  # topics whose days are looked at together: 2 MB an array at 60 days


class Shape(NamedTuple):
    """Per topic: the rate that the method proposes before the fleet's factor k, and its parts. NaN: nothing is known."""

    base: Floats  # per second
    level: Floats  # F: forecast demand per second
    peakiness: Floats  # V: base / level


class _Seen(NamedTuple):
    """The summary of each topic's own days, one value a topic."""

    level: Floats
    need: Floats  # the mean of all days
    greatest: Floats  # need of a day
    days: Floats
    messages: Floats  # forecast of a day
    from_level: Residuals
    from_needs: Residuals


def estimate_shape(memory: Memory, half_life_days: float = 7.0) -> Shape:
    """The shape of each topic for the day to come."""
    count = max(len(memory.keys), 1)
    seen = _join_parts(
        [_summarise_days(memory.select_topics(slice(first, first + BLOCK)), half_life_days) for first in range(0, count, BLOCK)]
    )
    level = seen.level
    from_level = shrink_to_fleet(seen.from_level, level, math.log(PRIOR))
    from_needs = shrink_to_fleet(seen.from_needs, level, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        by_level = np.log(level) + from_level.middle
        by_need = np.log(seen.need) + from_needs.mean + SPREADS * np.sqrt(from_needs.variance)
        early = np.maximum(1 - seen.days / FIRST_WEEK, 0.0)
        by_need += early * np.maximum(np.log(seen.greatest) - by_need, 0.0)
        trust = trust_in_level(from_level, from_needs)
        both = (1 - early) * (trust * by_level + (1 - trust) * by_need) + early * np.maximum(by_level, by_need)
        believed = (from_needs.days >= MIN_DAYS) & np.isfinite(by_need)
        share = np.nan_to_num((1 - trust**CERTAIN) * estimate_job_share(np.exp(both) / level))
        jobs = np.log(find_sufficient_rates(memory, np.flatnonzero(share > 0)))
        both = np.where(np.isfinite(jobs), (1 - share) * both + share * jobs, both)
        base = np.exp(np.where(believed, both, by_level))
        sparse = seen.messages < SPARSE_MESSAGES
        base = np.where(sparse & (seen.need > 0), seen.need, base)
        return Shape(base, level, np.where(level > 0, base / level, np.nan))


def _summarise_days(memory: Memory, half_life_days: float) -> _Seen:
    levels = forecast_each_day(memory.mean, memory.weekdays, half_life_days)
    silent = np.isnan(memory.need) & ~np.isnan(memory.mean)
    demanded = np.where(silent, 0.0, memory.need)
    needs = average_earlier_days(demanded)
    return _Seen(
        levels[:, -1], needs[:, -1], find_greatest(demanded), (~np.isnan(memory.mean)).sum(axis=1).astype(np.float64),
        forecast(memory.messages, memory.weekdays, memory.days, half_life_days),
        compute_own_residuals(memory, fill_predictions(levels, memory.mean), MIDDLE),
        compute_own_residuals(memory, fill_predictions(needs, memory.need), MIDDLE),
    )  # fmt: skip


def _join_parts(parts: Sequence[_Seen]) -> _Seen:
    level, need, greatest, days, messages = (np.concatenate([part[at] for part in parts]) for at in range(5))

    def residuals(of: Sequence[Residuals]) -> Residuals:
        return Residuals(*(np.concatenate(each) for each in zip(*of, strict=True)))

    of_level, of_needs = residuals([part.from_level for part in parts]), residuals([part.from_needs for part in parts])
    return _Seen(level, need, greatest, days, messages, of_level, of_needs)


def fill_predictions(predicted: Floats, came: Floats) -> Floats:
    """The prediction for each past day; for a day with nothing before it the day's own value, so that both predictions begin alike."""
    past = predicted[:, :-1]
    return np.where(past > 0, past, came)


def trust_in_level(from_level: Residuals, from_needs: Residuals) -> Floats:
    """How much the prediction from the level counts, 0 to 1, beside that from the needs: by their variances on all and on usual days, the
    more sharply the more days have told them apart."""
    power = 1 + np.minimum(from_level.days, from_needs.days) / TRUST_DAYS
    ratio = (from_level.variance * from_level.usual) / (from_needs.variance * from_needs.usual)
    return np.asarray(1 / (1 + ratio**power))


def estimate_job_share(peakiness: Floats) -> Floats:
    """How much a topic sends in jobs, 0 to 1: its usual need is so many times its level. A topic with events is no such topic."""
    low, high = JOBS
    return np.asarray(np.clip(np.log(peakiness / low) / math.log(high / low), 0.0, 1.0))


def average_earlier_days(values: Floats) -> Floats:
    """The mean of all known earlier days, for each day and for the one to come: (topics x days + 1). Recent days do not count more: the
    size of a job has no trend, and a mean of few days is noise that every topic pays for."""
    known = ~np.isnan(values)
    none = np.zeros((len(values), 1))
    count = np.concatenate([none, known.cumsum(axis=1)], axis=1)
    total = np.concatenate([none, np.where(known, values, 0.0).cumsum(axis=1)], axis=1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
