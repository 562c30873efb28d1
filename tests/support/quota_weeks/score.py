"""The score of quotas: what they refuse at equal slack, over the best of ten simple rules in hindsight.

Each series of weeks is walked night by night through the job's own code: `make_topic_rows`, `remember`, `decide` with its rails. All quotas
of a night know earlier days only, and the loss surfaces of the next day judge them. The method is run with a constant k, for several ones,
which gives what it refuses at any reserve; each simple rule likewise with its factor. At the four reserves where the best rule
refuses 3, 1, 0.3 and 0.1 % the method's refusals are divided by the rule's; the score is the geometric mean. Below 1 the method is better.

    python -m support.quota_weeks.score [--days 42] [--per-hour 3600] [--seed 1 2 3]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from limiter.quota_snapshot import Quota, Snapshot
from spark_jobs.method import guard, scale
from spark_jobs.method.decide import compute_floors, decide, find_largest
from spark_jobs.method.memory import Floats, Memory
from spark_jobs.method.peakiness import Shape, estimate_shape
from spark_jobs.method.remember import find_keys
from spark_jobs.nights.rails import Rails, hold
from spark_jobs.parameters import Parameters
from spark_jobs.state.loss_surface import BURSTS_S, Surface, Surfaces
from spark_jobs.state.topic_day import TOPICS, make_topic_rows, read_surface
from support.quota_weeks.memories import remember
from support.quota_weeks.raised import MOST, Day, Quotas, nights_raised
from support.quota_weeks.rules import RULES
from support.quota_weeks.weeks import Week

REFUSED: Final = (0.03, 0.01, 0.003, 0.001)
FACTORS: Final = tuple(1.3**i for i in range(-9, 16))  # times k: 0.09 to 51
RULE_FACTORS: Final = tuple(1.2**i for i in range(-24, 22))  # 0.013 to 46
NOTHING: Final = Surface(0, np.zeros((0, len(BURSTS_S)), np.float32), 0.0)

WINDOW_NIGHTS: Final = 20
LATE: Final = 28
SETTLED: Final = 21  # nights until k has come from 2 to where it belongs: 7 judged ones, then 10 % a night

Shaper = Callable[[Memory], Shape]


@dataclass
class Series:
    """One dimension of a series, ready to be walked."""

    memory: Memory
    surfaces: list[Surfaces]  # by day, of what clients wanted
    seen: list[Surfaces]  # by day, of what the log says of that: all that the job knows
    observed: list[int]
    dimension: str
    parameters: Parameters = field(default_factory=Parameters)
    days: Sequence[Day] = ()  # what clients wanted by the second, where nights are replayed


def series_of(weeks: Iterable[Week], dimension: str = "messages", parameters: Parameters | None = None) -> Series:
    tables, wanted, observed, days = [], [], {}, []
    for week in weeks:
        days.append({
            each.topic: (each.tick.astype(np.uint32), (each.passed if dimension == "messages" else each.passed_bytes).astype(np.uint32))
            for each in week.wanted or week.topics
        })  # fmt: skip
        tables.append(make_topic_rows(week.topics, week.day, week.observed_seconds))
        known = all(mine is theirs for mine, theirs in zip(week.topics, week.wanted, strict=True)) if week.wanted else True
        wanted.append(tables[-1] if known else make_topic_rows(week.wanted, week.day, week.observed_seconds))
        observed[week.day.date] = week.observed_seconds
    same = all(mine is theirs for mine, theirs in zip(tables, wanted, strict=True))
    series = series_of_rows(tables, observed, dimension, parameters, None if same else wanted)
    series.days = days
    return series


def series_of_rows(
    tables: Sequence[pa.Table],
    observed: Mapping[str, int],
    dimension: str = "messages",
    parameters: Parameters | None = None,
    wanted: Sequence[pa.Table] | None = None,
) -> Series:
    """From the rows of `topic_day.TOPICS`, a table a day. `wanted`: the same of what clients wanted, which judges; `tables` unless told."""
    table = pa.concat_tables([*tables, TOPICS.empty_table()])
    keys = find_keys(table)
    memory = remember(table, observed, dimension, keys)
    seen = [surfaces_of_keys(each, dimension, keys) for each in tables]
    judge = seen if wanted is None else [surfaces_of_keys(each, dimension, keys) for each in wanted]
    return Series(memory, judge, seen, list(observed.values()), dimension, parameters or Parameters())


def surfaces_of_keys(table: pa.Table, dimension: str, keys: Sequence[tuple[str, str]]) -> Surfaces:
    of_topic = {(row["protocol"], row["topic"]): read_surface(row) for row in table.to_pylist() if row["dimension"] == dimension}
    return Surfaces([of_topic.get(key, NOTHING) for key in keys])


class Curve(NamedTuple):
    """What a way of setting quotas refuses (share) and reserves (messages) at each of its factors."""

    refused: Floats
    reserved: Floats

    @staticmethod
    def of(nights: Floats, first: int = 0) -> Curve:
        """From (refused, reserved, offered) by factor and night; the nights before `first` do not count."""
        sums = nights[:, first:].sum(axis=1)
        return Curve(sums[:, 0] / np.maximum(sums[:, 2], 1e-12), sums[:, 1])

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
    moving: float  # the same with the k that the job finds from night to night, from the fourth week on, when it has settled
    rules: list[str]  # the best ones
    realised: float  # what the method refuses as calibrated
    k: float  # of the last night
    late: float  # realised after LATE nights, when the target is to be met; NaN in shorter series


def nights(series: Series, shaper: Shaper = estimate_shape) -> list[tuple[Memory, Shape]]:
    """What is known before each day but the first."""
    earlier = [series.memory.cut_before(day) for day in range(1, series.memory.days)]
    return [(memory, shaper(memory)) for memory in earlier]


def calibrated(series: Series, known: Sequence[tuple[Memory, Shape]]) -> tuple[list[float], list[str]]:
    """k and the chosen rule of each night, as the job finds them: from the days before it only."""
    ks: list[float] = []
    families: list[str] = []
    judged: list[scale.Judged] = []
    rules: list[guard.Evidence] = []
    for at, (memory, found) in enumerate(known):
        ks.append(scale.adjust_k(judged, series.parameters.target, ks[-1] if ks else None))
        families.append(guard.choose_rule(rules))
        none = np.full(len(memory.keys), np.nan)
        plan = decide(memory, series.dimension, ks[-1], guard.OWN, none, none, series.parameters, found)
        floor = compute_floors(memory, series.dimension, series.parameters)
        judged.append(judged_night(series, known, at))
        rules.append(guard.Evidence(guard.judge_rules(memory, plan.wanted, series.seen[at + 1], floor), judged[-1].topics))
    return ks, families


def judged_night(series: Series, known: Sequence[tuple[Memory, Shape]], at: int) -> scale.Judged:
    """What the day after the night `at` says about k."""
    memory, found = known[at]
    base = np.where(memory.count_active_days() < series.parameters.min_active_days, np.nan, found.base)
    return scale.judge(base, find_largest(memory), series.seen[at + 1], compute_floors(memory, series.dimension, series.parameters))


def published(
    series: Series, known: Sequence[tuple[Memory, Shape]], ks: Sequence[float], families: Sequence[str], factor: float = 1.0
) -> Iterator[Quotas]:
    """The quotas of each night, with k times `factor`: within the rails of the job and then those of the publication."""
    live = np.full(len(series.memory.keys), np.nan)
    earlier = [live] * 7
    for at, (memory, shaped) in enumerate(known):
        plan = decide(memory, series.dimension, ks[at] * factor, families[at], live, earlier[-7], series.parameters, shaped)
        rates, bursts = held(series, live, earlier[-7], plan.rates, plan.bursts)
        live = np.where(np.isnan(rates), live, rates)
        earlier.append(rates)
        yield Quotas(rates, bursts, plan.hourly)


def walk(series: Series, known: Sequence[tuple[Memory, Shape]], ks: Sequence[float], families: Sequence[str], factor: float) -> Floats:
    """(refused, reserved, offered) of the published quotas by night, with k times `factor`."""
    found = np.zeros((len(known), 3))
    for at, (rates, bursts, _) in enumerate(published(series, known, ks, families, factor)):
        surfaces = series.surfaces[at + 1]
        found[at, 0] = np.nansum(surfaces.interpolate_loss(rates, bursts))
        found[at, 1] = np.nansum(rates) * series.observed[at + 1]
        found[at, 2] = surfaces.total[~np.isnan(rates)].sum()
    return found


def walk_raised(
    series: Series, known: Sequence[tuple[Memory, Shape]], ks: Sequence[float], families: Sequence[str], most: float = MOST
) -> Floats:
    """(refused, reserved, offered) by factor and night of the published quotas, raised within the day."""
    ways = zip(*(published(series, known, ks, families, factor) for factor in FACTORS), strict=True)
    quotas = [Quotas(*(np.stack(each, axis=1) for each in zip(*night, strict=True))) for night in ways]
    topics = [topic for _, topic in series.memory.keys]
    return nights_raised(series.days[1:], topics, series.observed[1:], quotas, max(series.observed) // 24, most)


def changes(series: Series, known: Sequence[tuple[Memory, Shape]], ks: Sequence[float], families: Sequence[str]) -> Floats:
    """(quotas that change, quotas that were in force) by night."""
    rates = np.stack([each.rates for each in published(series, known, ks, families)])
    before, now = rates[:-1], rates[1:]
    both = ~np.isnan(before) & ~np.isnan(now)
    return np.stack([(both & (np.abs(now - before) > 1e-5 * before)).sum(axis=1), both.sum(axis=1)], axis=1)


def held(series: Series, live: Floats, week_ago: Floats, rates: Floats, bursts: Floats) -> tuple[Floats, Floats]:
    """Rates and bursts as `nightly` publishes them over the `live` rates, by its own code: `hold`."""

    def snapshot(values: Floats, bursts: Floats) -> Snapshot:
        quotas = [
            Quota(*key, (float(rate), int(burst)), evidence={} if np.isnan(last_week) else {"week_ago": float(last_week)})
            for key, rate, burst, last_week in zip(series.memory.keys, values, bursts, week_ago, strict=True)
            if not np.isnan(rate)
        ]
        return Snapshot("2026-03-01T00:00:00Z", "score", quotas=tuple(quotas))

    own = np.maximum(np.ceil(np.nan_to_num(live) * series.parameters.burst_seconds), 3.0)
    publish, beyond = hold(snapshot(live, own), snapshot(rates, bursts), Rails())
    if not beyond:
        return rates, bursts
    place = {key: at for at, key in enumerate(series.memory.keys)}
    rates, bursts = rates.copy(), bursts.copy()
    for quota in publish.quotas:
        if quota.messages is not None:
            rates[place[quota.protocol, quota.topic]], bursts[place[quota.protocol, quota.topic]] = quota.messages
    return rates, bursts


def rule_nights(series: Series, known: Sequence[tuple[Memory, Shape]], rule: Callable[[Memory], Floats], burst_s: float) -> Floats:
    """(refused, reserved, offered) of a simple rule on the same topics and days: by factor and night."""
    found = np.zeros((len(RULE_FACTORS), len(known), 3))
    for at, (memory, _) in enumerate(known):
        scored = memory.count_active_days() >= series.parameters.min_active_days
        rates = np.where(scored, np.nan_to_num(rule(memory)), np.nan)
        surfaces = series.surfaces[at + 1]
        found[:, at, 2] = surfaces.total[scored].sum()
        scaled = rates * np.array(RULE_FACTORS)[:, None]
        bursts = np.fmax(np.ceil(scaled * burst_s), 3.0)
        if series.dimension == "bytes":
            bursts = np.fmax(bursts, np.nanmax(memory.largest, axis=1, initial=1.0))
        lost = times(surfaces, len(RULE_FACTORS)).interpolate_loss(scaled.reshape(-1), bursts.reshape(-1)).reshape(scaled.shape)
        found[:, at, 0] = np.nansum(lost, axis=1)
        found[:, at, 1] = np.nansum(scaled, axis=1) * series.observed[at + 1]
    return found


def rule_nights_raised(
    series: Series, known: Sequence[tuple[Memory, Shape]], rule: Callable[[Memory], Floats], burst_s: float, most: float = MOST
) -> Floats:
    """As `rule_nights`, raised within the day: by surges, and at full hours by the method's own factors."""
    method = published(series, known, [1.0] * len(known), [guard.OWN] * len(known))
    quotas = []
    for (memory, _), own in zip(known, method, strict=True):
        rates = np.where(memory.count_active_days() >= series.parameters.min_active_days, np.nan_to_num(rule(memory)), np.nan)
        scaled = rates[:, None] * np.array(RULE_FACTORS)
        quotas.append(Quotas(scaled, np.fmax(np.ceil(scaled * burst_s), 3.0), np.stack([own.hourly] * len(RULE_FACTORS), axis=1)))
    topics = [topic for _, topic in series.memory.keys]
    return nights_raised(series.days[1:], topics, series.observed[1:], quotas, max(series.observed) // 24, most)


def times(surfaces: Surfaces, count: int) -> Surfaces:
    """The same surfaces `count` times over, for `count` buckets of each topic at once; the losses are not copied."""
    found = Surfaces([])
    found.first, found.count, found.start = (np.tile(each, count) for each in (surfaces.first, surfaces.count, surfaces.start))
    found.total = np.tile(surfaces.total, count)
    found.losses = surfaces.losses
    return found


def rule_curve(series: Series, known: Sequence[tuple[Memory, Shape]], rule: Callable[[Memory], Floats], burst_s: float) -> Curve:
    """What a simple rule refuses and reserves at each of its factors."""
    return Curve.of(rule_nights(series, known, rule, burst_s))


def ratios(method: Curve, rules: Mapping[str, Curve]) -> dict[str, tuple[float, str]]:
    """At each share of REFUSED that some rule reaches: the method's refusals over it, at the least reserve; and the best rule's name."""
    found = {}
    for share in REFUSED:
        reserves = {name: reserve for name, each in rules.items() if (reserve := each.reserve_at(share)) is not None}
        if reserves:
            name = min(reserves, key=reserves.__getitem__)
            found[f"{share:.1%}"] = (method.refused_at(reserves[name]) / share, name)
    return found


class Walked(NamedTuple):
    """A series walked: (refused, reserved, offered) by factor and night; None: that was not asked for."""

    constant: Floats  # with a constant k
    moving: Floats | None  # with the k that the job finds
    raised: Floats | None  # as `constant`, raised within the day
    raised_moving: Floats | None
    rules: dict[str, Floats]
    raised_rules: dict[str, Floats] | None
    oracle: Floats  # the least rate for the very day
    own: Floats  # as published, by night
    changes: Floats
    ks: list[float]


def walked(
    series: Series,
    shaper: Shaper = estimate_shape,
    k: float | None = None,
    burst_s: float = 1.0,
    *,
    also_moving: bool = True,
    also_raised: bool = False,
    rules_too: bool = False,
    most: float = MOST,
) -> Walked:
    """`shaper` in place of the method's; `k`: a frozen one in place of the job's own; `burst_s`: the burst of the simple rules, in seconds
    of their rate; `also_moving`: half of the time is for the score with the job's own k; `also_raised`: with the raise within the day, and
    `rules_too`: the rules as well, all to at most `most` times the night's rate."""
    known = nights(series, shaper)
    own, families = calibrated(series, known)
    if k is not None:
        own = [k] * len(known)
    constant = np.stack([walk(series, known, [1.0] * len(known), [guard.OWN] * len(known), factor) for factor in FACTORS])
    moving = np.stack([walk(series, known, own, families, factor) for factor in FACTORS]) if also_moving else None
    raised = walk_raised(series, known, [1.0] * len(known), [guard.OWN] * len(known), most) if also_raised else None
    raised_moving = walk_raised(series, known, own, families, most) if also_raised and also_moving else None
    rules = {name: rule_nights(series, known, rule, burst_s) for name, rule in RULES.items()}
    also = {name: rule_nights_raised(series, known, rule, burst_s, most) for name, rule in RULES.items()} if rules_too else None
    oracle = rule_nights(series, known, lambda memory: series.memory.need[:, memory.days], series.parameters.burst_seconds)
    as_published = walk(series, known, own, families, 1.0)
    changed = changes(series, known, own, families)
    return Walked(constant, moving, raised, raised_moving, rules, also, oracle, as_published, changed, own)


def score(
    series: Series, shaper: Shaper = estimate_shape, k: float | None = None, burst_s: float = 1.0, *, also_moving: bool = True
) -> Scored:
    """As `walked`, over all days. The score with the job's own k is NaN where that was not walked."""
    return scored_of(walked(series, shaper, k, burst_s, also_moving=also_moving))


def scored_of(found: Walked) -> Scored:
    steady = ratios(Curve.of(found.constant), {name: Curve.of(each) for name, each in found.rules.items()})
    first = min(SETTLED, len(found.ks) // 2)
    moved = {}
    if found.moving is not None:
        moved = ratios(Curve.of(found.moving, first), {name: Curve.of(each, first) for name, each in found.rules.items()})
    refused, _, offered = found.own.sum(axis=0)
    late = float(np.divide(*found.own[LATE:, [0, 2]].sum(axis=0))) if len(found.own) > LATE else float("nan")
    values = [ratio for ratio, _ in steady.values()]
    names = [name for _, name in steady.values()]
    moved_values = [ratio for ratio, _ in moved.values()] or [float("nan")]
    return Scored(geometric_mean(values), values, geometric_mean(moved_values), names, refused / offered, found.ks[-1], late)


def geometric_mean(values: Iterable[float]) -> float:
    return float(np.exp(np.mean(np.log(np.maximum(list(values), 1e-4)))))


def interval(scores: Sequence[float], seed: int = 1) -> tuple[float, float]:
    """90 % of the geometric means of as many series, drawn from these with replacement (bootstrap)."""
    drawn = np.random.default_rng(seed).choice(np.log(np.maximum(scores, 1e-4)), (4000, len(scores))).mean(axis=1)
    low, high = np.exp(np.quantile(drawn, (0.05, 0.95)))
    return float(low), float(high)


class Windows(NamedTuple):
    """The score of each window of WINDOW_NIGHTS nights in which some simple rule reaches a share of REFUSED."""

    constant: list[float]
    own: list[float]  # with the k that the job finds
    raised: list[float]  # as `constant`, with the raise within the day
    raised_own: list[float]  # as `own`, with it
    both_raised: list[float]  # as `raised`, and the rules are raised as well
    oracle: list[float]
    changed: float  # share of the quotas that change on an ordinary night: the median

    def said(self) -> str:
        shown = (self.constant, self.own, self.raised, self.raised_own, self.both_raised, self.oracle)
        parts = [f"{geometric_mean(each):.3f} {max(each):.2f}" if each else "none" for each in shown]
        return f"{', '.join(parts)}, {self.changed:.0%}"


def windows(found: Walked, length: int = WINDOW_NIGHTS) -> Windows:
    """Sliding windows, each with the simple rules that were best in it: the mean over all days hides weeks that go wrong."""
    count = len(found.ks)
    ways = [(nights_, found.rules) for nights_ in (found.constant, found.moving, found.raised, found.raised_moving)]
    ways += [(found.raised, found.raised_rules or {}), (found.oracle, found.rules)]
    scores: list[list[float]] = [[] for _ in ways]
    for first in range(max(count - length, 0) + 1):
        part = slice(first, first + length)
        for at, (nights_, of_rules) in enumerate(ways):
            rules = {name: Curve.of(each[:, part]) for name, each in of_rules.items()}
            if nights_ is not None and (values := [ratio for ratio, _ in ratios(Curve.of(nights_[:, part]), rules).values()]):
                scores[at].append(geometric_mean(values))
    shares = found.changes[:, 0] / np.maximum(found.changes[:, 1], 1)
    constant, own, raised, raised_own, both_raised, oracle = scores
    return Windows(constant, own, raised, raised_own, both_raised, oracle, float(np.median(shares)) if len(shares) else 0.0)


def main() -> None:
    from support.quota_weeks.web_log import web_log
    from support.quota_weeks.weeks import kinds, weeks

    options = argparse.ArgumentParser(description="The score of the method on generated weeks and on a public web log.")
    options.add_argument("--days", type=int, default=42)
    options.add_argument("--per-hour", type=int, default=3600)
    options.add_argument("--seed", type=int, nargs="+", default=[1])
    options.add_argument("--burst", type=float, default=1.0, help="of the simple rules, in seconds of their rate")
    options.add_argument("--raise-max", type=float, default=MOST, help="quotas.hourly_raise_max of all that is raised within the day")
    given = options.parse_args()
    columns = f"{'series':24}{'score':>8}{'moving k':>10}   {'at 3, 1, 0.3, 0.1 %':38}{'realised':>8}{'late':>9}     k"
    ways = "with the job's k; both raised within the day; the first so, over rules that are, too; the oracle; changed on a night"
    print(f"{columns}  best simple rules; {WINDOW_NIGHTS}-night windows: mean, worst; {ways}")
    scored: list[tuple[Scored, Windows]] = []
    walk_one = partial(walked, burst_s=given.burst, also_raised=True, rules_too=True, most=given.raise_max)

    def line(name: str, found: Walked) -> tuple[Scored, Windows]:
        one = scored_of(found), windows(found)
        print(f"{_line(name, one[0])}; {one[1].said()}", flush=True)
        return one

    for seed in given.seed:
        own = []
        for name, topics in kinds(seed).items():
            gaps = 0.1 if name == "mixed" else 0.0
            own.append(line(name, walk_one(series_of(weeks(topics, seed, given.days, given.per_hour, gaps)))))
        print(_summary(f"seed {seed}", own), flush=True)
        scored += own
    for dimension in ("messages", "bytes"):
        scored.append(line(f"web log, {dimension}", walk_one(series_of(web_log(), dimension))))
    print(_summary("all", scored))


def _summary(name: str, scored: Sequence[tuple[Scored, Windows]]) -> str:
    parts = []
    series = [each for each, _ in scored]
    for what, scores in (("constant", [each.score for each in series]), ("moving", [each.moving for each in series])):
        low, high = interval(scores)
        above = sum(score > 1 for score in scores)
        parts.append(f"{what} k {geometric_mean(scores):.3f} (90 %: {low:.2f} to {high:.2f}), worst {max(scores):.2f}, {above} above 1")
    all_windows = [each for _, each in scored]
    for what, of_windows in (
        ("with constant k", [each.constant for each in all_windows]),
        ("with the job's k", [each.own for each in all_windows]),
        ("raised within the day", [each.raised for each in all_windows]),
        ("the same with the job's k", [each.raised_own for each in all_windows]),
        ("raised, over rules that are raised as well", [each.both_raised for each in all_windows]),
    ):
        every = [each for one in of_windows for each in one]
        worst = geometric_mean(max(one) for one in of_windows if one)
        parts.append(f"windows {what} {geometric_mean(every):.3f}, worst of each series {worst:.3f}, worst {max(every):.2f}")
    return f"{name}, {len(scored)} series: {'; '.join(parts)}"


def _line(name: str, found: Scored) -> str:
    shown = " ".join(f"{ratio:8.3f}" for ratio in found.ratios)
    rules = ", ".join(dict.fromkeys(found.rules))
    return f"{name:24}{found.score:8.3f}{found.moving:10.3f}   {shown:38}{found.realised:8.3%}{found.late:9.3%} {found.k:5.2f}  {rules}"


if __name__ == "__main__":
    main()
