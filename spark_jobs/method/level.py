"""The level: a topic's demand on a day, forecast from the days before it (docs/design/quotas.md 1)."""

from __future__ import annotations

from typing import Final

import numpy as np

from spark_jobs.method.memory import Floats, Ints, find_greatest, mean_of

OTHER_KIND: Final = 0.05  # weight of a day of the week-end in the forecast for a working day, and the other way round
SAME_WEEKDAY: Final = 4.0  # weight of a day with the same name
TREND_DAYS: Final = 3  # days whose mean is compared with the same days a week before
TREND_BOUND: Final = 2.0  # growth of a week that counts at most
TREND_POWER: Final = 0.5  # power of a week's growth by which it counts: half of it is noise
CARRIED_DAYS: Final = 2  # days of the other kind that must both have grown over a week, before their growth counts for this kind
CARRIED_AFTER: Final = 14  # known days of a topic: in its first two weeks an event of the week before looks like a week's growth
CARRIED_BOUND: Final = 4.0  # times the forecast, at most: as far as rails let a quota go in two nights
REMEMBERED_PEAK: Final = 200.0  # a topic keeps a two-hundredth of its busiest day of four weeks
PEAK_DAYS: Final = 28


def weights(weekdays: Ints, day: int, half_life_days: float) -> Floats:
    """The weight of each day before `day` in its forecast."""
    age = day - np.arange(day)
    found = 0.5 ** ((age - 1) / half_life_days)
    weekend = weekdays >= 5
    found = found * np.where(weekend[:day] != weekend[day], OTHER_KIND, 1.0)
    return np.asarray(found * np.where(weekdays[:day] == weekdays[day], SAME_WEEKDAY, 1.0))


def weighted_mean(values: Floats, weekdays: Ints, day: int, half_life_days: float = 7.0) -> Floats:
    """The mean of the columns before `day`, by their weights; NaN where none of those is known."""
    past = values[:, :day]
    if not day:
        return np.full(len(values), np.nan)
    known = ~np.isnan(past)
    weight = weights(weekdays, day, half_life_days) * known
    whole = weight.sum(axis=1)
    return np.where(whole > 0, (np.where(known, past, 0.0) * weight).sum(axis=1) / np.where(whole > 0, whole, 1.0), np.nan)


def forecast(values: Floats, weekdays: Ints, day: int, half_life_days: float = 7.0) -> Floats:
    """The topics' values on `day`, forecast from the columns before it; NaN where none of those is known."""
    past = values[:, :day]
    found = weighted_mean(values, weekdays, day, half_life_days)
    if not day:
        return found
    found = found * trend(past)
    if (weekdays[day - 1] >= 5) == (weekdays[day] >= 5):
        found = np.fmax(found, np.where(np.isnan(found), np.nan, past[:, -1]))
    else:
        found = np.fmax(found, np.minimum(carry_last_week(past), CARRIED_BOUND * found))
    return np.fmax(found, np.where(np.isnan(found), np.nan, find_greatest(past[:, -PEAK_DAYS:]) / REMEMBERED_PEAK))


def trend(past: Floats) -> Floats:
    """The growth of a week: the last three days against the same days a week earlier; 1 where those are not known."""
    if past.shape[1] < 7 + 1:
        return np.ones(len(past))
    now, before = mean_of(past[:, -TREND_DAYS:]), mean_of(past[:, -TREND_DAYS - 7 : -7])
    ratio = np.divide(now, before, out=np.ones(len(past)), where=(before > 0) & ~np.isnan(now))
    return np.asarray(np.clip(ratio, 1 / TREND_BOUND, TREND_BOUND) ** TREND_POWER)


def carry_last_week(past: Floats) -> Floats:
    """The same day of last week times the growth since, which the last days, of the other kind, show; NaN where that is not known.

    A topic that moved on a Saturday is not what it was on Monday, though no working day has shown it. The lesser growth of two days
    counts: one event is not a move.
    """
    if past.shape[1] < 7 + CARRIED_DAYS:
        return np.full(len(past), np.nan)
    now, before = past[:, -CARRIED_DAYS:], past[:, -CARRIED_DAYS - 7 : -7]
    growth = np.divide(now, before, out=np.full(now.shape, np.nan), where=before > 0).min(axis=1)
    growth[(~np.isnan(past)).sum(axis=1) < CARRIED_AFTER] = np.nan
    return np.asarray(past[:, -7] * growth)


def forecast_each_day(values: Floats, weekdays: Ints, half_life_days: float = 7.0) -> Floats:
    """The forecast for each column, and for the day to come: (topics x days + 1)."""
    days = values.shape[1]
    return np.stack([forecast(values, weekdays, day, half_life_days) for day in range(days + 1)], axis=1)
