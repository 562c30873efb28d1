"""Yesterday's maximum: the busiest second of the newest day the topic was seen. Refuses little, reserves much, cannot be argued
with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.parameters import Parameters
from spark_jobs.schemas import QUOTA_KEY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def yesterday_max(memory: DataFrame, parameters: Parameters) -> DataFrame:
    newest = memory.groupBy(*QUOTA_KEY).agg(F.max_by("max", "day").alias("rate"), F.max("day").alias("day"))
    reason = F.concat(F.lit("busiest second of "), F.col("day"))
    return newest.select(*QUOTA_KEY, "rate", F.lit(None).cast("long").alias("burst"), reason.alias("reason"))
