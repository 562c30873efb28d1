"""Weighted percentiles over remembered histograms: exact sums of whole numbers, so the answer does not depend on partitioning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.histogram import value_of
from spark_jobs.schemas import QUOTA_KEY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WHOLE: Final = "decimal(34,0)"  # 28 days of 10^10 bytes a second at weight 2^20 are 3·10^22: beyond a long


def weighted_buckets(memory: DataFrame, weighting: str) -> DataFrame:
    """Remembered days → one row per topic, dimension, day, hour and bucket: `value` and `mass`.

    Weighting `load`: a bucket counts by what was offered in it, so the 99th percentile leaves 1 % of the load above it, and a topic
    busy one minute a day is judged by that minute. `seconds`: by seconds, idle ones too. Either way by the day's weight.
    """
    days = [*QUOTA_KEY, "day", "weekday", "memory", "days", "weight", "max"]
    rows = memory.select(*days, F.explode("histogram").alias("at")).select(*days, "at.*")
    rows = rows.withColumn("value", F.least(value_of("bucket"), "max"))
    seconds = (F.col("weight") * F.col("seconds")).cast("decimal(18,0)")
    mass = seconds * F.col("value").cast("decimal(16,0)") if weighting == "load" else seconds
    return rows.withColumn("mass", mass.cast(WHOLE)).where("mass > 0")


def percentiles(buckets: DataFrame, by: list[str], permille: Mapping[str, int]) -> DataFrame:
    """(by…, and a column per name): the smallest value with at least so many thousandths of the mass at or below it."""
    counted = buckets.groupBy(*by, "value").agg(F.sum("mass").cast(WHOLE).alias("mass"))
    all_of_it = Window.partitionBy(*by)
    up_to_here = all_of_it.orderBy("value").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    ranked = counted.select(*by, "value", F.sum("mass").over(up_to_here).alias("below"), F.sum("mass").over(all_of_it).alias("all"))
    thousandths = F.col("below").cast(WHOLE) * F.lit(1000)
    reached = [
        F.min(F.when(thousandths >= F.col("all").cast(WHOLE) * F.lit(part), F.col("value"))).alias(name) for name, part in permille.items()
    ]
    return ranked.groupBy(*by).agg(*reached)
