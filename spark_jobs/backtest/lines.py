"""The good lines of a day, each once, with who sent them; as the job that learns from a day reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from spark_jobs import access_log, sequence
from spark_jobs.log.files import files_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_jobs.days import Day
    from spark_jobs.storage.location import Location
    from spark_jobs.storage.storage import Storage


class DayLines(NamedTuple):
    """The lines of a day, and how many of its seconds any gateway wrote in."""

    lines: DataFrame
    observed_seconds: int


def lines_of(spark: SparkSession, log: Location, storage: Storage, day: Day) -> DayLines:
    """The lines of `day`. Raises InsufficientInputError where the log has no files for it."""
    files = files_of(log, day.partitions, storage)
    rows = access_log.parse(access_log.read_lines(spark, files), day.date)
    good = sequence.once(rows.where("fault is null")).persist()
    return DayLines(good, good.select("ts").distinct().count())
