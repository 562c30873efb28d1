"""Weighted percentiles over remembered histograms: exact sums of whole numbers, so the answer does not depend on partitioning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.histogram import value_of
from spark_jobs.schemas import QUOTA_KEY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WHOLE = "decimal(38,0)"  # 28 days of 10^10 bytes a second at weight 2^20 are 3·10^22: beyond a long


def weighted_buckets(memory: DataFrame, weighting: str) -> DataFrame:
    """Remembered days → one row per topic, dimension, day, hour and bucket: `value` and `mass`.

    Weighting `load`: a bucket counts by what was offered in it, so the 99th percentile leaves 1 % of the load above it, and a topic busy one minute
    a day is judged by that minute. `seconds`: by seconds, idle ones too. Either way by the day's weight.
    """
    rows = memory.select(*QUOTA_KEY, "day", "weekday", "weight", "memory", "max", F.explode("histogram").alias("at"))
    rows = rows.select(*QUOTA_KEY, "day", "weekday", "memory", "weight", "max", "at.*").withColumn("value", F.least(value_of("bucket"), "max"))
    mass = F.col("weight").cast(WHOLE) * F.col("seconds").cast("decimal(10,0)")
    if weighting == "load":
        mass = mass.cast("decimal(20,0)") * F.col("value").cast("decimal(18,0)")
    return rows.withColumn("mass", mass.cast(WHOLE)).where("mass > 0")


def percentile(buckets: DataFrame, by: list[str], permille: int) -> DataFrame:
    """(by…, value): the smallest value with at least `permille` of the mass at or below it."""
    counted = buckets.groupBy(*by, "value").agg(F.sum("mass").cast("decimal(34,0)").alias("mass"))
    whole = Window.partitionBy(*by)
    below = whole.orderBy("value").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    ranked = counted.withColumn("below", F.sum("mass").over(below).cast("decimal(34,0)")).withColumn("all", F.sum("mass").over(whole).cast("decimal(34,0)"))
    reached = ranked.where(F.col("below") * F.lit(1000) >= F.col("all") * F.lit(permille))
    return reached.groupBy(*by).agg(F.min("value").alias("value"))
