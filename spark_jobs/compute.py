"""One night, whole: the log of a day → the day's state → the quotas. What `sluice quotas compute` and `spark-submit nightly.py` run.

    day.learn_day (Spark) ─► rows of the states, as Arrow ─► night.compute_night (numpy) ─► outcomes, manifest, snapshot

The state of the day is published before the snapshot is written; both are whole or not at all, and computing the day again replaces both.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from limiter.quota_snapshot import Snapshot
from spark_jobs.day import DayTask, Tolerance, learn_day
from spark_jobs.days import Day
from spark_jobs.log.counted import mark_counted
from spark_jobs.log.exclusions import Exclusion
from spark_jobs.method.outcomes import OUTCOMES
from spark_jobs.method.pins import Pin
from spark_jobs.method.quotas import Quotas
from spark_jobs.method.remember import COLUMNS
from spark_jobs.night import TODAY, Night, NightResult, compute_night, keys_and_refused_days
from spark_jobs.parameters import Parameters
from spark_jobs.schemas import OUTCOMES as OUTCOMES_SCHEMA
from spark_jobs.schemas import TOPICS as TOPICS_SCHEMA
from spark_jobs.state.manifest import Manifest
from spark_jobs.state.remembered import Remembered
from spark_jobs.state.state import DayStates
from spark_jobs.state.tables import read_arrow, write_arrow
from spark_jobs.state.topic_day import TOPICS
from spark_jobs.storage.location import Location
from spark_jobs.storage.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAMILIES = 9  # rows of outcomes of a topic and dimension (`outcomes.make_contenders`)
HISTORY_DAYS = 28  # days of outcomes that the evidence and the guard look back on


@dataclass(frozen=True)
class NightInputs:
    """The inputs of one night."""

    log: Location
    log_storage: Storage
    state: DayStates
    date: str
    parameters: Parameters
    previous: Snapshot | None
    computed_at: str
    code: str
    allow_partial: bool = False
    exclusions: Sequence[Exclusion] = ()
    pins: Sequence[Pin] = ()


def compute_quotas(spark: SparkSession | None, job: NightInputs) -> tuple[Snapshot, Quotas, Manifest]:
    """The snapshot of the night after `job.date` without its quotas, these, and the published manifest of that day.

    Raises InsufficientInputError and EarlyEndError; then nothing but the corrupt lines was written. `spark` and NeedsSparkError: as
    `day.learn_day`.
    """
    parameters, state = job.parameters, job.state
    day = Day(job.date, parameters.time_zone)
    tolerance = Tolerance(parameters.corrupt_ppm, parameters.corrupt_least, parameters.row_share_percent, job.allow_partial)
    task = DayTask(
        job.log, job.log_storage, day, state, job.code, parameters.fingerprint(), tolerance, job.exclusions, parameters.storm_share_ppm
    )  # fmt: skip
    before = state.read_manifest_or_none(day.date)
    manifest = learn_day(spark, task)
    result = compute_from_states(spark, job, manifest, before)
    write_arrow(spark, result.outcomes, "outcomes", OUTCOMES_SCHEMA, state.data(manifest))
    published = replace(manifest, fleet=result.fleet)
    state.publish(published)
    warning = mark_counted(job.log, day.date, published.start, _find_end_of_log(published))
    if warning:
        print(f"sluice: {warning}", file=sys.stderr)
    return result.frame, result.quotas, published


def compute_from_states(spark: SparkSession | None, job: NightInputs, manifest: Manifest, before: Manifest | None) -> NightResult:
    """The quotas that follow from the day of `manifest`, whose rows are written, and the states of earlier days. `before`: the day's
    earlier manifest, where it is computed again."""
    parameters, state = job.parameters, job.state
    day = Day(job.date, parameters.time_zone)
    earlier = [each for each in state.read_manifests_before(day.date, parameters.remember_days - 1) if each.zone == day.zone]
    days = [*earlier, manifest]
    today = _open_table(spark, state, "topics", [manifest], 0, () if state.root.is_local else TODAY)  # a query elsewhere takes seconds
    rows = _count_rows(today)
    if state.root.is_local and earlier:  # a silent day says nothing of the others
        rows = max(rows, _count_rows(_open_table(spark, state, "topics", earlier[-1:], 0)))
    topics = _open_table(spark, state, "topics", days, rows, [*COLUMNS, "refused_hours"])
    outcomes = _open_table(
        spark, state, "outcomes", [each for each in earlier[-HISTORY_DAYS:] if each.fleet], FAMILIES * rows, OUTCOMES.names
    )
    previous, later = job.previous, False
    if previous is not None and previous.date is not None and previous.date >= day.date:
        if before is not None and before.fleet:
            previous = _restore_rates_before(spark, job, previous, before)
        else:
            later = True  # the quotas in force on the day are not known
    incidents = find_excluded_topics(topics, days, job.exclusions) if job.exclusions else {}
    sha256 = job.previous.sha256() if job.previous is not None else None
    return compute_night(
        Night(
            day, days, topics, today, outcomes, parameters, previous, job.computed_at, job.code, job.pins, incidents, sha256, later,
        )
    )  # fmt: skip


def _find_end_of_log(day: Manifest) -> int:
    """The end of the day, or of its newest line where the day is not over."""
    if day.end <= time.time():
        return day.end
    return max((int(each["last"]) + 1 for each in day.gateways.values()), default=day.start)


def _open_table(
    spark: SparkSession | None, state: DayStates, table: str, days: Sequence[Manifest], rows_a_day: int, kept: Sequence[str] = ()
) -> Remembered:
    """A table of these days, without the loss surfaces where it is not asked for them: they are nine tenths of the bytes."""
    folders = {each.date: state.data(each) for each in days}
    schema, of_spark = (TOPICS, TOPICS_SCHEMA) if table == "topics" else (OUTCOMES, OUTCOMES_SCHEMA)

    def read(dates: Sequence[str], names: Sequence[str]) -> pa.Table:
        return read_arrow(spark, table, pa.schema([schema.field(name) for name in names]), of_spark, [folders[date] for date in dates])

    return Remembered(read, list(folders), rows_a_day, kept)


def _count_rows(today: Remembered) -> int:
    return sum(len(each) for each in today.read_tables(["dimension"]))


def _read_outcomes(spark: SparkSession | None, folders: list[Location]) -> pa.Table:
    return read_arrow(spark, "outcomes", OUTCOMES, OUTCOMES_SCHEMA, folders)


def _restore_rates_before(spark: SparkSession | None, job: NightInputs, previous: Snapshot, before: Manifest) -> Snapshot:
    """The snapshot that was live before this night was first computed: a night that took its own quotas for the live ones would move twice.

    `previous` with the rates and bursts of the day's own outcomes, `before` being the day's earlier manifest.
    """
    return restore_rates(previous, _read_outcomes(spark, [job.state.data(before)]))


def restore_rates(previous: Snapshot, outcomes: pa.Table) -> Snapshot:
    """`previous` with the quotas that were in force on the day that `outcomes` judged.

    Those of topics that no remembered day has seen (status `kept`) are judged by none and stay as they are.
    """
    live: dict[tuple[str, str], dict[str, tuple[float, int]]] = {}
    for row in outcomes.to_pylist():
        if row["family"] == "published":
            live.setdefault((row["protocol"], row["topic"]), {})[row["dimension"]] = (row["rate"], row["burst"])
    quotas = []
    for each in previous.quotas:
        if found := live.get((each.protocol, each.topic)):
            quotas.append(replace(each, messages=found.get("messages"), bytes=found.get("bytes")))
        elif each.evidence.get("status") == "kept":
            quotas.append(each)
    return replace(previous, quotas=tuple(quotas))


def find_excluded_topics(topics: Remembered, days: Sequence[Manifest], exclusions: Sequence[Exclusion]) -> dict[str, NDArray[np.bool_]]:
    """The topics that learn nothing from an earlier day, by day: an incident that its state was computed with is lost as a whole day of the
    topic. The newest day was read without the incident's seconds, and so were days whose manifest names it."""
    keys, _ = keys_and_refused_days(topics)
    found: dict[str, NDArray[np.bool_]] = {}
    for each in exclusions:
        fits = np.array([each.matches(topic) for _, topic in keys], np.bool_)
        for day in days[:-1]:
            if each.start < day.end and each.end > day.start and each.text not in day.exclusions:
                found[day.date] = found.get(day.date, np.zeros(len(keys), np.bool_)) | fits
    return found
