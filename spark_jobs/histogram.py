"""The log histogram of a topic's day: how many seconds of each hour saw how much.

Bucket k holds the amounts from 1.02^k up to below 1.02^(k+1); an answer is the largest whole number of its bucket, so it is exact
below 50 and at most 2 % too high above, never too low. Bucket -1 holds the idle seconds: observed less active ones, for the log has
no rows of zero. Counting is exact whatever the order: the same log gives the same histogram on any partitioning, which sketches do
not (docs/design/quotas.md 3).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.schemas import QUOTA_KEY

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BUCKET_RATIO: Final = 1.02
IDLE: Final = -1


def bucket_of(amount: str) -> Column:
    """The bucket of a whole amount above 0."""
    return F.floor(F.log(F.col(amount).cast("double")) / F.lit(math.log(BUCKET_RATIO))).cast("int")


def value_of(bucket: str) -> Column:
    """The largest whole amount of a bucket."""
    upper = F.floor(F.pow(F.lit(BUCKET_RATIO), F.col(bucket) + 1)).cast("long")
    return F.when(F.col(bucket) == IDLE, F.lit(0).cast("long")).otherwise(upper)


def _hour_of(second: str) -> Column:
    return F.floor((F.col(second) % 86_400) / 3600).cast("int")


def histograms(usage: DataFrame, observed: DataFrame) -> DataFrame:
    """Usage and observed seconds → (protocol, topic, dimension, histogram); the array sorted by hour and bucket."""
    counted = usage.groupBy(*QUOTA_KEY, _hour_of("second").alias("hour"), bucket_of("amount").alias("bucket")).agg(
        F.count("*").alias("seconds")
    )
    watched = observed.groupBy(_hour_of("second").alias("hour")).agg(F.count("*").alias("observed"))
    active = counted.groupBy(*QUOTA_KEY, "hour").agg(F.sum("seconds").alias("active"))
    idle = (
        usage.select(*QUOTA_KEY).distinct().crossJoin(F.broadcast(watched)).join(active, [*QUOTA_KEY, "hour"], "left")
        .select(*QUOTA_KEY, "hour", F.lit(IDLE).alias("bucket"), (F.col("observed") - F.coalesce("active", F.lit(0))).alias("seconds"))
        .where("seconds > 0")
    )  # fmt: skip
    return (
        counted.unionAll(idle)
        .groupBy(*QUOTA_KEY)
        .agg(F.sort_array(F.collect_list(F.struct("hour", "bucket", "seconds"))).alias("histogram"))
    )
