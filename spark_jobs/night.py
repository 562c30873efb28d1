"""The driver's part of a night, as one page: what is remembered of the days → the snapshot. Plain numpy; no log and no Spark.

    rows of the states ─► remember ─► Memory ─┬─► judge the night before on the new day ─► outcomes, k, the rule of the fleet
                                              └─► decide: shape x k ─► rails ─► capacity ─► pins ─► snapshot, with its evidence

Everything is a function of the states up to the day, the parameters, and the snapshot in force. A night that is computed again gives the
same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from common.figures import pluralise
from limiter.quota_snapshot import JSON, Snapshot
from spark_jobs.days import Day
from spark_jobs.log import completeness
from spark_jobs.method import guard, missing, scale
from spark_jobs.method.decide import decide, floors, largest_of
from spark_jobs.method.history import History
from spark_jobs.method.memory import Floats, Ints, Memory
from spark_jobs.method.outcomes import PUBLISHED, contenders, outcomes
from spark_jobs.method.peakiness import shape
from spark_jobs.method.pins import Pin, pinned_rates, remarks
from spark_jobs.method.promise import promise
from spark_jobs.method.quotas import Told, kept, quotas_of
from spark_jobs.method.remember import keys_of, only_refused, remember
from spark_jobs.parameters import Parameters
from spark_jobs.state.loss_surface import BURSTS_S, Surface, Surfaces
from spark_jobs.state.manifest import Manifest

DIMENSIONS: Final = ("messages", "bytes")
HOURS: Final = 24
NOTHING: Final = Surface(0, np.zeros((0, len(BURSTS_S)), np.float32), 0.0)


@dataclass(frozen=True)
class Night:
    """The inputs of the driver's part."""

    day: Day
    days: Sequence[Manifest]  # the remembered days, oldest first; the computed one is the last
    topics: pa.Table  # their rows, without `losses`
    today: pa.Table  # the rows of the computed day, with `losses`
    outcomes: pa.Table  # of earlier days
    parameters: Parameters
    previous: Snapshot | None  # what is live
    computed_at: str
    code: str
    pins: Sequence[Pin] = ()
    left_out: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)  # day -> topics (in order of `keys`) excluded as an incident
    previous_sha256: str | None = None
    previous_is_later: bool = False  # it was learned later than the day: it was not in force then, and is not judged by it


@dataclass(frozen=True)
class Result:
    snapshot: Snapshot
    fleet: dict[str, Any]  # for the day's manifest
    outcomes: pa.Table  # for the day's state


def compute_night(night: Night) -> Result:
    """The quotas of the night after `night.day`, and what the day said about those of the night before."""
    keys = keys_of(night.topics)
    shut = only_refused(night.topics)
    refused_days = days_by_topic(night.topics.filter(pa.array(shut)), keys)
    hours_refused = {dimension: refused_hours(night.topics, dimension, night.day.before(6).date) for dimension in DIMENSIONS}
    night = replace(
        night, topics=night.topics.filter(pa.array(~shut)), today=night.today.filter(pa.array(~only_refused(night.today)))
    )  # fmt: skip
    told: dict[str, Told] = {}
    fleet: dict[str, Any] = {}
    promised: dict[str, JSON] = {}
    tables: list[pa.Table] = []
    for dimension in DIMENSIONS:
        memory = remember(
            night.topics, {each.date: each.observed_seconds for each in night.days}, dimension, keys,
            scale=missing.factors(night.topics, night.days, dimension, keys), left_out=night.left_out,
        )  # fmt: skip
        live = in_force(night.previous, dimension, keys)
        then = in_force(None, dimension, keys) if night.previous_is_later else live
        judged, rows = judge_night_before(night, dimension, memory, then)
        tables.append(rows)
        history = [each.fleet[dimension] for each in night.days[:-1] if dimension in each.fleet]
        before = history[-1]["k"] if history else None
        k = scale.k_of_night([*map(_judged, history), _judged(judged)], night.parameters.target, before)
        evidence = [guard.Evidence(each.get("rules", {}), each.get("topics", 1.0)) for each in [*history, judged]]
        family = guard.choose(evidence)
        fleet[dimension] = {**judged, "k": k, "family": family, "evidence": round(guard.weight_of(evidence), 1)}
        promised[dimension] = _promised([*history, judged])
        past = History(pa.concat_tables([night.outcomes, rows]), dimension, keys, night.day.date)
        week_ago = past.rates_on(night.day.before(6).date)  # six days before the newest one is a week before the day to come
        pinned, elsewhere = fixed_rates(night, dimension, keys)
        decided = decide(
            memory, dimension, k, family, live[0], week_ago, night.parameters, pinned=pinned, elsewhere=elsewhere, live_bursts=live[1],
        )  # fmt: skip
        told[dimension] = Told(memory, decided, past, k, family, week_ago, refused_days, hours_refused[dimension])
    shares = missing.gateway_shares(night.topics, night.days[-1].date, keys)
    quotas, lists = quotas_of(keys, told, night.pins, night.previous, night.day.date, night.parameters, shares)
    snapshot = Snapshot(
        computed_at=night.computed_at,
        code=night.code,
        inputs=tuple(dict(each) for each in night.days[-1].inputs),
        parameters=dict(night.parameters.as_dict()),
        quotas=tuple(quotas),
        date=night.day.date,
        night={**_about(night, fleet, lists), "promise_ppm": promised},
    )
    return Result(snapshot, fleet, pa.concat_tables(tables))


def judge_night_before(night: Night, dimension: str, memory: Memory, live: tuple[Floats, Floats]) -> tuple[dict[str, Any], pa.Table]:
    """The new day against quotas made from the days before it: counts for the day's manifest, and rows of OUTCOMES."""
    earlier = memory.until(memory.days - 1)
    surfaces = surfaces_of(night.today, dimension, memory.keys)
    need = memory.need[:, -1]
    if earlier.days:
        found, largest = shape(earlier, night.parameters.half_life_days), largest_of(earlier)
        base = np.where(earlier.active_days() < night.parameters.min_active_days, np.nan, found.base)
    else:
        largest, base = np.ones(len(memory.keys)), np.full(len(memory.keys), np.nan)
    floor = floors(earlier, dimension, night.parameters)
    known = [each.fleet[dimension]["k"] for each in night.days[:-1] if dimension in each.fleet]
    k = known[-1] if known else scale.PRIOR
    judged = scale.judge(base, largest, surfaces, floor, night.parameters.burst_seconds)
    rates = scale.rates_at(base, k, floor)
    rules = guard.judge_rules(earlier, rates, surfaces, floor) if earlier.days and not np.isnan(rates).all() else {}
    others = contenders(earlier, base, k, floor, largest, live, need) if earlier.days else {PUBLISHED: live}
    table = outcomes(night.day.date, dimension, memory, others, surfaces, night.days[-1].observed_seconds)
    published = table.filter(pc.equal(table["family"], PUBLISHED))
    offered = pc.sum(published["offered"]).as_py() or 0
    realised = (pc.sum(published["refused"]).as_py() or 0.0) / offered * 1e6 if offered else None
    facts = {
        "refused_by_k": [round(each, 3) for each in judged.refused],
        "offered": judged.offered,
        "topics": round(judged.topics, 3),
        "rules": {name: round(each, 3) for name, each in rules.items()},
        "realised_ppm": None if realised is None else round(realised, 1),
        "published_offered": offered,
    }
    return facts, table


def surfaces_of(today: pa.Table, dimension: str, keys: Sequence[tuple[str, str]]) -> Surfaces:
    """The loss surfaces of the day, in the order of `keys`; a topic without demand loses nothing."""
    rows = today.filter(pc.equal(today["dimension"], dimension))
    lists = rows["losses"].combine_chunks()
    bounds, losses = lists.offsets.to_numpy(), lists.values.to_numpy(zero_copy_only=False)
    columns = [rows[name].to_pylist() for name in ("protocol", "topic", "first_step", "total")]
    found = {
        (protocol, topic): Surface(first, losses[start:end].reshape(-1, len(BURSTS_S)), float(total))
        for protocol, topic, first, total, (start, end) in zip(*columns, pairwise(bounds), strict=True)
    }
    return Surfaces([found.get(key, NOTHING) for key in keys])


def fixed_rates(night: Night, dimension: str, keys: Sequence[tuple[str, str]]) -> tuple[Floats, float]:
    """The pinned rate of each topic, NaN where there is none; and what is published for topics that no remembered day has seen: pinned
    ones, and those whose quotas are kept."""
    pins = pinned_rates(night.pins, night.day.date, dimension)
    own = np.array([pins.pop(key, np.nan) for key in keys], np.float64)
    known = {*keys, *((pin.protocol, pin.topic) for pin in night.pins if pin.holds_after(night.day.date))}
    others = [] if night.previous is None else kept(night.previous, known, night.parameters.remember_days)
    pairs = [each.messages if dimension == "messages" else each.bytes for each in others]
    return own, sum(pins.values()) + sum(pair[0] for pair in pairs if pair is not None)


def days_by_topic(rows: pa.Table, keys: Sequence[tuple[str, str]]) -> Ints:
    """How many days each topic has among `rows` of the daily states."""
    found = dict.fromkeys(keys, 0)
    own = rows.filter(pc.equal(rows["dimension"], "messages"))
    for key in zip(own["protocol"].to_pylist(), own["topic"].to_pylist(), strict=True):
        found[key] += 1
    return np.array([found[key] for key in keys], np.int64)


def refused_hours(rows: pa.Table, dimension: str, first: str) -> dict[tuple[str, str], list[int]]:
    """What was refused of each topic in each hour of the day, from the day `first` on; topics that nothing was refused of are left out."""
    found: dict[tuple[str, str], list[int]] = {}
    own = rows.filter(pc.and_(pc.equal(rows["dimension"], dimension), pc.greater_equal(rows["day"], first)))
    own = own.filter(pc.is_valid(own["refused_hours"]))
    for protocol, topic, hours in zip(*(own[name].to_pylist() for name in ("protocol", "topic", "refused_hours")), strict=True):
        sums = found.setdefault((protocol, topic), [0] * HOURS)
        for hour, count in enumerate(hours):
            sums[min(hour, HOURS - 1)] += count  # a day of 25 hours has its last one twice
    return found


def in_force(previous: Snapshot | None, dimension: str, keys: Sequence[tuple[str, str]]) -> tuple[Floats, Floats]:
    """Rates and bursts of the live snapshot, NaN where a topic has none."""
    pairs = {}
    if previous is not None:
        pairs = {(each.protocol, each.topic): each.messages if dimension == "messages" else each.bytes for each in previous.quotas}
    found = np.full((len(keys), 2), np.nan)
    for at, key in enumerate(keys):
        pair = pairs.get(key)
        if pair is not None:
            found[at] = pair
    return found[:, 0], found[:, 1]


def _judged(facts: Mapping[str, Any]) -> scale.Judged | None:
    return scale.Judged(facts["refused_by_k"], facts["offered"], facts.get("topics", 1.0)) if facts.get("offered") else None


def _promised(nights: Sequence[Mapping[str, Any]]) -> JSON:
    """The range of the share that a month of such nights refuses, in a million; None where that is not known."""
    known = [(each["realised_ppm"] / 1e6, each["published_offered"]) for each in nights if each.get("published_offered")]
    found = promise(known)
    return None if found is None else [float(f"{share * 1e6:.3g}") for share in found]


def remarks_on_log(day: Day, days: Sequence[Manifest]) -> list[str]:
    """Sentences about what the log of the newest day lacked or had too much of, and that stops no night."""
    newest = days[-1]
    first = day.before(completeness.LOOK_BACK_DAYS).date
    before = days[-2] if len(days) > 1 and days[-2].date >= first else None
    found = completeness.ended(newest.gateways, before)
    if newest.stray:
        found.append(f"{pluralise(newest.stray, 'line')} in the files of {newest.date} were of another day, and were left out")
    return found


def _about(night: Night, fleet: Mapping[str, Any], lists: Mapping[str, JSON]) -> dict[str, JSON]:
    newest = night.days[-1]
    realised: dict[str, JSON] = {dimension: fleet[dimension]["realised_ppm"] for dimension in DIMENSIONS}
    excluded: list[JSON] = [str(each) for each in newest.exclusions]
    missing_gateways: list[JSON] = list(newest.missing_gateways)
    k: dict[str, JSON] = {dimension: float(f"{fleet[dimension]['k']:.6g}") for dimension in DIMENSIONS}
    said: list[JSON] = [*remarks(night.pins, night.day.date, night.parameters), *remarks_on_log(night.day, night.days)]
    family: dict[str, JSON] = {dimension: fleet[dimension]["family"] for dimension in DIMENSIONS}
    evidence: dict[str, JSON] = {dimension: fleet[dimension]["evidence"] for dimension in DIMENSIONS}
    found: dict[str, JSON] = {
        "evidence": evidence,
        "time_zone": night.day.zone, "target_refused_ppm": night.parameters.target_refused_ppm, "realised_ppm": realised,
        "k": k, "family": family, "excluded": excluded, "missing_gateways": missing_gateways,
        "observed_seconds": newest.observed_seconds, "days": len(night.days), "remarks": said,
        "previous_sha256": night.previous_sha256,
    }  # fmt: skip
    return {**found, **lists}
