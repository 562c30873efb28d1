"""The burst that goes with a rate: what the remembered days would have needed, within bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.arrival_curve import RATE_RATIO
from spark_jobs.parameters import Parameters
from spark_jobs.schemas import QUOTA_KEY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# b(rate) from a day's `curve`: the line between two points of the grid, the last value above it, and below it one unit per unit of rate and tick.
# greatest(…) because a bucket holds at least one second of its rate: the limiter fills it second by second in this arithmetic.
_BELOW = f"""curve[0].burst + (pow({RATE_RATIO}D, curve[0].step) - rate) * span"""
_BETWEEN = f"""transform(filter(zip_with(slice(curve, 1, size(curve) - 1), slice(curve, 2, size(curve) - 1), (low, high) -> struct(low, high)),
                 x -> pow({RATE_RATIO}D, x.low.step) <= rate and rate < pow({RATE_RATIO}D, x.high.step)),
          x -> x.low.burst + (x.high.burst - x.low.burst) * (rate - pow({RATE_RATIO}D, x.low.step))
               / (pow({RATE_RATIO}D, x.high.step) - pow({RATE_RATIO}D, x.low.step)))"""
_LAST = "curve[size(curve) - 1].burst"


def day_bursts(rates: DataFrame, memory: DataFrame) -> DataFrame:
    """(…, rate) → one row per remembered day: `needed`, a bucket size that would have refused nothing that day, sub-second bursts included.

    The curve is of whole seconds; arrivals within them can need up to one more second of rate. For messages the log has the peak m of any tenth of a
    second: cutting the first and the last second of an interval to fractions f and g leaves at most m (10 f + 2) and m (10 g + 2) messages in them,
    so no more than 24 m - 3 r is needed beyond max(b, r), and nothing where m <= r / 8. For bytes there is no peak: one second of rate.
    """
    days = memory.select(*QUOTA_KEY, "day", "curve", "span", "peak_100ms").join(rates.select(*QUOTA_KEY, "rate"), QUOTA_KEY)
    inside = F.expr(f"try_element_at({_BETWEEN}, 1)")
    whole = F.when(F.expr(f"rate < pow({RATE_RATIO}D, curve[0].step)"), F.expr(_BELOW)).otherwise(F.coalesce(inside, F.expr(_LAST)))
    within = F.expr("case when peak_100ms is null then rate else least(rate, greatest(0, 24 * peak_100ms - 3 * rate)) end")
    needed = F.greatest(F.ceil(F.round(whole, 6)), F.col("rate")) + within
    return days.select(*QUOTA_KEY, "day", needed.cast("long").alias("needed"))


def with_burst(rates: DataFrame, memory: DataFrame, parameters: Parameters) -> DataFrame:
    """Fills `burst` where it is null: a high quantile over the remembered days (not the maximum: one freak day would stay for weeks), at most
    `burst_seconds` of the rate or the largest message, at least one second of the rate."""
    ranked = day_bursts(rates, memory).groupBy(*QUOTA_KEY).agg(F.sort_array(F.collect_list("needed")).alias("needed"))
    index = F.ceil(F.size("needed") * F.lit(parameters.burst_permille) / F.lit(1000)).cast("int")
    quantile = ranked.select(*QUOTA_KEY, F.element_at("needed", index).alias("needed"))
    largest = memory.groupBy(*QUOTA_KEY).agg(F.max("largest").alias("largest"))
    bound = F.greatest(F.col("rate") * parameters.burst_seconds, F.col("largest"))
    known = rates.join(quantile, QUOTA_KEY, "left").join(largest, QUOTA_KEY, "left")
    burst = F.greatest(F.least(F.coalesce("burst", "needed"), bound), F.col("rate"))
    return known.withColumn("burst", burst.cast("long")).drop("needed", "largest")
