"""The memory of the topics in one dimension (messages or bytes), as arrays (topics x days of the calendar)."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

KEPT_OF_A_SPARSE_DAY = 50  # messages; a day with fewer says nothing about the shape of the load


@dataclass(frozen=True)
class Memory:
    """Columns are the days of the calendar, oldest first and without a gap; row i is the topic `keys[i]`.

    NaN: nothing is known (no state of that day, the topic was excluded, or it had not been seen before). A topic that was seen before and
    sent nothing on a remembered day has 0.
    """

    keys: tuple[tuple[str, str], ...]  # protocol, topic
    weekdays: Ints  # one more than days: 0 Monday to 6 Sunday, the last is that of the day to come
    mean: Floats  # counted demand per observed second
    messages: Floats  # messages of the day
    need: Floats  # least sufficient rate per second (`loss_surface.find_need`); NaN without demand
    busiest: Floats  # the busiest second
    p99: Floats  # 99th percentile of the load, per second
    largest: Floats  # largest message, in units of the dimension
    evenness: Floats  # the day's mean / its fullest hour's mean
    overloaded: Floats  # topics x days x OVERLOADS: rates at which the day overloads a quota for that share of the time
    censored: NDArray[np.bool_]  # the day was limited so long that mean and need are lower bounds

    @property
    def days(self) -> int:
        return int(self.mean.shape[1])

    def cut_before(self, day: int) -> Memory:
        """The memory as it was before column `day`: nothing of that day or later, and topics not seen by then have no known day."""
        cut = {each.name: getattr(self, each.name)[:, :day] for each in fields(self) if each.name not in {"keys", "weekdays"}}
        return Memory(self.keys, self.weekdays[: day + 1], **cut)

    def select_topics(self, some: slice) -> Memory:
        """The memory of some topics; its arrays are views."""
        cut = {each.name: getattr(self, each.name)[some] for each in fields(self) if each.name != "weekdays"}
        return Memory(weekdays=self.weekdays, **cut)

    def count_active_days(self) -> Ints:
        """Days with demand, per topic."""
        return np.asarray((np.nan_to_num(self.mean) > 0).sum(axis=1), np.int64)


def find_newest(values: Floats) -> Floats:
    """The value of each topic's newest known day; NaN without one."""
    if not values.shape[1]:
        return np.full(len(values), np.nan)
    known = ~np.isnan(values)
    at = values.shape[1] - 1 - np.argmax(known[:, ::-1], axis=1)
    return np.asarray(values[np.arange(len(values)), at])


def mean_of(values: Floats) -> Floats:
    """The mean over the known days of each topic; NaN without one."""
    known = ~np.isnan(values)
    count = known.sum(axis=1)
    return np.where(count > 0, np.where(known, values, 0.0).sum(axis=1) / np.maximum(count, 1), np.nan)


def find_greatest(values: Floats) -> Floats:
    """The greatest of each topic's known days; 0 without one."""
    return np.asarray(np.where(np.isnan(values), 0.0, values).max(axis=1, initial=0.0))
