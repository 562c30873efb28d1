"""The formula of docs/design/quotas.md 1: the worst class of hours by its weighted percentile, a margin, and more of it while the history
is short.

Classes are the 24 hours of weekdays and those of weekends; from four weeks on the 168 hours of the week. A day weighs 2^(-age /
half-life). The confidence factor is 1 + 1 / days: a topic seen on one day gets twice the rate, one seen on 28 days 4 % more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.parameters import Parameters
from spark_jobs.percentiles import percentiles, weighted_buckets
from spark_jobs.schemas import QUOTA_KEY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DAYS_FOR_HOUR_OF_WEEK: Final = 28  # four of each hour of the week: fewer make no percentile


def formula(memory: DataFrame, parameters: Parameters) -> DataFrame:
    hour_of_week = F.col("weekday") * 24 + F.col("hour")
    weekend_or_not = F.when(F.col("weekday") >= 5, 24).otherwise(0) + F.col("hour")
    hour_class = F.when(F.col("memory") >= DAYS_FOR_HOUR_OF_WEEK, hour_of_week).otherwise(weekend_or_not)
    classes = weighted_buckets(memory, parameters.weighting).withColumn("hour_class", hour_class)
    each = percentiles(classes, [*QUOTA_KEY, "days", "hour_class"], {"value": parameters.percentile_permille})
    worst = each.groupBy(*QUOTA_KEY, "days").agg(F.max("value").alias("value"))
    # Whole numbers up to the division: the same on every machine. At least 1: by seconds, a sparse topic's percentile is 0.
    exact = F.col("value") * (100 + parameters.margin_percent) * (F.col("days") + 1) / (F.lit(100) * F.col("days"))
    rate = F.greatest(F.lit(1), F.ceil(exact)).cast("long")
    of = "the load" if parameters.weighting == "load" else "all seconds"
    percentile = f"p{parameters.percentile_permille / 10:g} of {of} in the worst class of hours"
    short = F.format_string("+%d %% for a history of %d days", F.ceil(F.lit(100) / F.col("days")), F.col("days"))
    reason = F.concat(F.lit(f"{percentile}, +{parameters.margin_percent} %, "), short)
    return worst.select(*QUOTA_KEY, rate.alias("rate"), F.lit(None).cast("long").alias("burst"), reason.alias("reason"))
