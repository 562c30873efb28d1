"""The score of quotas: what they refuse at equal slack, over the best of ten simple rules in hindsight.

Each series of weeks is walked night by night through the job's own code: `topic_day.rows`, `remember`, `decide` with its rails. All quotas
of a night know earlier days only, and the loss surfaces of the next day judge them. The method is run with a constant k, for several ones,
which gives what it refuses at any reserve; each simple rule likewise with its factor. At the four reserves where the best rule
refuses 3, 1, 0.3 and 0.1 % the method's refusals are divided by the rule's; the score is the geometric mean. Below 1 the method is better.

    python -m support.quota_weeks.score [--days 42] [--per-hour 3600] [--seed 1]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from spark_jobs.method import guard, scale
from spark_jobs.method.decide import decide, floors
from spark_jobs.method.memory import Floats, Memory
from spark_jobs.method.peakiness import Shape, shape
from spark_jobs.method.remember import keys_of, remember
from spark_jobs.parameters import Parameters
from spark_jobs.state.loss_surface import BURSTS_S, Surface, Surfaces
from spark_jobs.state.topic_day import TOPICS, rows, surface_of
from support.quota_weeks.rules import RULES
from support.quota_weeks.weeks import Week

REFUSED: Final = (0.03, 0.01, 0.003, 0.001)
FACTORS: Final = tuple(1.3**i for i in range(-9, 16))  # times k: 0.09 to 51
RULE_FACTORS: Final = tuple(1.2**i for i in range(-24, 22))  # 0.013 to 46
NOTHING: Final = Surface(0, np.zeros((0, len(BURSTS_S)), np.float32), 0.0)

Shaper = Callable[[Memory], Shape]


@dataclass
class Series:
    """One dimension of a series, ready to be walked."""

    memory: Memory
    surfaces: list[Surfaces]  # by day
    observed: list[int]
    dimension: str
    parameters: Parameters = field(default_factory=Parameters)


def series_of(weeks: Iterable[Week], dimension: str = "messages", parameters: Parameters | None = None) -> Series:
    tables, observed = [], {}
    for week in weeks:
        tables.append(rows(week.topics, week.day, week.observed_seconds))
        observed[week.day.date] = week.observed_seconds
    table = pa.concat_tables([*tables, TOPICS.empty_table()])
    keys = keys_of(table)
    memory = remember(table, observed, dimension, keys)
    surfaces = []
    for each in tables:
        of_topic = {(row["protocol"], row["topic"]): surface_of(row) for row in each.to_pylist() if row["dimension"] == dimension}
        surfaces.append(Surfaces([of_topic.get(key, NOTHING) for key in keys]))
    return Series(memory, surfaces, list(observed.values()), dimension, parameters or Parameters())


class Curve(NamedTuple):
    """What a way of setting quotas refuses (share) and reserves (messages) at each of its factors, and the same by night."""

    refused: Floats
    reserved: Floats

    def refused_at(self, reserve: float) -> float:
        order = np.argsort(self.reserved)
        with np.errstate(divide="ignore"):
            logs = np.log(np.maximum(self.refused[order], 1e-7))
        return float(np.exp(np.interp(np.log(reserve), np.log(self.reserved[order]), logs)))

    def reserve_at(self, refused: float) -> float | None:
        """The least reserve that refuses at most so much; None where the factors do not span it."""
        order = np.argsort(self.reserved)
        enough = np.flatnonzero(self.refused[order] <= refused)
        if not enough.size or not enough[0]:
            return None
        reserves, shares = np.log(self.reserved[order]), np.log(np.maximum(self.refused[order], 1e-7))
        at = int(enough[0])
        part = (shares[at - 1] - np.log(refused)) / max(shares[at - 1] - shares[at], 1e-12)
        return float(np.exp(reserves[at - 1] + part * (reserves[at] - reserves[at - 1])))


class Scored(NamedTuple):
    score: float  # geometric mean of the ratios, with a constant k
    ratios: list[float]  # at 3, 1, 0.3, 0.1 %
    moving: float  # the same with the k that the job finds from night to night: its noise costs, most of all while it is on its way
    rules: list[str]  # the best ones
    realised: float  # what the method refuses as calibrated
    k: float  # of the last night


def nights(series: Series, shaper: Shaper = shape) -> list[tuple[Memory, Shape]]:
    """What is known before each day but the first."""
    earlier = [series.memory.until(day) for day in range(1, series.memory.days)]
    return [(memory, shaper(memory)) for memory in earlier]


def calibrated(series: Series, known: Sequence[tuple[Memory, Shape]]) -> tuple[list[float], list[str]]:
    """k and the chosen rule of each night, as the job finds them: from the days before it only."""
    ks: list[float] = []
    families: list[str] = []
    judged: list[scale.Judged] = []
    rules: list[Mapping[str, float]] = []
    for at, (memory, found) in enumerate(known):
        ks.append(scale.k_of_night(judged, series.parameters.target, ks[-1] if ks else None))
        families.append(guard.choose(rules))
        none = np.full(len(memory.keys), np.nan)
        plan = decide(memory, series.dimension, ks[-1], guard.OWN, none, none, series.parameters, found)
        base = np.where(plan.learning, np.nan, found.base)
        floor = floors(memory, series.dimension, series.parameters)
        judged.append(scale.judge(base, plan.largest, series.surfaces[at + 1], floor))
        rules.append(guard.judge_rules(memory, plan.wanted, series.surfaces[at + 1], floor))
    return ks, families


def walk(
    series: Series, known: Sequence[tuple[Memory, Shape]], ks: Sequence[float], families: Sequence[str], factor: float
) -> tuple[float, float, float]:
    """(refused, reserved, offered) of the published quotas, rails and all, with k times `factor`."""
    live = np.full(len(series.memory.keys), np.nan)
    published = [live] * 7
    refused = reserved = offered = 0.0
    for at, (memory, found) in enumerate(known):
        plan = decide(memory, series.dimension, ks[at] * factor, families[at], live, published[-7], series.parameters, found)
        live = np.where(np.isnan(plan.rates), live, plan.rates)
        published.append(plan.rates)
        surfaces = series.surfaces[at + 1]
        refused += float(np.nansum(surfaces.lost(plan.rates, plan.bursts)))
        reserved += float(np.nansum(plan.rates)) * series.observed[at + 1]
        offered += float(surfaces.total[~np.isnan(plan.rates)].sum())
    return refused, reserved, offered


def rule_curve(series: Series, known: Sequence[tuple[Memory, Shape]], rule: Callable[[Memory], Floats], burst_s: float) -> Curve:
    """A simple rule on the same topics and days, for each of its factors."""
    refused, reserved = np.zeros(len(RULE_FACTORS)), np.zeros(len(RULE_FACTORS))
    offered = 0.0
    for at, (memory, _) in enumerate(known):
        scored = memory.active_days() >= series.parameters.min_active_days
        rates = np.where(scored, np.nan_to_num(rule(memory)), np.nan)
        surfaces = series.surfaces[at + 1]
        offered += float(surfaces.total[scored].sum())
        for i, factor in enumerate(RULE_FACTORS):
            scaled = rates * factor
            bursts = np.fmax(np.ceil(scaled * burst_s), 3.0)
            if series.dimension == "bytes":
                bursts = np.fmax(bursts, np.nanmax(memory.largest, axis=1, initial=1.0))
            refused[i] += float(np.nansum(surfaces.lost(scaled, bursts)))
            reserved[i] += float(np.nansum(scaled)) * series.observed[at + 1]
    return Curve(refused / max(offered, 1e-12), reserved)


def score(series: Series, shaper: Shaper = shape, k: float | None = None, burst_s: float = 1.0) -> Scored:
    """`shaper` in place of the method's; `k`: a frozen one in place of the job's own; `burst_s`: the burst of the simple rules, in seconds
    of their rate."""
    known = nights(series, shaper)
    own, families = calibrated(series, known)
    if k is not None:
        own = [k] * len(known)
    curve, _ = method_curve(series, known, [1.0] * len(known), [guard.OWN] * len(known))
    moving, as_published = method_curve(series, known, own, families)
    curves = {name: rule_curve(series, known, rule, burst_s) for name, rule in RULES.items()}
    ratios, moved, best = [], [], []
    for share in REFUSED:
        reserves = {name: reserve for name, each in curves.items() if (reserve := each.reserve_at(share)) is not None}
        if not reserves:
            continue
        name = min(reserves, key=reserves.__getitem__)
        best.append(name)
        ratios.append(curve.refused_at(reserves[name]) / share)
        moved.append(moving.refused_at(reserves[name]) / share)
    return Scored(geometric_mean(ratios), ratios, geometric_mean(moved), best, as_published, own[-1])


def geometric_mean(values: Iterable[float]) -> float:
    return float(np.exp(np.mean(np.log(list(values)))))


def method_curve(
    series: Series, known: Sequence[tuple[Memory, Shape]], ks: Sequence[float], families: Sequence[str]
) -> tuple[Curve, float]:
    """What the method refuses and reserves with `ks` times each factor; and what it refuses with `ks` as they are (share)."""
    walks = np.array([walk(series, known, ks, families, factor) for factor in (1.0, *FACTORS)])
    offered = walks[0, 2]
    return Curve(walks[1:, 0] / offered, walks[1:, 1]), float(walks[0, 0] / offered)


def main() -> None:
    from support.quota_weeks.web_log import web_log
    from support.quota_weeks.weeks import kinds, weeks

    options = argparse.ArgumentParser(description="The score of the method on generated weeks and on a public web log.")
    options.add_argument("--days", type=int, default=42)
    options.add_argument("--per-hour", type=int, default=3600)
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    columns = f"{'series':24}{'score':>8}{'moving k':>10}   {'at 3, 1, 0.3, 0.1 %':38}{'realised':>8}     k"
    print(f"{columns}  best simple rules")
    scores = []
    for name, topics in kinds(given.seed).items():
        gaps = 0.1 if name == "mixed" else 0.0
        found = score(series_of(weeks(topics, given.seed, given.days, given.per_hour, gaps)))
        scores.append(found.score)
        print(_line(name, found))
    for dimension in ("messages", "bytes"):
        print(_line(f"web log, {dimension}", score(series_of(web_log(), dimension))))
    print(f"geometric mean of the generated ones {geometric_mean(scores):.3f}, worst {max(scores):.3f}")


def _line(name: str, found: Scored) -> str:
    ratios = " ".join(f"{ratio:8.3f}" for ratio in found.ratios)
    rules = ", ".join(dict.fromkeys(found.rules))
    return f"{name:24}{found.score:8.3f}{found.moving:10.3f}   {ratios:38}{found.realised:8.3%} {found.k:5.2f}  {rules}"


if __name__ == "__main__":
    main()
