"""The daily state: one row per topic and dimension with all that later nights need of a day. Small: some hundred numbers, however
many messages."""

from __future__ import annotations

from datetime import date as calendar_date
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.arrival_curve import curves
from spark_jobs.histogram import histograms
from spark_jobs.schemas import DAILY_STATE, QUOTA_KEY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def totals(usage: DataFrame) -> DataFrame:
    """Usage with ticks → one row per topic and dimension with sums and maxima; `span` is the number of ticks from the first to the
    last."""
    return usage.groupBy(*QUOTA_KEY).agg(
        F.count("*").alias("active_seconds"), F.sum("amount").alias("total"), F.max("amount").alias("max"),
        F.sum("refused").alias("refused"),
        F.max("largest").alias("largest"), F.max("peak_100ms").alias("peak_100ms"), (F.max("tick") - F.min("tick")).alias("span"),
    )  # fmt: skip


def daily_state(usage: DataFrame, observed: DataFrame, date: str) -> DataFrame:
    """Usage with ticks, and the observed seconds → the state of `date`, as `schemas.DAILY_STATE`."""
    joined = totals(usage).join(histograms(usage, observed), QUOTA_KEY).join(curves(usage), QUOTA_KEY)
    return joined.withColumn("day", F.lit(date)).select(*DAILY_STATE.fieldNames())


def remembered(states: DataFrame, date: str, memory: int, half_life_days: int) -> DataFrame:
    """The states of `memory` days as seen at the end of `date`, all days of a topic in one partition, so later steps need no shuffle.

    Adds `weight` (2^20 for this day, half of it every half-life; whole, so that sums do not depend on their order), `weekday` (0 =
    Monday), `days` on which the topic was active, and `memory`.
    """
    age = F.datediff(F.lit(calendar_date.fromisoformat(date)), F.to_date("day"))
    weight = F.greatest(F.lit(1), F.round(F.pow(F.lit(2.0), F.lit(20.0) - age / half_life_days)).cast("long"))
    days = F.count("*").over(Window.partitionBy(*QUOTA_KEY))
    rows = states.withColumn("weight", weight).withColumn("weekday", F.weekday(F.to_date("day"))).withColumn("memory", F.lit(memory))
    return rows.repartition(*QUOTA_KEY).withColumn("days", days)
