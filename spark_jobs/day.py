"""The log of a day → the state of the day: the part of the job that may need Spark, as one page.

    list_log_files ─► read_rows ─► once on disk ─┬─► count: files, faults, duplicates, gateways' seconds ─► refused, or complete
                                                 └─► drop_duplicates ─► learn_topics: topic and second ─► table `topics`

Lines are parsed once and kept on the workers' disks as narrow rows (some 12 bytes each), because the two passes over them need a quarter
of the time that parsing takes: 5 M lines took 90 CPU-s so, 95 with a staged Parquet file, and parsing twice would take 116 (2 cores,
2026-11).
Spark parses lost rows again where a worker ends. A small day on this machine is read in this process, without Spark (`log.plain`). Nothing
is visible until the caller publishes the manifest (`state.DayStates.publish`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyspark import StorageLevel

from spark_jobs.errors import InsufficientInputError
from spark_jobs.log import completeness
from spark_jobs.log.files import list_log_files
from spark_jobs.log.lock import lock_log
from spark_jobs.log.parse import find_corrupt_lines
from spark_jobs.log.plain import read_plain_day
from spark_jobs.log.read import COMPACTED, read_lines, read_rows
from spark_jobs.log.sequence import BITS, MOST_PIECES, count, drop_duplicates
from spark_jobs.log.usage import FEW_BYTES, learn_topics
from spark_jobs.schemas import TOPICS
from spark_jobs.session import local_cores
from spark_jobs.sizing import estimate_lines_bytes
from spark_jobs.state.manifest import Manifest
from spark_jobs.state.state import write_table

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    from spark_jobs.days import Day
    from spark_jobs.log.exclusions import Exclusion
    from spark_jobs.log.files import StoredLogFile
    from spark_jobs.log.sequence import LineCounts
    from spark_jobs.state.state import DayStates
    from spark_jobs.storage.location import Location
    from spark_jobs.storage.storage import Storage

LINE_BYTES: Final = 300  # bytes of a line of the log, about


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How much damage a day may have; `parameters.Parameters` explains each."""

    corrupt_ppm: int = 1000
    corrupt_least: int = 10
    row_share_percent: int = 50
    allow_partial: bool = False


@dataclass(frozen=True, slots=True)
class DayTask:
    """The task: to learn one day of one log, into one state."""

    log: Location
    log_storage: Storage
    day: Day
    state: DayStates
    code: str  # version of this program
    fingerprint: str  # hash of the parameters
    tolerance: Tolerance = Tolerance()
    exclusions: Sequence[Exclusion] = ()
    storm_share_ppm: int = 10_000


def learn_day(spark: SparkSession | None, task: DayTask) -> Manifest:
    """Write the table `topics` of the day into a staged data folder and return the day's manifest, which is not published.

    `spark` None: a small day of a local log and state, without it. Raises NeedsSparkError where such a day is not plain;
    InsufficientInputError where the log is absent, too damaged, or lacks a gateway of the newest day, EarlyEndError where its last files
    may still be shipped; then nothing but the corrupt lines was written.
    """
    with lock_log(task.log):
        files = list_log_files(task.log, task.day.partitions, task.log_storage)
        return _learn_plain(task, files) if spark is None else _learn_by_spark(spark, task, files)


def _learn_plain(task: DayTask, files: Sequence[StoredLogFile]) -> Manifest:
    found = read_plain_day(files, task.day)

    def write(observed: NDArray[np.bool_], staged: Location) -> None:
        found.write(_make_table_folder(staged), task.day, observed, task.storm_share_ppm)

    return _check_and_write(task, files, found.counts, None, write)


def _learn_by_spark(spark: SparkSession, task: DayTask, files: Sequence[StoredLogFile]) -> Manifest:
    day = task.day
    rows = read_rows(spark, files, day).persist(StorageLevel.DISK_ONLY)

    def write(observed: NDArray[np.bool_], staged: Location) -> None:
        few = estimate_lines_bytes((file.name, file.size) for file in files) <= FEW_BYTES
        good = drop_duplicates(rows.where("fault is null"), counts.repeated)
        learn = partial(learn_topics, good, day, observed, task.exclusions, task.storm_share_ppm, few=few)
        if staged.is_local and local_cores(spark.sparkContext.master or "") is not None:  # the workers see this machine's files
            learn(folder=_make_table_folder(staged)).collect()
        else:
            write_table(learn(), "topics", TOPICS, staged)

    try:
        counts = count(rows, day, many=estimate_pieces(files) > MOST_PIECES)
        return _check_and_write(task, files, counts, _read_corrupt_lines(spark, task, files, counts), write)
    finally:
        rows.unpersist()


def estimate_pieces(files: Sequence[StoredLogFile]) -> int:
    """About how many pieces the day is counted in (`log.sequence`): one a file, and one for so many numbers of lines."""
    return len(files) + estimate_lines_bytes((file.name, file.size) for file in files) // (LINE_BYTES * BITS)


def _check_and_write(
    task: DayTask,
    files: Sequence[StoredLogFile],
    counts: LineCounts,
    corrupt: DataFrame | None,
    write: Callable[[NDArray[np.bool_], Location], None],
) -> Manifest:
    """Refuse the day, or have its table written. `corrupt`: lines to keep aside."""
    day, state = task.day, task.state
    manifest = _make_manifest(task, files, counts)
    aside = state.keep_corrupt(corrupt, day.date)
    _refuse_damage(task, manifest, aside)
    before = state.read_manifests_before(day.date, completeness.LOOK_BACK_DAYS)
    expected = completeness.find_missing(manifest.gateways, day, before[-1] if before else None)
    missing = set(expected)
    if task.tolerance.allow_partial:
        missing |= completeness.find_still_missing(manifest.gateways, before)
    else:
        completeness.refuse_early_end(manifest.gateways, day, before[-1] if before else None, time.time())
        completeness.refuse_missing(expected, day.date)
    staged = state.stage(day.date)
    write(completeness.flag_observed_seconds(counts.gateways, day), staged)
    return replace(manifest, data=staged.name, missing_gateways=sorted(missing))


def _make_table_folder(staged: Location) -> Path:
    """Make the folder of the table `topics`."""
    folder = staged.child("topics").local
    folder.mkdir(parents=True)
    return folder


def _make_manifest(task: DayTask, files: Sequence[StoredLogFile], counts: LineCounts) -> Manifest:
    """The day's manifest, without the data folder and the missing gateways."""
    day = task.day
    by_name = {task.log.relative(url): each for url, each in counts.files.items()}
    inputs: list[dict[str, Any]] = []
    for file in files:
        found = by_name.get(file.name)
        rows, corrupt = (found.rows, found.corrupt) if found is not None else (0, 0)
        inputs.append({**file.describe(), "rows": rows + file.corrupt, "corrupt": corrupt + file.corrupt})
    observed = completeness.flag_observed_seconds(counts.gateways, day)
    return Manifest(
        date=day.date,
        data="",
        code=task.code,
        fingerprint=task.fingerprint,
        rows=sum(each["rows"] for each in inputs) - sum(each.another_day for each in counts.files.values()),
        corrupt=sum(each["corrupt"] for each in inputs),
        stray=sum(each.stray for each in counts.files.values()),
        duplicates=counts.duplicates,
        missing_lines=counts.missing,
        observed_seconds=int(observed.sum()),
        zone=day.zone,
        start=day.start,
        end=day.end,
        observed_hours=completeness.count_by_hour(observed, day),
        gateways=completeness.describe_gateways(counts.gateways, day),
        exclusions=[each.text for each in task.exclusions],
        inputs=inputs,
    )


def _read_corrupt_lines(spark: SparkSession, task: DayTask, files: Sequence[StoredLogFile], counts: LineCounts) -> DataFrame | None:
    """The corrupt lines, by reading their files a second time; None: there are none."""
    damaged = {task.log.relative(url) for url, each in counts.files.items() if each.corrupt}
    again = [file for file in files if file.name in damaged and file.form != COMPACTED]
    return find_corrupt_lines(read_lines(spark, again), task.day).coalesce(1) if again else None


def _refuse_damage(task: DayTask, manifest: Manifest, aside: Location) -> None:
    limits, date = task.tolerance, task.day.date
    rows, corrupt, stray = manifest.rows, manifest.corrupt, manifest.stray
    if corrupt > limits.corrupt_least and corrupt * 1_000_000 > rows * limits.corrupt_ppm:
        raise InsufficientInputError(
            f"{corrupt} of {rows} lines of {date} are corrupt, more than {limits.corrupt_ppm} in a million; they are in {aside.shown}"
        )
    if rows - corrupt - stray == 0:
        raise InsufficientInputError(
            f"no good line of {date} under {task.log.shown} ({rows} lines, {corrupt} corrupt, {stray} of another day)"
        )
    week_ago = task.state.read_manifest(task.day.before(7).date)
    if week_ago is not None and rows * 100 < week_ago.rows * limits.row_share_percent:
        raise InsufficientInputError(
            f"{rows} lines on {date}, {week_ago.rows} a week before: less than {limits.row_share_percent} %. "
            "Is a part of the log missing? If not: row_share_percent=0"
        )
