"""Overload: the rate that a topic of jobs is expected to exceed for a fixed share of its time, from the jobs of its past days.

The naive way is the size of a usual job, for each topic alike. It shares the fleet's reserve badly: a topic with many short jobs has its
largest one soon, and gets a size that is hardly ever needed; one with a few long jobs is refused for minutes. A message per second more
of quota saves one message for each second of overload. So a given reserve refuses least where all topics are overloaded for the same
time, whatever their jobs are like (docs/design/quotas.md 3).

The next naive way is to count how long past seconds were above a rate. Of two jobs a day there are a dozen after a week, and the largest of
a dozen says little of the next one: such a rate goes up and down with each job. So the sizes of jobs are taken as lognormal,
which they mostly are: the middle and the spread of all seen jobs decide, not the largest one, and with few of them the next job may be
further away.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import Final

import numpy as np

from spark_jobs.method.memory import Floats, Ints, Memory
from spark_jobs.state.loss_surface import OVERLOADS

SHARE: Final = 0.002  # share of the time: 3 minutes of a day; of 0.001 to 0.01
IN_JOBS: Final = 4.0  # times the mean demand: seconds above it are those of jobs
MOST_LOST: Final = 0.03  # share of the demand: one short job in weeks does not last for SHARE of the time
PRIOR_VARIANCE: Final = 0.25  # variance of the logarithm of a job's rate: a usual job is within a factor of 1.6 (a guess)
PRIOR_DAYS: Final = 2.0  # days with jobs that the fleet's variance counts as, beside a topic's own; of 1, 2, 5 and 20
FLEET_PRIOR_DAYS: Final = 5.0  # days with jobs that PRIOR_VARIANCE counts as, beside the fleet's
NEXT_JOBS: Final = 0.5  # days with jobs that are added to those that were seen; of 0, 0.5 and 1
HALF_LIFE_DAYS: Final = 60.0  # days, as for k
LEAST_SPREAD: Final = 0.1  # spread of the logarithm, at least: no two jobs are known to be alike
BLOCK: Final = 512  # topics at a time: 6 MB an array at 60 days
KEPT_BLOCKS: Final = 20  # 10,000 topics
_FINE: Final = 10.0 ** -np.arange(1.0, 4.01, 0.125)  # shares of the time: eight steps for a tenth of it
_PARTS: Final = -np.diff((*_FINE, 0.0))
_LOG_OVERLOADS: Final = -np.log(OVERLOADS)
_TO_FINE: Final = np.array([np.interp(-np.log(_FINE), _LOG_OVERLOADS, row) for row in np.eye(len(OVERLOADS))])  # OVERLOADS x fine ones
_LEAST_LOG: Final = -12.0  # logarithm of a rate, per second: as good as none
_HALVINGS: Final = 40
_STEPS: Final = np.linspace(-6.0, 6.0, 2401)  # standard deviations
_ABOVE: Final = np.array([1.0 - NormalDist().cdf(step) for step in _STEPS])


def find_sufficient_rates(memory: Memory, topics: Ints | None = None) -> Floats:
    """The rate per second of each topic that it is expected to exceed for SHARE of its time, and at which its past days lost at most
    MOST_LOST of their demand; NaN where no job was seen. Days of states from before rates of overload were kept do not count.
    `topics`: the rows to compute, by default all; the others have NaN."""
    rows = np.arange(len(memory.keys)) if topics is None else topics
    found = np.full(len(memory.keys), np.nan)
    if not rows.size or not memory.days:
        return found
    blocks = [rows[first : first + BLOCK] for first in range(0, len(rows), BLOCK)]
    kept: list[_Jobs] = []  # jobs of the first blocks; the others are looked at twice, as all of them would be 25 KB a topic
    seen = []
    for block in blocks:
        each = _Jobs(memory, block)
        kept += [each] if len(kept) < KEPT_BLOCKS else []
        seen.append((each.demand * each.days, each.demand, each.variance))
    load, demands, variance = (np.concatenate(values) for values in zip(*seen, strict=True))
    demand = demands.sum()
    days = load.sum() / demand if demand > 0 else 0.0
    own = (load * variance).sum() / load.sum() if load.sum() > 0 else 0.0
    fleet = (days * own + FLEET_PRIOR_DAYS * PRIOR_VARIANCE) / (days + FLEET_PRIOR_DAYS)
    for at, block in enumerate(blocks):
        found[block] = (kept[at] if at < KEPT_BLOCKS else _Jobs(memory, block)).find_sufficient_rates(fleet)
    return found


class _Jobs:
    """The past jobs of some topics. Each second counts, by the age of its day."""

    def __init__(self, memory: Memory, rows: Ints) -> None:
        overloaded, mean = memory.overloaded[rows], memory.mean[rows]
        age = np.arange(memory.days)[::-1]
        kept = ~np.isnan(overloaded).all(axis=2)
        silent = (mean == 0) & np.logical_or.accumulate(kept.any(axis=0))
        weights = np.where((kept | silent) & ~np.isnan(mean), 0.5 ** (age / HALF_LIFE_DAYS), 0.0)
        whole = weights.sum(axis=1)
        weights /= np.where(whole > 0, whole, 1.0)[:, None]
        self.demand = (weights * np.nan_to_num(mean)).sum(axis=1)
        self.logs = np.log(np.maximum(np.nan_to_num(overloaded), np.exp(_LEAST_LOG))) @ _TO_FINE
        self.parts = weights[:, :, None] * _PARTS
        in_jobs = np.where(np.exp(self.logs) > IN_JOBS * self.demand[:, None, None], self.parts, 0.0)
        by_day = in_jobs.sum(axis=2)
        self.time = by_day.sum(axis=1)  # share of the time in jobs
        some = np.where(self.time > 0, self.time, 1.0)
        self.middle = (in_jobs * self.logs).sum(axis=(1, 2)) / some  # mean of the logarithms of their rates
        self.variance = (in_jobs * (self.logs - self.middle[:, None, None]) ** 2).sum(axis=(1, 2)) / some
        self.days = np.where(self.time > 0, some**2 / np.maximum((by_day**2).sum(axis=1), 1e-18), 0.0)  # days of equally long jobs

    def find_sufficient_rates(self, fleet: float) -> Floats:
        """`fleet`: the variance of all topics' jobs."""
        days = np.maximum(self.days, 0.3)
        variance = (days * self.variance + PRIOR_DAYS * fleet) / (days + PRIOR_DAYS) * (1 + 1 / days)  # doubt of the middle, too
        spread = np.sqrt(np.maximum(variance, LEAST_SPREAD**2))
        time = self.time * (1 + NEXT_JOBS / days)
        share = np.divide(SHARE, time, out=np.ones_like(time), where=time > SHARE)
        foreseen = self.middle + spread * np.interp(share, _ABOVE[::-1], _STEPS[::-1])
        rate = np.exp(np.maximum(foreseen, self._find_log_rate(MOST_LOST * self.demand)))
        return np.where((self.time > 0) & (rate > IN_JOBS * self.demand), rate, np.nan)

    def _find_log_rate(self, allowed: Floats) -> Floats:
        """The logarithm of the rate at which the past days lost no more than `allowed`, per second of all their time."""
        rates = np.exp(self.logs)
        low, high = np.full(len(allowed), _LEAST_LOG), self.logs.max(axis=(1, 2))
        for _ in range(_HALVINGS):
            half = (low + high) / 2
            more = (self.parts * np.maximum(rates - np.exp(half)[:, None, None], 0.0)).sum(axis=(1, 2)) > allowed
            low, high = np.where(more, half, low), np.where(more, high, half)
        return np.asarray(high)
