"""Evidence: the few numbers beside a quota by which an operator judges it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.parameters import Parameters
from spark_jobs.percentiles import percentile, weighted_buckets
from spark_jobs.schemas import KEY, QUOTA_KEY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def evidence(memory: DataFrame, parameters: Parameters) -> DataFrame:
    """Remembered days → (protocol, topic, days, p50, p99, max) in messages per second, over all hours; percentiles weighted as the formula's."""
    messages = memory.where("dimension = 'messages'")
    buckets = weighted_buckets(messages, parameters.weighting)
    rows = messages.groupBy(*QUOTA_KEY).agg(F.count_distinct("day").alias("days"), F.max("max").alias("max"))
    for name, permille in (("p50", 500), ("p99", 990)):
        rows = rows.join(percentile(buckets, QUOTA_KEY, permille).withColumnRenamed("value", name), QUOTA_KEY)
    return rows.select(*KEY, "days", "p50", "p99", "max")
