"""Guard rails: a quota moves only so far in one night, stays between floor and ceiling, and does not twitch.

In this order: the step from the previous quota (up to twice, down to 80 %: rise fast, fall slowly), floor and ceiling (they win),
hysteresis (a change under 5 % is not made). Topics without a previous quota have no step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.parameters import Parameters
from spark_jobs.schemas import DIMENSIONS, QUOTA_KEY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def _by_dimension(values: dict[str, int | None]) -> Column:
    column = F.lit(None).cast("long")
    for dimension, value in values.items():
        column = F.when(F.col("dimension") == dimension, F.lit(value).cast("long")).otherwise(column)
    return column


def _steady(new: str, old: str, parameters: Parameters) -> Column:
    return F.abs(F.col(new) - F.col(old)) * 100 < F.col(old) * parameters.hysteresis_percent


def rates_on_rails(proposed: DataFrame, previous: DataFrame, parameters: Parameters) -> DataFrame:
    """Chosen candidates and `schemas.PREVIOUS` → the same rows with `rate` on its rails, `reason` saying which rail held it, and
    the previous quota.

    `burst` becomes null where the rate moved: it belongs to another rate.
    """
    rows = proposed.join(previous, QUOTA_KEY, "left").withColumn("wanted", F.col("rate"))
    low = _by_dimension({name: parameters.floor(name) for name in DIMENSIONS})
    high = _by_dimension({name: parameters.ceiling(name) or None for name in DIMENSIONS})
    up = F.floor(F.col("previous_rate") * parameters.step_up_percent / F.lit(100))
    down = F.ceil(F.col("previous_rate") * parameters.step_down_percent / F.lit(100))
    rows = rows.withColumn("stepped", F.greatest(F.least("wanted", up), down).cast("long"))  # null-safe: greatest and least skip nulls
    rows = rows.withColumn("bounded", F.least(F.greatest("stepped", low), high))
    allowed = F.col("previous_rate").between(low, F.coalesce(high, F.col("previous_rate")))
    rows = rows.withColumn("kept", F.coalesce(allowed & _steady("bounded", "previous_rate", parameters), F.lit(False)))
    rows = rows.withColumn("rate", F.when(F.col("kept"), F.col("previous_rate")).otherwise(F.col("bounded")))
    held = (
        F.when(
            F.col("kept") & (F.col("bounded") != F.col("previous_rate")), f"; kept: the change is under {parameters.hysteresis_percent} %"
        )
        .when(F.col("kept"), "")
        .when(F.col("bounded") > F.col("stepped"), "; raised to the floor")
        .when(F.col("bounded") < F.col("stepped"), "; cut to the ceiling")
        .when(
            F.col("stepped") < F.col("wanted"),
            F.concat(F.lit("; step up from "), "previous_rate", F.lit(f" limited to {parameters.step_up_percent} %")),
        )
        .when(
            F.col("stepped") > F.col("wanted"),
            F.concat(F.lit("; step down from "), "previous_rate", F.lit(f" limited to {parameters.step_down_percent} %")),
        )
        .otherwise("")
    )
    burst = F.when(F.col("rate") == F.col("wanted"), F.col("burst"))
    rows = rows.withColumn("burst", burst.cast("long")).withColumn("reason", F.concat("reason", held))
    return rows.drop("wanted", "stepped", "bounded", "kept")


def bursts_on_rails(rows: DataFrame, parameters: Parameters) -> DataFrame:
    """Rows of `rates_on_rails` with their bursts → a burst that would change under 5 % at an unchanged rate stays; the previous
    quota goes."""
    steady = (
        (F.col("rate") == F.col("previous_rate"))
        & _steady("burst", "previous_burst", parameters)
        & (F.col("previous_burst") >= F.col("rate"))
    )
    kept = F.when(F.coalesce(steady, F.lit(False)), F.col("previous_burst")).otherwise(F.col("burst"))
    return rows.withColumn("burst", kept).drop("previous_rate", "previous_burst")
