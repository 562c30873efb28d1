"""The score with and without the intraday raise: the same nights, replayed by the second through buckets whose rate changes at full hours.

The loss surfaces cannot tell this, because they know one rate a day. So each day is replayed, all topics and all factors of k side by side.
The raise is the gateway's: demand is what passed, and of what was refused in a second no more than passed in it; buckets keep their fill in
proportion; a day begins with full ones, as in the surfaces. What an hour's raise reserves counts in that hour.

    python -m support.quota_weeks.raised [--days 42] [--per-hour 600] [--seed 1] [--most 4]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from spark_jobs.method import guard
from spark_jobs.method.decide import decide
from spark_jobs.method.memory import Floats
from support.quota_weeks.rules import RULES
from support.quota_weeks.score import FACTORS, REFUSED, Curve, Series, geometric_mean, nights, rule_curve, series_of
from support.quota_weeks.weeks import Week

MESSAGES = "messages"


class Raise(NamedTuple):
    """Rates and bursts of one hour."""

    rates: Floats
    bursts: Floats


def raised(rates: Floats, bursts: Floats, hourly: Floats, means: Floats, most: float) -> Raise:
    """`limiter.rules.hourly_raise.raised` for many quotas at once."""
    highest = np.maximum(rates, np.minimum(hourly * means, most * rates))
    return Raise(highest, np.where(highest > rates, np.ceil(bursts * highest / np.maximum(rates, 1e-12)), bursts))


def counts_of(week: Week, keys: Sequence[tuple[str, str]]) -> Floats:
    """Messages by topic and observed second."""
    row = {topic: at for at, (_, topic) in enumerate(keys)}
    found = np.zeros((len(keys), week.observed_seconds))
    for each in week.topics:
        found[row[each.topic], each.tick] = each.passed
    return found


def replay(
    demand: Floats, rates: Floats, bursts: Floats, hourly: Floats, last: Floats, most: float, per_hour: int
) -> tuple[Floats, Floats, Floats]:
    """(refused, reserved, mean demand of the last hour) of one day; `demand` is topics x seconds, the others topics x ways."""
    refused, reserved = np.zeros_like(rates), np.zeros_like(rates)
    now = raised(rates, bursts, hourly, last, most)
    level = now.bursts.copy()
    for first in range(0, demand.shape[1], per_hour):
        before, now = now, raised(rates, bursts, hourly, last, most)
        level *= now.bursts / np.maximum(before.bursts, 1e-12)
        counted = np.zeros_like(rates)
        for second in range(first, first + per_hour):
            level = np.minimum(level + now.rates, now.bursts)
            asked = demand[:, second, None]
            passed = np.minimum(np.floor(level), asked)
            level -= passed
            refused += asked - passed
            counted += passed + np.minimum(asked - passed, passed)
        reserved += now.rates * per_hour
        last = counted / per_hour
    return refused, reserved, last


def curve(series: Series, weeks: Sequence[Week], per_hour: int, most: float, factors: Sequence[float] = FACTORS) -> Curve:
    """What the method refuses and reserves at each factor of a constant k, raised to `most` times at most (1: not at all)."""
    keys = series.memory.keys
    shape = (len(keys), len(factors))
    live = [np.full(len(keys), np.nan) for _ in factors]
    published = [[each] * 7 for each in live]
    last = np.zeros(shape)
    refused, reserved, offered = np.zeros(len(factors)), np.zeros(len(factors)), 0.0
    for at, (memory, found) in enumerate(nights(series)):
        rates, bursts, hourly = np.full(shape, np.nan), np.full(shape, np.nan), np.full(shape, np.nan)
        for way, factor in enumerate(factors):
            plan = decide(memory, MESSAGES, factor, guard.OWN, live[way], published[way][-7], series.parameters, found)
            live[way] = np.where(np.isnan(plan.rates), live[way], plan.rates)
            published[way].append(plan.rates)
            rates[:, way], bursts[:, way], hourly[:, way] = plan.rates, plan.bursts, plan.hourly
        limited = ~np.isnan(rates[:, 0])
        demand = counts_of(weeks[at + 1], keys)[limited]
        if not limited.any():
            continue
        lost, kept, means = replay(demand, rates[limited], bursts[limited], np.nan_to_num(hourly[limited]), last[limited], most, per_hour)
        last = np.zeros(shape)
        last[limited] = means
        refused += lost.sum(axis=0)
        reserved += kept.sum(axis=0)
        offered += float(demand.sum())
    return Curve(refused / max(offered, 1e-12), reserved)


def scores(weeks: Sequence[Week], per_hour: int, most: float, factors: Sequence[float] = FACTORS) -> tuple[float, float]:
    """(the nightly quotas alone, with the raise): refusals over the best simple rule's at the same reserve, geometric mean."""
    series = series_of(weeks)
    rules = {name: rule_curve(series, nights(series), rule, 1.0) for name, rule in RULES.items()}
    reserves = [
        (share, min(found))
        for share in REFUSED
        if (found := [each for rule in rules.values() if (each := rule.reserve_at(share)) is not None])
    ]
    found = []
    for bound in (1.0, most):
        of_method = curve(series, weeks, per_hour, bound, factors)
        found.append(geometric_mean(max(of_method.refused_at(reserve), 1e-7) / share for share, reserve in reserves))
    return found[0], found[1]


def main() -> None:
    from support.quota_weeks.weeks import kinds, weeks

    options = argparse.ArgumentParser(description="The score with and without the intraday raise.")
    options.add_argument("--days", type=int, default=42)
    options.add_argument("--per-hour", type=int, default=600)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--most", type=float, default=4.0)
    given = options.parse_args()
    print(f"{'series':24}{'nightly':>9}{'raised':>9}")
    found = []
    for name, topics in kinds(given.seed).items():
        found.append(scores(list(weeks(topics, given.seed, given.days, given.per_hour)), given.per_hour, given.most))
        print(f"{name:24}{found[-1][0]:9.3f}{found[-1][1]:9.3f}", flush=True)
    nightly, with_raise = zip(*found, strict=True)
    print(f"{'geometric mean':24}{geometric_mean(nightly):9.3f}{geometric_mean(with_raise):9.3f}")


if __name__ == "__main__":
    main()
