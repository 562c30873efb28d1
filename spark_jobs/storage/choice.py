"""The choice of the storage that serves a location."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_jobs.storage.hadoop import HadoopStorage
from spark_jobs.storage.local import LocalStorage
from spark_jobs.storage.location import Location
from spark_jobs.storage.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def storage_for(location: Location, spark: SparkSession | None = None) -> Storage:
    """The storage that serves `location`. Raises OSError where the session cannot reach it; ValueError: it needs a session and has none."""
    if location.is_local:
        return LocalStorage()
    if spark is None:
        raise ValueError(f"{location} is read through Spark's JVM: a session is needed first")
    return HadoopStorage(spark, location)
