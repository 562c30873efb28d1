"""Evidence: the few numbers beside a quota by which an operator judges it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.parameters import Parameters
from spark_jobs.percentiles import percentiles, weighted_buckets
from spark_jobs.schemas import KEY, QUOTA_KEY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def evidence(memory: DataFrame, parameters: Parameters) -> DataFrame:
    """Remembered days → (protocol, topic, days, p50, p99, max) in messages per second, over all hours; percentiles weighted as the
    formula's."""
    messages = memory.where("dimension = 'messages'")
    shares = percentiles(weighted_buckets(messages, parameters.weighting), QUOTA_KEY, {"p50": 500, "p99": 990})
    rows = messages.groupBy(*QUOTA_KEY).agg(F.count("*").alias("days"), F.max("max").alias("max"))
    return rows.join(shares, QUOTA_KEY).select(*KEY, "days", "p50", "p99", "max")
