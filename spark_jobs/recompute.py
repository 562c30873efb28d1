"""The nightly job as one page: the way of the data from the log to the snapshot. Each step is a file of its own.

    files_of ─► read_lines ─► parse ─┬─► corrupt lines aside, counted
                                     └─► once ─► per_second ─► with_ticks ─► daily_state ─┐
    states of earlier days ───────────────────────────────────────────────────────────────┴─► remembered ─► candidates ─► choose
    candidates of the night before ─► replay on this day ─► scores ─────────────────────────────────────────────────────────▲  │
    previous snapshot ─► guard rails ◄─────────────────────────────────────────────────────────────────────────────────────────┘
                              └─► with_burst ─► replay (would_refuse) ─► snapshot

Read: the log of one day, and the daily states of earlier days; never an earlier log. Written: the state of the day, its corrupt
lines, the snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date as calendar_date
from datetime import timedelta
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from limiter.quota_snapshot import Snapshot
from spark_jobs import access_log, days, sequence
from spark_jobs.burst import with_burst
from spark_jobs.candidates import candidates
from spark_jobs.daily_state import daily_state, remembered
from spark_jobs.errors import InsufficientInputError
from spark_jobs.evidence import evidence
from spark_jobs.guard_rails import bursts_on_rails, rates_on_rails
from spark_jobs.log.files import files_of
from spark_jobs.parameters import Parameters
from spark_jobs.publication import previous_rows, quotas_of, unseen
from spark_jobs.replay import replay
from spark_jobs.schemas import CANDIDATES, DAILY_STATE, PREVIOUS, SCORES
from spark_jobs.selection import choose, scores
from spark_jobs.state.manifest import Manifest
from spark_jobs.state.state import State, read_table, write_table
from spark_jobs.storage.location import Location
from spark_jobs.storage.storage import Storage
from spark_jobs.storms import calmed
from spark_jobs.usage import per_second, ticks, with_ticks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Night:
    """The inputs of one run."""

    log: Location
    storage: Storage  # of the log
    date: str
    state: State
    parameters: Parameters
    previous: Snapshot | None
    computed_at: str
    code: str


@dataclass(frozen=True, slots=True)
class Day:
    """The good lines of the day, and the counts of the others."""

    lines: DataFrame
    inputs: list[dict[str, object]]
    rows: int
    corrupt: int
    stray: int
    duplicates: int
    missing_lines: int


def recompute(spark: SparkSession, night: Night) -> tuple[Snapshot, Manifest]:
    """The snapshot of the night, and the manifest of the day whose state was written.

    Raises InsufficientInputError; then nothing but the corrupt lines was written.
    """
    parameters, state = night.parameters, night.state
    day = read_day(spark, night)
    observed = ticks(day.lines).cache()
    observed_seconds = observed.count()
    usage = with_ticks(calmed(per_second(day.lines), parameters.storm_percent), observed).cache()
    staged = state.stage(night.date)
    write_table(daily_state(usage, observed, night.date), "usage", DAILY_STATE, staged)

    earlier = state.before(night.date, parameters.remember_days - 1)
    states = read_table(spark, "usage", DAILY_STATE, [*map(state.data, earlier), staged])
    memory = remembered(states, night.date, len(earlier) + 1, parameters.half_life_days).cache()
    proposed = write_table(candidates(memory, parameters), "candidates", CANDIDATES, staged)

    comparable = [state.data(each) for each in earlier if each.fingerprint == parameters.fingerprint()]
    tried = read_table(spark, "candidates", CANDIDATES, comparable[-1:])
    write_table(scores(replay(usage, tried), tried, night.date, observed_seconds), "scores", SCORES, staged)
    history = read_table(spark, "scores", SCORES, [*comparable, staged])

    before = spark.createDataFrame(previous_rows(night.previous) if night.previous else [], PREVIOUS)
    chosen = rates_on_rails(choose(proposed, history, parameters), before, parameters)
    settled = bursts_on_rails(with_burst(chosen, memory, parameters), parameters).cache()

    facts = {(row.protocol, row.topic): row for row in evidence(memory, parameters).collect()}
    quotas = quotas_of(settled.collect(), facts, replay(usage, settled).collect())
    if night.previous is not None:
        quotas += unseen(night.previous, {(quota.protocol, quota.topic) for quota in quotas}, parameters.remember_days)
    manifest = Manifest(
        date=night.date,
        data=staged.name,
        code=night.code,
        fingerprint=parameters.fingerprint(),
        rows=day.rows,
        corrupt=day.corrupt,
        stray=day.stray,
        duplicates=day.duplicates,
        missing_lines=day.missing_lines,
        observed_seconds=observed_seconds,
        inputs=day.inputs,
    )
    state.publish(manifest)
    for table in (day.lines, observed, usage, memory, settled):
        table.unpersist()
    inputs = tuple(dict(entry) for entry in day.inputs)
    snapshot = Snapshot(night.computed_at, night.code, inputs, dict(parameters.as_dict()), tuple(quotas))  # type: ignore[arg-type]  # JSON values all
    return snapshot, manifest


def read_day(spark: SparkSession, night: Night) -> Day:
    """Read and count the lines, keep corrupt ones aside, refuse a log that is too damaged. Raises InsufficientInputError."""
    files = files_of(night.log, days.Day(night.date).partitions, night.storage)
    rows = access_log.parse(access_log.read_lines(spark, files), night.date).cache()
    counts: dict[str, tuple[int, int, int]] = {}
    tally = rows.groupBy("file").agg(
        F.count("*").alias("rows"),
        F.expr("count_if(fault != 'stray')").alias("corrupt"),
        F.expr("count_if(fault = 'stray')").alias("stray"),
    )
    for row in tally.collect():
        counts[night.log.relative(row.file)] = (row.rows, row.corrupt, row.stray)
    inputs: list[dict[str, object]] = [
        {
            **file.facts(),
            "rows": counts.get(file.name, (0, 0, 0))[0],
            "corrupt": counts.get(file.name, (0, 0, 0))[1],
        }
        for file in files
    ]
    total, corrupt, stray = (sum(count[at] for count in counts.values()) for at in range(3))
    bad = rows.where("fault is not null and fault != 'stray'").select("file", "line", "fault")
    aside = night.state.keep_corrupt(bad.coalesce(1) if corrupt else None, night.date)
    _refuse_damage(night, total, corrupt, stray, aside)

    good = sequence.once(rows.where("fault is null")).cache()
    gaps = sequence.gaps(good).agg(F.sum("duplicates").alias("duplicates"), F.sum("missing").alias("missing")).first()
    assert gaps is not None, "an aggregate without keys has one row"
    rows.unpersist()
    return Day(good, inputs, total, corrupt, stray, gaps.duplicates, gaps.missing)


def _refuse_damage(night: Night, total: int, corrupt: int, stray: int, aside: Location) -> None:
    parameters = night.parameters
    if corrupt > parameters.corrupt_least and corrupt * 1_000_000 > total * parameters.corrupt_ppm:
        raise InsufficientInputError(
            f"{corrupt} of {total} lines of {night.date} are corrupt, more than {parameters.corrupt_ppm} in a million; "
            f"they are in {aside.shown}"
        )
    if total - corrupt - stray == 0:
        raise InsufficientInputError(
            f"no good line of {night.date} under {night.log.shown} ({total} lines, {corrupt} corrupt, {stray} of another day)"
        )
    week_ago = night.state.manifest(f"{calendar_date.fromisoformat(night.date) - timedelta(days=7)}")
    if week_ago is not None and total * 100 < week_ago.rows * parameters.row_share_percent:
        raise InsufficientInputError(
            f"{total} lines on {night.date}, {week_ago.rows} a week before: less than {parameters.row_share_percent} %. "
            "Is a part of the log missing? If not: row_share_percent=0"
        )
