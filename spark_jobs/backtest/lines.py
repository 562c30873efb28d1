"""The good lines of a day, each once, with their senders; as the job that learns from a day reads them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from pyspark import StorageLevel

from spark_jobs.log import completeness
from spark_jobs.log.files import list_log_files
from spark_jobs.log.read import read_rows
from spark_jobs.log.sequence import count, drop_duplicates

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_jobs.days import Day
    from spark_jobs.storage.location import Location
    from spark_jobs.storage.storage import Storage


class DayLines(NamedTuple):
    """The lines of a day, how many of its seconds any gateway wrote in, and how many lines were corrupt."""

    lines: DataFrame
    observed_seconds: int
    corrupt: int


@contextmanager
def read_day_lines(spark: SparkSession, log: Location, storage: Storage, day: Day) -> Iterator[DayLines]:
    """The lines of `day`, on the workers' disks while the block lasts. Raises InsufficientInputError where the log has no files for it."""
    files = list_log_files(log, day.partitions, storage)
    rows = read_rows(spark, files, day, senders=True).persist(StorageLevel.DISK_ONLY)
    try:
        counts = count(rows, day)
        observed = completeness.flag_observed_seconds(counts.gateways, day)
        corrupt = sum(file.corrupt for file in counts.files.values()) + sum(file.corrupt for file in files)
        yield DayLines(drop_duplicates(rows.where("fault is null"), counts.repeated), int(observed.sum()), corrupt)
    finally:
        rows.unpersist()
