"""One night of one dimension, all topics at once: from the memory to the rates and bursts that are published."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spark_jobs.method.capacity import share_rest
from spark_jobs.method.families import QUOTA_RULES
from spark_jobs.method.guard import OWN, scale_to_reserve
from spark_jobs.method.memory import Floats, Memory, find_greatest, find_newest
from spark_jobs.method.peakiness import Shape, estimate_shape
from spark_jobs.method.rails import apply_rails
from spark_jobs.method.scale import compute_bursts, compute_rates
from spark_jobs.parameters import Parameters

MOST_KEPT_BURST = 2.0  # times the needed burst: a quota that stays keeps its burst while it is no larger (a guess)
LARGEST_DAYS = 28  # days back for the largest message, which a burst must hold


class Decided(NamedTuple):
    """Per topic; NaN: no quota."""

    shape: Shape
    wanted: Floats  # rates that the method would publish if nothing held them
    rates: Floats
    bursts: Floats
    learning: NDArray[np.bool_]  # too few active days: the rule of the file stands
    held: NDArray[np.int64]  # 1 held below the wanted rate, -1 held above
    hourly: Floats  # factor of the intraday raise: this times the last hour's mean
    largest: Floats
    lower: Floats  # bounds: a quota between them stays as it is
    upper: Floats
    kept: NDArray[np.bool_]  # whether it is between them
    cut: NDArray[np.bool_]  # the capacity or the ceiling leaves less than is wanted
    capacity: float = 0.0  # 0: none
    ceiling: float = 0.0  # the one that cuts where the rate is as high as that; 0: none
    fixed: float = 0.0  # part of the capacity that pins, and topics that are not seen any more, take


def compute_floors(memory: Memory, dimension: str, parameters: Parameters) -> Floats:
    """The least rate of each topic: some messages a minute, in bytes as many of the largest ones."""
    largest = find_largest(memory) if dimension == "bytes" else np.ones(len(memory.keys))
    return parameters.floor * largest


def find_largest(memory: Memory) -> Floats:
    return np.maximum(find_greatest(memory.largest[:, -LARGEST_DAYS:]), 1.0)


def decide(
    memory: Memory,
    dimension: str,
    k: float,
    family: str,
    live: Floats,
    week_ago: Floats,
    parameters: Parameters,
    shaped: Shape | None = None,
    pinned: Floats | None = None,
    elsewhere: float = 0.0,
    live_bursts: Floats | None = None,
) -> Decided:
    """`live`: the rates in force, `week_ago`: those of the same weekday before, NaN where there is none; `family`: the quota rule that the
    guard has chosen; `shaped`: the proposal, where it is known already. `pinned`, the rates that persons have set (NaN:
    none), and `elsewhere`, the rates of other topics, come off the capacity first. `live_bursts`: with `live`."""
    found = shaped or estimate_shape(memory, parameters.half_life_days)
    largest, floor = find_largest(memory), compute_floors(memory, dimension, parameters)
    learning = memory.count_active_days() < parameters.min_active_days
    wanted = compute_rates(np.where(learning, np.nan, found.base), k, floor)
    if family != OWN:
        wanted = np.maximum(scale_to_reserve(QUOTA_RULES[family](memory), wanted), floor)
    censored = np.nan_to_num(find_newest(memory.censored.astype(np.float64))) > 0
    railed = apply_rails(wanted, live, week_ago, censored, floor, parameters.ceiling(dimension), parameters)
    fixed = np.full(len(wanted), np.nan) if pinned is None else pinned
    rates = share_rest(railed.rates, np.nan_to_num(found.level), parameters.capacity(dimension), floor, fixed, elsewhere)
    bursts = compute_bursts(rates, largest, parameters.burst_seconds)
    kept = railed.kept & (rates == railed.rates)
    ceiling = parameters.ceiling(dimension)
    cut = (rates < railed.rates * (1 - 1e-9)) | ((rates >= ceiling) & (wanted > ceiling) if ceiling else False)
    if live_bursts is not None:
        stays = kept & (live_bursts >= bursts) & (live_bursts <= MOST_KEPT_BURST * bursts)
        bursts = np.where(stays, live_bursts, bursts)
    even = find_newest(memory.evenness)
    hourly = found.peakiness * k * np.where(np.isnan(even), 1.0, even)
    return Decided(
        found, wanted, rates, bursts, learning, railed.held, hourly, largest, railed.lower, railed.upper, kept, cut,
        parameters.capacity(dimension), ceiling, float(np.nansum(fixed)) + elsewhere,
    )  # fmt: skip
