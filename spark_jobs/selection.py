"""The quota rule of each topic: the one whose quotas would have cost least on the days after, and the simple one unless another is
cheaper.

Each night the candidates of the night before are replayed on the day that followed: a rolling backtest in which no rule is tested
on its own input. Cost of a day = refused + price · reserved, where reserved is the rate times the observed seconds: capacity that no
other topic could have used. A rule is compared with the simple one on the days both were replayed; only one with enough such days and
strictly less cost replaces it, so no rule is published that its own backtest shows to be worse than yesterday's maximum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.parameters import Parameters
from spark_jobs.quota_rules import SIMPLE_RULE
from spark_jobs.schemas import CANDIDATES, QUOTA_KEY, SCORES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def scores(replayed: DataFrame, quotas: DataFrame, date: str, observed_seconds: int) -> DataFrame:
    """`replay.replay` of candidates on `date`, and those candidates → `schemas.SCORES`."""
    rates = quotas.select(*QUOTA_KEY, "rule", "rate")
    scored = replayed.join(rates, [*QUOTA_KEY, "rule"]).withColumn("reserved", F.col("rate") * F.lit(observed_seconds))
    return scored.withColumn("day", F.lit(date)).select(*SCORES.fieldNames())


def choose(proposed: DataFrame, history: DataFrame, parameters: Parameters) -> DataFrame:
    """Candidates and remembered scores → the candidate each topic and dimension gets; `reason` says how it came to it."""
    cost = (
        F.col("refused").cast("decimal(28,0)") * 1_000_000 + F.col("reserved").cast("decimal(28,0)") * parameters.reserve_price_ppm
    ).cast("decimal(36,0)")
    costs = history.select(*QUOTA_KEY, "day", "rule", cost.alias("cost"), "refused", "offered")
    simple = costs.where(F.col("rule") == SIMPLE_RULE).select(
        *QUOTA_KEY, "day", F.col("cost").alias("simple_cost"), F.col("refused").alias("simple_refused")
    )
    summed = ("cost", "simple_cost", "refused", "simple_refused", "offered")
    compared = (
        costs.where(F.col("rule") != SIMPLE_RULE).join(simple, [*QUOTA_KEY, "day"]).groupBy(*QUOTA_KEY, "rule")
        .agg(F.count("*").alias("days"), *[F.sum(name).alias(name) for name in summed])
        .where((F.col("days") >= parameters.backtest_days) & (F.col("cost") < F.col("simple_cost")))
    )  # fmt: skip
    cheapest = Window.partitionBy(*QUOTA_KEY).orderBy("cost", "rule")
    best = compared.withColumn("place", F.row_number().over(cheapest)).where("place = 1").select(
        *QUOTA_KEY, F.col("rule").alias("best"), "days",
        *[F.format_number(F.col(name) * F.lit(100.0) / F.col("offered"), 2).alias(name) for name in ("refused", "simple_refused")],
    )  # fmt: skip
    earned = F.concat(
        F.lit("; backtest on "), F.col("days"), F.lit(" days: refused "), F.col("refused"), F.lit(" %, "),
        F.lit(SIMPLE_RULE), F.lit(" "), F.col("simple_refused"), F.lit(" % at a higher price"),
    )  # fmt: skip
    chosen = proposed.join(best, QUOTA_KEY, "left").where(F.col("rule") == F.coalesce("best", F.lit(SIMPLE_RULE)))
    return chosen.withColumn("reason", F.concat("reason", F.coalesce(earned, F.lit("")))).select(*CANDIDATES.fieldNames())
