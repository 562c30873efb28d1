"""k: one number for the fleet and dimension, by which all quotas are larger than their base. It moves slowly towards the least one
that keeps refusals below the target.

A calibrated k is the right size on average, and its noise costs: at equal reserve a constant k refuses less. So it changes by at most 2 %
a night, up or down, never up for one night, and looks back with a half-life of sixty days. It is a function of what earlier days
wrote into their manifests (`refused_by_k` and the k of the night before), so a night that is computed again finds the same k.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from spark_jobs.method.memory import Floats
from spark_jobs.method.promise import LONG_NIGHTS
from spark_jobs.state.loss_surface import Surfaces

LEAST: Final = 0.7
MOST: Final = 30.0
STEP: Final = 1.1
GRID: Final = tuple(LEAST * STEP**i for i in range(40))  # 0.7 to 28.8
PRIOR: Final = 2.0  # k until there are MIN_DAYS days to learn from
MIN_DAYS: Final = 7
DOUBT_NIGHTS: Final = 25  # nights of a topic that are held against k until more have been seen; of 15, 25, 30, 40 (docs/design/quotas.md 4)
HALF_LIFE_DAYS: Final = 60.0
MAX_CHANGE: Final = 1.02  # times; in one night


class Judged(NamedTuple):
    """One day's evidence on k: refused at each k of the grid, had the night before published it, and offered."""

    refused: Sequence[float]
    offered: float
    topics: float = 1.0  # how many topics of equal size the day's messages are worth: a day of one big topic is one night of evidence


def compute_rates(base: Floats, k: float, floor: Floats | float) -> Floats:
    """The rates that the method would publish with `k`; NaN where there is no base."""
    return np.where(np.isnan(base), np.nan, np.maximum(k * base, floor))


def compute_bursts(rates: Floats, largest: Floats, seconds: float = 10.0) -> Floats:
    """The bursts that go with the rates: `seconds` of them, three tokens, or the largest message."""
    return np.asarray(np.ceil(np.fmax(np.fmax(seconds * rates, 3.0), largest) - 1e-9))


def judge(base: Floats, largest: Floats, surfaces: Surfaces, floor: Floats | float, seconds: float = 10.0) -> Judged:
    """The day of `surfaces` against quotas of `base` made before it. Topics without a base do not count."""
    refused = []
    for k in GRID:
        rates = compute_rates(base, k, floor)
        refused.append(float(np.nansum(surfaces.interpolate_loss(rates, compute_bursts(rates, largest, seconds)))))
    offered = surfaces.total[~np.isnan(base)]
    return Judged(refused, float(offered.sum()), count_effective_topics(offered))


def count_effective_topics(offered: Floats) -> float:
    """The effective number of topics, how many of equal size these are worth: (Σ o)² / Σ o², at least 1."""
    squares = float((offered**2).sum())
    return max(float(offered.sum()) ** 2 / squares, 1.0) if squares > 0 else 1.0


def find_least_k(days: Sequence[Judged | None], target: float) -> float | None:
    """The least k at which the days, newest last, refuse at most `target` of the offered messages, doubt included; None: nothing was
    offered.

    Doubt: events that have not been seen yet. As if DOUBT_NIGHTS nights of one topic (or as many as have been seen, if fewer) had refused
    exactly the target at the prior k, and elsewhere in inverse proportion to k. A fleet of a hundred topics overcomes that in a night, one
    of a single topic in months.
    """
    refused, offered, seen = np.zeros(len(GRID)), 0.0, 0.0
    for age, day in enumerate(reversed(days)):
        if day is not None:
            weight = 0.5 ** (age / HALF_LIFE_DAYS)
            refused += weight * np.asarray(day.refused)
            offered += weight * day.offered
            seen += weight * day.topics
    if offered <= 0:
        return None
    refused += target * offered * min(DOUBT_NIGHTS / seen, 1.0) * PRIOR / np.asarray(GRID)
    enough = np.flatnonzero(refused <= target * offered)
    if not enough.size:
        return MOST
    at = int(enough[0])
    if not at:
        return LEAST
    part = (refused[at - 1] - target * offered) / max(refused[at - 1] - refused[at], 1e-12)
    return float(GRID[at - 1] * STEP**part)


def predict_change(days: Sequence[Judged], ks: Sequence[float], k: float, target: float) -> tuple[float, float]:
    """The least and the greatest factor of the refusals of `days` at their own `ks`, with the k of a month to come.

    Where k falls, from `k` on to the mean one of a month that lowers it as far as it may. Where it rises nobody knows how far: from nothing
    to their refusals at `k`.
    """

    def lost(each: Sequence[float]) -> float:
        return sum(float(np.interp(at, GRID, day.refused)) for at, day in zip(each, days, strict=True))

    then = lost(ks)
    if then <= 0:
        return 1.0, 1.0
    now = lost([k] * len(days)) / then
    if then > target * sum(day.offered for day in days):
        return 0.0, now
    return now, lost([k / MAX_CHANGE ** (LONG_NIGHTS / 2)] * len(days)) / then


def drop_worst_day(days: Sequence[Judged | None], k: float) -> list[Judged | None]:
    """`days` without the one that refused most at `k`."""
    at = int(np.argmin(np.abs(np.asarray(GRID) - k)))

    def weight(place: int) -> float:
        day = days[place]
        return 0.0 if day is None else 0.5 ** ((len(days) - place) / HALF_LIFE_DAYS) * day.refused[at]

    worst = max(range(len(days)), key=weight)
    return [None if place == worst else day for place, day in enumerate(days)]


def adjust_k(days: Sequence[Judged | None], target: float, before: float | None) -> float:
    """k after the judged `days` (newest last; None: that day says nothing), from `before`, the k of the night before.

    It falls where all that was refused allows it, and rises where that is too much also without the worst night: one event says nothing of
    the next one, and on an opening day all topics have theirs. Between the two it stays.
    """
    k = PRIOR if before is None else before
    if sum(day is not None and day.offered > 0 for day in days) < MIN_DAYS:
        return k
    enough, certain = find_least_k(days, target), find_least_k(drop_worst_day(days, k), target)
    assert enough is not None, "MIN_DAYS days offered something"
    assert certain is not None, "as many"
    wanted = min(max(k, certain), enough)
    return float(min(max(wanted, k / MAX_CHANGE, LEAST), k * MAX_CHANGE, MOST))
