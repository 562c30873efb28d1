"""Residuals: how far the predictions of a topic's need were from the needs of its past days, as ln(need / prediction).

The naive way is mean and standard deviation, each day alike. It fails twice. A topic of jobs has days without one: their need is a
hundredth, their logarithm draws the mean down, and they are days on which nothing can be refused. And one event in a week moves the mean of
all days, though it says nothing of the next one. So a day counts by the square root of its demand, the middle is a quantile that rare
events do not move, and a prediction is as good as it was on usual days and on all days together (docs/design/quotas.md 3).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from spark_jobs.method.memory import KEPT_OF_A_SPARSE_DAY, Floats, Memory

PRIOR_SPREAD: Final = 0.5  # standard deviation of ln(need / prediction), where nothing is known (a guess)
PRIOR_DAYS: Final = 10  # the fleet's residuals weigh as much as so many days of the topic's own; of 5, 10 and 20
LEAST_SPREAD: Final = 0.1  # no prediction is trusted to be nearer than a tenth
LOAD_POWER: Final = 0.5  # a day counts by its demand to this power: of 0, 0.5 and 1 the best on the tuning seeds
ONE_SIGMA: Final = (0.16, 0.84)  # quantiles of a normal distribution a standard deviation from its middle


class Residuals(NamedTuple):
    """Per topic: of its own days alone, or all but `days` and `worth` shrunk towards the fleet's."""

    days: Floats  # how many
    worth: Floats  # days of equal load that they are worth
    mean: Floats
    middle: Floats  # the quantile that was asked for
    variance: Floats
    usual: Floats  # variance of the usual days, from two quantiles: a few events or idle days do not count


def compute_own_residuals(memory: Memory, predicted: Floats, quantile: float) -> Residuals:
    """How far `predicted` (topics x days) was from the days' needs, of each topic's own days alone."""
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.log(memory.need / predicted)
    usable = np.isfinite(logs) & (memory.messages >= KEPT_OF_A_SPARSE_DAY)
    logs = np.where(usable, logs, 0.0)
    weight = np.where(usable, np.nan_to_num(memory.mean), 0.0) ** LOAD_POWER
    whole, squares = weight.sum(axis=1), (weight**2).sum(axis=1)
    worth = np.divide(whole**2, squares, out=np.zeros(len(whole)), where=squares > 0)
    weight *= np.divide(worth, whole, out=np.zeros(len(whole)), where=whole > 0)[:, None]  # they add up to `worth`
    mean = (weight * logs).sum(axis=1) / np.maximum(worth, 1.0)
    low, high, middle = quantiles(logs, weight, (*ONE_SIGMA, quantile))
    spread = (weight * (logs - mean[:, None]) ** 2).sum(axis=1) / np.maximum(worth, 1.0)
    return Residuals(usable.sum(axis=1).astype(np.float64), worth, mean, middle, spread, ((high - low) / 2) ** 2)


def shrink_to_fleet(own: Residuals, level: Floats, prior: float) -> Residuals:
    """The topics are the whole fleet, whose residuals count by `level`; `prior`: its mean where no day of any topic is known."""
    worth, spread = own.worth, own.variance
    share = np.where(worth > 0, np.nan_to_num(level), 0.0)
    least = LEAST_SPREAD**2

    def drawn(values: Floats, unknown: float, least: float = 0.0) -> Floats:
        fleet = float((share * values).sum() / share.sum()) + least if share.sum() > 0 else unknown
        return np.asarray((worth * values + PRIOR_DAYS * fleet) / (worth + PRIOR_DAYS))

    mean = drawn(own.mean, prior)
    around = spread + (own.mean - mean) ** 2  # the topic's own variance around the mean that is believed
    fleet_spread = float((share * spread).sum() / share.sum()) + least if share.sum() > 0 else PRIOR_SPREAD**2
    variance = (worth * around + PRIOR_DAYS * fleet_spread) / (worth + PRIOR_DAYS)
    return Residuals(own.days, worth, mean, drawn(own.middle, prior), variance, drawn(own.usual, PRIOR_SPREAD**2, least))


def quantiles(values: Floats, weights: Floats, shares: tuple[float, ...]) -> list[Floats]:
    """The weighted quantiles of each row, interpolated between the middles of the weights; 0 where a row has no weight."""
    order = np.argsort(np.where(weights > 0, values, np.inf), axis=1, kind="stable")
    ordered, weight = np.take_along_axis(values, order, axis=1), np.take_along_axis(weights, order, axis=1)
    known = (weights > 0).sum(axis=1)
    if not values.shape[1]:
        return [np.zeros(len(values)) for _ in shares]
    whole = weight.sum(axis=1, keepdims=True)
    place = np.divide(weight.cumsum(axis=1) - weight / 2, whole, out=np.full(weight.shape, 2.0), where=(whole > 0) & (weight > 0))
    row = np.arange(len(values))
    found = []
    for share in shares:
        above = (place < share).sum(axis=1)  # the first day at or above the share, among the sorted ones
        low, high = np.maximum(np.minimum(above, known) - 1, 0), np.maximum(np.minimum(above, known - 1), 0)
        begin, end = place[row, low], place[row, high]
        part = np.divide(share - begin, end - begin, out=np.zeros(len(row)), where=high > low)
        found.append(np.where(known > 0, ordered[row, low] + part * (ordered[row, high] - ordered[row, low]), 0.0))
    return found
