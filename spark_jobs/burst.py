"""The burst that goes with a rate: what the remembered days would have needed, within bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.arrival_curve import RATE_RATIO
from spark_jobs.parameters import Parameters
from spark_jobs.schemas import QUOTA_KEY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# b(rate) from a day's `curve`: the line between two points of the grid, the last value above it, and below it one unit per unit of
# rate and tick. greatest(…) because a bucket holds at least one second of its rate: the limiter fills it second by second in this
# arithmetic.
_BELOW = f"""curve[0].burst + (pow({RATE_RATIO}D, curve[0].step) - rate) * span"""
_BETWEEN = f"""transform(filter(zip_with(slice(curve, 1, size(curve) - 1), slice(curve, 2, size(curve) - 1),
                                              (low, high) -> struct(low, high)),
                 x -> pow({RATE_RATIO}D, x.low.step) <= rate and rate < pow({RATE_RATIO}D, x.high.step)),
          x -> x.low.burst + (x.high.burst - x.low.burst) * (rate - pow({RATE_RATIO}D, x.low.step))
               / (pow({RATE_RATIO}D, x.high.step) - pow({RATE_RATIO}D, x.low.step)))"""
_LAST = "curve[size(curve) - 1].burst"


def needed(rates: DataFrame, memory: DataFrame) -> DataFrame:
    """Rates → each once per remembered day, with `needed`, a bucket that would have refused nothing that day, and the day's `largest`.

    The curve is of whole seconds; arrivals within them can need up to one more second of rate. For messages the log has the peak m
    of any tenth of a second: cutting the first and the last second of an interval to fractions f and g leaves at most m (10 f + 2)
    and m (10 g + 2) messages in them, so no more than 24 m - 3 r is needed beyond max(b, r), and nothing where m <= r / 8. For
    bytes there is no peak: one second of rate.
    """
    days = rates.join(memory.select(*QUOTA_KEY, "curve", "span", "peak_100ms", "largest"), QUOTA_KEY)
    between = F.expr(f"try_element_at({_BETWEEN}, 1)")
    whole = F.when(F.expr(f"rate < pow({RATE_RATIO}D, curve[0].step)"), F.expr(_BELOW)).otherwise(F.coalesce(between, F.expr(_LAST)))
    within = F.expr("case when peak_100ms is null then rate else least(rate, greatest(0, 24 * peak_100ms - 3 * rate)) end")
    sufficient = F.greatest(F.ceil(F.round(whole, 6)), F.col("rate")) + within
    return days.withColumn("needed", sufficient.cast("long")).drop("curve", "span", "peak_100ms")


def with_burst(rates: DataFrame, memory: DataFrame, parameters: Parameters) -> DataFrame:
    """Rates of remembered topics (several per topic, if their rows differ) → the same rows with `burst` filled where it is null.

    A high quantile over the remembered days (not the maximum: one freak day would stay for weeks), at most `burst_seconds` of the
    rate or the largest message, at least one second of the rate.
    """
    days = (
        needed(rates, memory)
        .groupBy(*rates.columns)
        .agg(F.sort_array(F.collect_list("needed")).alias("days"), F.max("largest").alias("largest"))
    )
    index = F.ceil(F.size("days") * F.lit(parameters.burst_permille) / F.lit(1000)).cast("int")
    bound = F.greatest(F.col("rate") * parameters.burst_seconds, F.col("largest"))
    burst = F.greatest(F.least(F.coalesce("burst", F.element_at("days", index)), bound), F.col("rate"))
    return days.withColumn("burst", burst.cast("long")).select(*rates.columns)
