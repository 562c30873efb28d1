"""Nights replayed by the second with the intraday raise: at full hours and by surges, as in a gateway that has both switched on.

The loss surfaces cannot tell this, because they know one rate a day. Topics, nights and factors of k go side by side.
Demand is what the gateway counts: what passed, and of what was refused in a second no more than passed in it. Buckets keep their fill in
proportion; a day begins with full ones and unraised. What a raise reserves counts while it lasts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limiter.rules import surges
from spark_jobs.method.memory import Floats

Day = Mapping[str, tuple[NDArray[np.integer[Any]], NDArray[np.integer[Any]]]]  # by topic: in which seconds, how much
MOST: Final = 4.0  # quotas.hourly_raise_max
CELLS: Final = 20_000_000  # topics x seconds replayed side by side: 160 MB


class Quotas(NamedTuple):
    """Of one night, topics x factors; NaN: none."""

    rates: Floats
    bursts: Floats
    hourly: Floats


class Raise(NamedTuple):
    """Rates and bursts that hold now."""

    rates: Floats
    bursts: Floats


def raised(rates: Floats, bursts: Floats, hourly: Floats, means: Floats, most: float, asked: Floats | float = 0.0) -> Raise:
    """`limiter.rules.hourly_raise.raised` for many quotas at once."""
    highest = np.maximum(rates, np.minimum(np.maximum(hourly * means, asked), most * rates))
    return Raise(highest, np.where(highest > rates, np.ceil(bursts * highest / np.maximum(rates, 1e-12)), bursts))


def held_after(before: Floats, peak: Floats) -> Floats:
    """`limiter.rules.surges.held_after` for many quotas at once."""
    wanted = surges.MARGIN * peak
    return np.where((wanted < before / surges.STEP) | (wanted > before * surges.STEP), wanted, before)


def replay(demand: Floats, lengths: NDArray[np.int64], quotas: Quotas, per_hour: int, most: float = MOST) -> tuple[Floats, Floats]:
    """(refused, reserved) of one day; `demand` is rows x seconds, of which a row has so many in `lengths`, the quotas rows x factors."""
    rates, bursts, hourly = quotas
    refused, reserved, hour, means, window, peak, asked = (np.zeros_like(rates) for _ in range(7))
    now = Raise(rates, bursts)
    level = bursts.copy()
    for second in range(demand.shape[1]):
        wanted = demand[:, second, None]
        np.minimum(level + now.rates, now.bursts, out=level)
        passed = np.minimum(np.floor(level), wanted)
        level -= passed
        lost = wanted - passed
        refused += lost
        reserved += np.where(second < lengths[:, None], now.rates, 0.0)
        window += passed + np.minimum(lost, passed)
        looks, closes = (second + 1) % surges.LOOK_S == 0, (second + 1) % per_hour == 0
        if looks or closes:
            hour += window
            if closes:
                means, hour = hour / per_hour, np.zeros_like(hour)
            peak = np.maximum(window / surges.LOOK_S, surges.DECAY * peak)
            asked = held_after(asked, peak)
            window = np.zeros_like(window)
            before, now = now, raised(rates, bursts, hourly, means, most, asked)
            level *= now.bursts / before.bursts
    return refused, reserved


def nights_raised(
    days: Sequence[Day], topics: Sequence[str], observed: Sequence[int], published: Sequence[Quotas], per_hour: int, most: float = MOST
) -> Floats:
    """(refused, reserved, offered) by factor and night: `days` and their observed seconds are those of each night's quotas."""
    found = np.zeros((published[0].rates.shape[1], len(published), 3))
    rows = [(night, topic) for night, quotas in enumerate(published) for topic in np.flatnonzero(~np.isnan(quotas.rates[:, 0])).tolist()]
    side_by_side = max(1, CELLS // max(observed))
    for first in range(0, len(rows), side_by_side):
        part = rows[first : first + side_by_side]
        lengths = np.array([observed[night] for night, _ in part])
        demand = np.zeros((len(part), lengths.max()))
        for at, (night, topic) in enumerate(part):
            if topics[topic] in days[night]:
                tick, counts = days[night][topics[topic]]
                demand[at, tick] = counts
        quotas = Quotas(*(np.stack([getattr(published[night], name)[topic] for night, topic in part]) for name in Quotas._fields))
        refused, reserved = replay(demand, lengths, quotas._replace(hourly=np.nan_to_num(quotas.hourly)), per_hour, most)
        for at, (night, _) in enumerate(part):
            found[:, night] += np.stack([refused[at], reserved[at], np.full(len(refused[at]), demand[at].sum())], axis=1)
    return found
