"""The driver's part of a night, as one page: the remembered days → the snapshot. Plain numpy; no log and no Spark.

    rows of the states ─► remember ─► Memory ─┬─► judge the night before on the new day ─► outcomes, k, the rule of the fleet
                                              └─► decide: shape x k ─► rails ─► capacity ─► pins ─► snapshot, with its evidence

Everything is a function of the states up to the day, the parameters, and the snapshot in force. A night that is computed again gives the
same bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
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
from spark_jobs.method.decide import compute_floors, decide, find_largest
from spark_jobs.method.history import History
from spark_jobs.method.memory import Floats, Ints, Memory
from spark_jobs.method.outcomes import OUTCOMES, PUBLISHED, make_contenders, make_outcomes
from spark_jobs.method.peakiness import estimate_shape
from spark_jobs.method.pins import Pin, describe_pin_conflicts, list_pinned_rates
from spark_jobs.method.promise import LONG_NIGHTS, NightShare, predict_interval
from spark_jobs.method.quotas import Facts, Quotas, ToldDimension, keep_unseen_quotas
from spark_jobs.method.remember import COLUMNS, Remembering, drop_only_refused, find_keys, flag_only_refused
from spark_jobs.parameters import Parameters
from spark_jobs.state.loss_surface import BURSTS_S, Surfaces
from spark_jobs.state.manifest import Manifest
from spark_jobs.state.remembered import Key, Remembered, TopicPlaces

DIMENSIONS: Final = ("messages", "bytes")
HOURS: Final = 24
TODAY: Final = ("protocol", "topic", "dimension", "passed", "refused", "first_step", "total", "losses")  # columns


@dataclass(frozen=True)
class Night:
    """The inputs of the driver's part."""

    day: Day
    days: Sequence[Manifest]  # the remembered days, oldest first; the computed one is the last
    topics: Remembered  # their rows, without `losses`
    today: Remembered  # the rows of the computed day, with `losses`
    outcomes: Remembered  # rows of earlier days
    parameters: Parameters
    previous: Snapshot | None  # the live one
    computed_at: str
    code: str
    pins: Sequence[Pin] = ()
    left_out: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)  # day -> topics (in order of `keys`) excluded as an incident
    previous_sha256: str | None = None
    previous_is_later: bool = False  # whether it was learned later than the day: then it was not in force, and is not judged by it


@dataclass(frozen=True)
class NightResult:
    frame: Snapshot  # without its quotas
    quotas: Quotas
    fleet: dict[str, Any]  # part of the day's manifest
    outcomes: pa.Table  # rows for the day's state

    @cached_property
    def snapshot(self) -> Snapshot:
        return replace(self.frame, quotas=tuple(self.quotas))


def compute_night(night: Night) -> NightResult:
    """The quotas of the night after `night.day`, and the day's outcomes of those of the night before."""
    keys, refused_days = keys_and_refused_days(night.topics)
    told: dict[str, Facts] = {}
    fleet: dict[str, Any] = {}
    promised: dict[str, JSON] = {}
    tables: list[pa.Table] = []
    for dimension in DIMENSIONS:  # one after the other: the days of one are a gigabyte at 200,000 topics
        fleet[dimension], told[dimension], rows = compute_dimension(night, dimension, keys, refused_days)
        tables.append(rows)
        history = [each.fleet[dimension] for each in night.days[:-1] if dimension in each.fleet]
        promised[dimension] = predict_month([*history, fleet[dimension]], night.parameters.target)
    shares = missing.compute_gateway_shares(night.topics, night.days[-1].date, keys)
    quotas = Quotas(keys, told, night.pins, night.previous, night.day.date, night.parameters, shares)
    frame = Snapshot(
        computed_at=night.computed_at,
        code=night.code,
        inputs=tuple(dict(each) for each in night.days[-1].inputs),
        parameters=dict(night.parameters.as_dict()),
        date=night.day.date,
        night={**_describe_night(night, fleet, quotas.list_topics()), "promise_ppm": promised},
    )
    return NightResult(frame, quotas, fleet, pa.concat_tables(tables))


def compute_dimension(night: Night, dimension: str, keys: Sequence[Key], refused_days: Ints) -> tuple[dict[str, Any], Facts, pa.Table]:
    """One dimension of the night: its part of the day's manifest, the quotas with their evidence, and rows of OUTCOMES."""
    (today,) = night.today.read_tables(TODAY)
    surfaces = read_surfaces(drop_only_refused(today), dimension, keys)
    del today
    memory = remember_topics(night, dimension, keys)
    live = read_rates(night.previous, dimension, keys)
    then = read_rates(None, dimension, keys) if night.previous_is_later else live
    judged, rows = judge_night_before(night, dimension, memory, then, surfaces)
    history = [each.fleet[dimension] for each in night.days[:-1] if dimension in each.fleet]
    before = history[-1]["k"] if history else None
    k = scale.adjust_k([*map(_read_judged, history), _read_judged(judged)], night.parameters.target, before)
    evidence = [guard.Evidence(each.get("rules", {}), each.get("topics", 1.0)) for each in [*history, judged]]
    family = guard.choose_rule(evidence)
    past = History(chain(night.outcomes.read_tables(OUTCOMES.names), [rows]), dimension, keys, night.day.date)
    week_ago = past.rates_on(night.day.before(6).date)  # six days before the newest one is a week before the day to come
    pinned, elsewhere = find_fixed_rates(night, dimension, keys)
    decided = decide(
        memory, dimension, k, family, live[0], week_ago, night.parameters, pinned=pinned, elsewhere=elsewhere, live_bursts=live[1],
    )  # fmt: skip
    told = ToldDimension(
        memory, decided, past, k, family, week_ago, refused_days, sum_refused_hours(night.topics, dimension, night.day, keys)
    )
    fleet = {**judged, "k": k, "family": family, "evidence": round(guard.sum_evidence(evidence), 1)}
    return fleet, Facts(dimension, told), rows


def remember_topics(night: Night, dimension: str, keys: Sequence[Key]) -> Memory:
    """The memory of the topics. Days on which one was only refused teach nothing."""
    found = Remembering(
        {each.date: each.observed_seconds for each in night.days}, dimension, keys,
        scale=missing.compute_missing_factors(night.topics, night.days, dimension, keys), left_out=night.left_out,
    )  # fmt: skip
    for rows in night.topics.read_tables(COLUMNS):
        found.add(drop_only_refused(rows))
    return found.make_memory()


def judge_night_before(
    night: Night, dimension: str, memory: Memory, live: tuple[Floats, Floats], surfaces: Surfaces
) -> tuple[dict[str, Any], pa.Table]:
    """The new day, by its `surfaces`, against quotas made from the days before it: counts for the day's manifest, and rows of OUTCOMES."""
    earlier = memory.cut_before(memory.days - 1)
    need = memory.need[:, -1]
    if earlier.days:
        found, largest = estimate_shape(earlier, night.parameters.half_life_days), find_largest(earlier)
        base = np.where(earlier.count_active_days() < night.parameters.min_active_days, np.nan, found.base)
    else:
        largest, base = np.ones(len(memory.keys)), np.full(len(memory.keys), np.nan)
    floor = compute_floors(earlier, dimension, night.parameters)
    known = [each.fleet[dimension]["k"] for each in night.days[:-1] if dimension in each.fleet]
    k = known[-1] if known else scale.PRIOR
    judged = scale.judge(base, largest, surfaces, floor, night.parameters.burst_seconds)
    rates = scale.compute_rates(base, k, floor)
    rules = guard.judge_rules(earlier, rates, surfaces, floor) if earlier.days and not np.isnan(rates).all() else {}
    others = make_contenders(earlier, base, k, floor, largest, live, need) if earlier.days else {PUBLISHED: live}
    table = make_outcomes(night.day.date, dimension, memory, others, surfaces, night.days[-1].observed_seconds)
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


def read_surfaces(today: pa.Table, dimension: str, keys: Sequence[Key]) -> Surfaces:
    """The loss surfaces of the day, in the order of `keys`; a topic without demand loses nothing."""
    rows = today.filter(pc.equal(today["dimension"], dimension))
    lists = rows["losses"].combine_chunks()
    bounds = lists.offsets.to_numpy() // len(BURSTS_S)
    at = TopicPlaces(keys).find(rows)
    known = at >= 0

    def placed(values: NDArray[Any]) -> NDArray[Any]:
        found = np.zeros(len(keys), values.dtype)
        found[at[known]] = values[known]
        return found

    starts, counts = bounds[:-1].astype(np.int64), np.diff(bounds).astype(np.int64)
    first, total = rows["first_step"].to_numpy(), rows["total"].to_numpy().astype(np.float64)
    losses = lists.values.to_numpy(zero_copy_only=False)
    return Surfaces.of_arrays(placed(first), placed(counts), placed(starts), placed(total), losses)


def find_fixed_rates(night: Night, dimension: str, keys: Sequence[tuple[str, str]]) -> tuple[Floats, float]:
    """The pinned rate of each topic, NaN where there is none; and the sum of the rates of topics that no remembered day has seen: pinned
    ones, and those whose quotas are kept."""
    pins = list_pinned_rates(night.pins, night.day.date, dimension)
    own = np.array([pins.pop(key, np.nan) for key in keys], np.float64)
    known = {*keys, *((pin.protocol, pin.topic) for pin in night.pins if pin.holds_after(night.day.date))}
    others = [] if night.previous is None else keep_unseen_quotas(night.previous, known, night.parameters.remember_days)
    pairs = [each.messages if dimension == "messages" else each.bytes for each in others]
    return own, sum(pins.values()) + sum(pair[0] for pair in pairs if pair is not None)


def keys_and_refused_days(topics: Remembered) -> tuple[tuple[Key, ...], Ints]:
    """The topics, in order, and on how many days each was only refused."""
    known = pa.table({"protocol": pa.array([], pa.string()), "topic": pa.array([], pa.string())})
    days: Counter[Key] = Counter()
    for rows in topics.read_tables(("protocol", "topic", "dimension", "passed", "refused")):
        known = pa.concat_tables([known, rows.select(["protocol", "topic"])]).group_by(["protocol", "topic"]).aggregate([])
        own = rows.filter(pc.and_(pc.equal(rows["dimension"], "messages"), pa.array(flag_only_refused(rows))))
        days.update(zip(own["protocol"].to_pylist(), own["topic"].to_pylist(), strict=True))
    keys = find_keys(known)
    return keys, np.array([days[key] for key in keys], np.int64)


def sum_refused_hours(topics: Remembered, dimension: str, day: Day, keys: Sequence[Key]) -> Ints:
    """Messages or bytes refused of each topic in each hour of the day, over the seven days up to `day`."""
    found, known = np.zeros((len(keys), HOURS), np.int64), TopicPlaces(keys)
    for rows in topics.read_tables(("day", "protocol", "topic", "dimension", "refused_hours"), {day.before(ago).date for ago in range(7)}):
        own = rows.filter(pc.and_(pc.equal(rows["dimension"], dimension), pc.is_valid(rows["refused_hours"])))
        for at, hours in zip(known.find(own).tolist(), own["refused_hours"].to_pylist(), strict=True):
            for hour, count in enumerate(hours):
                found[at, min(hour, HOURS - 1)] += count  # a day of 25 hours has its last one twice
    return found


def read_rates(snapshot: Snapshot | None, dimension: str, keys: Sequence[tuple[str, str]]) -> tuple[Floats, Floats]:
    """Rates and bursts of a snapshot's quotas, NaN where a topic has none."""
    pairs = {}
    if snapshot is not None:
        pairs = {(each.protocol, each.topic): each.messages if dimension == "messages" else each.bytes for each in snapshot.quotas}
    found = np.full((len(keys), 2), np.nan)
    for at, key in enumerate(keys):
        pair = pairs.get(key)
        if pair is not None:
            found[at] = pair
    return found[:, 0], found[:, 1]


def _read_judged(facts: Mapping[str, Any]) -> scale.Judged | None:
    return scale.Judged(facts["refused_by_k"], facts["offered"], facts.get("topics", 1.0)) if facts.get("offered") else None


def predict_month(nights: Sequence[Mapping[str, Any]], target: float) -> JSON:
    """The range of the share that a month of such nights refuses, in a million; None where that is not known."""
    ks = [scale.PRIOR, *(each["k"] for each in nights)]
    seen = [(k, each) for k, each in zip(ks, nights, strict=False) if each.get("published_offered")][-LONG_NIGHTS:]
    known = [NightShare(each["realised_ppm"] / 1e6, each["published_offered"], each.get("topics", 1.0)) for _, each in seen]
    judged = [(k, day) for k, each in seen if (day := _read_judged(each)) is not None]
    found = predict_interval(known, target, scale.predict_change([day for _, day in judged], [k for k, _ in judged], ks[-1], target))
    return None if found is None else [float(f"{share * 1e6:.3g}") for share in found]


def describe_log(day: Day, days: Sequence[Manifest]) -> list[str]:
    """Sentences about the log of the newest day: gateways that ended, and lines of another day. Neither stops the night."""
    newest = days[-1]
    first = day.before(completeness.LOOK_BACK_DAYS).date
    before = days[-2] if len(days) > 1 and days[-2].date >= first else None
    found = completeness.describe_ended(newest.gateways, before)
    if newest.stray:
        found.append(f"{pluralise(newest.stray, 'line')} in the files of {newest.date} were of another day, and were left out")
    return found


def _describe_night(night: Night, fleet: Mapping[str, Any], lists: Mapping[str, JSON]) -> dict[str, JSON]:
    newest = night.days[-1]
    realised: dict[str, JSON] = {dimension: fleet[dimension]["realised_ppm"] for dimension in DIMENSIONS}
    excluded: list[JSON] = [str(each) for each in newest.exclusions]
    missing_gateways: list[JSON] = list(newest.missing_gateways)
    k: dict[str, JSON] = {dimension: float(f"{fleet[dimension]['k']:.6g}") for dimension in DIMENSIONS}
    said: list[JSON] = [*describe_pin_conflicts(night.pins, night.day.date, night.parameters), *describe_log(night.day, night.days)]
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
