"""Storms: demand that was refused counts only up to a share of what the topic got through.

Demand is passed + refused, or a throttled topic could never grow. But clients send a refused message again, and a retry storm or a runaway
batch is refused a hundred times over: learned as demand it would make the next night's quota welcome it. So in no second do refusals count
for more than `storm_percent` of the busiest second that passed that day. A topic that is really too small for its quota still doubles
from night to night (at 100 %); a flood cannot do more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.schemas import QUOTA_KEY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def calmed(usage: DataFrame, storm_percent: int) -> DataFrame:
    """`usage.per_second`'s rows with `amount`, `refused` and `peak_100ms` cut to what counts; rows of which nothing is left are gone."""
    busiest = F.max(F.expr("amount - refused")).over(Window.partitionBy(*QUOTA_KEY))
    counted = f"least(refused, cast(ceil(busiest * {storm_percent} / 100) as bigint))"
    cut = usage.withColumn("busiest", busiest).withColumn("counted", F.expr(counted))
    cut = cut.withColumn("amount", F.expr("amount - refused + counted")).withColumn("refused", F.col("counted"))
    cut = cut.withColumn("peak_100ms", F.expr("if(peak_100ms is null, null, least(peak_100ms, amount))")).where("amount > 0")
    return cut.drop("busiest", "counted")
