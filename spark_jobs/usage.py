"""Usage: the demand on each topic in each second, and the seconds that were observed.

Demand = passed + refused + dropped. Passed alone would be censored data: a throttled topic could never grow. Producers only:
quotas ignore lines of consumers. The log has no bytes of dropped messages: they are assumed to be as large as the others of their topic
and second.

A second is observed when some gateway wrote a line for it, a heartbeat at least. A second without a line is missing, not idle:
`ticks` numbers the observed seconds one after the other, and all later steps count time in ticks.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from limiter.protocols import PROTOCOL_NAMES
from limiter.quota_snapshot import MAX_TEXT_CHARS
from spark_jobs.schemas import KEY, QUOTA_KEY

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from limiter.protocols import ProtocolNames


def with_quota_topics(rows: DataFrame) -> DataFrame:
    """Rows of topics that can have a quota: names that a snapshot can hold, but not the broker's own, retries, dead letters or generated
    names (`limiter.protocols`). The rule of the file holds for those."""
    wanted = reduce(or_, map(_can_have_quota, PROTOCOL_NAMES.values()))
    return rows.where(F.length("topic").between(1, MAX_TEXT_CHARS) & wanted)


def _can_have_quota(names: ProtocolNames) -> Column:
    wanted = F.col("protocol") == names.name
    if names.no_quota_pattern():
        wanted &= ~F.col("topic").rlike(names.no_quota_pattern())
    if len(names.topic_parts) > 1:
        slashes = F.length("topic") - F.length(F.replace("topic", F.lit("/"), F.lit("")))
        wanted &= slashes == len(names.topic_parts) - 1
    return wanted


_SUMS: Final = {
    "known": "sum(messages + coalesce(refused_messages, 0L))",
    "known_bytes": "sum(bytes + coalesce(refused_bytes, 0L))",
    "dropped": "sum(coalesce(dropped_messages, 0L))",
    "refused": "sum(coalesce(refused_messages, 0L))",
    "refused_bytes": "sum(coalesce(refused_bytes, 0L))",
    "peak": "sum(coalesce(max_100ms_messages, 0L))",
    "mean_size": "max(cast(ceil((bytes + coalesce(refused_bytes, 0L)) / nullif(messages + coalesce(refused_messages, 0L), 0L)) as bigint))",
}


def per_second(lines: DataFrame) -> DataFrame:
    """Good lines, each once → one row per topic, dimension and second with demand: `amount`, `refused`, `largest` (mean message of
    a line, rounded up) and, for messages, `peak_100ms` (at most so many in any tenth of the second: the sum of the lines'
    peaks)."""
    produced = with_quota_topics(lines.where("not coalesce(heartbeat, false) and operation = 'produce'"))
    seconds = produced.groupBy(*KEY, F.col("ts").alias("second")).agg(*[F.expr(f"{sql} as {name}") for name, sql in _SUMS.items()])
    dropped_bytes = "if(known > 0, cast(ceil(dropped * cast(known_bytes as double) / known) as bigint), 0L)"
    messages = ["known + dropped as amount", "refused + dropped as refused", "1L as largest", "peak as peak_100ms"]
    octets = [
        f"known_bytes + {dropped_bytes} as amount",
        f"refused_bytes + {dropped_bytes} as refused",
        "coalesce(mean_size, 0L) as largest",
        "cast(null as bigint) as peak_100ms",
    ]
    of_messages = seconds.selectExpr(*KEY, "'messages' as dimension", "second", *messages)
    return of_messages.unionAll(seconds.selectExpr(*KEY, "'bytes' as dimension", "second", *octets)).where("amount > 0")


def ticks(lines: DataFrame) -> DataFrame:
    """Good lines → the observed seconds in order: (second, tick), tick from 0. At most 86,400 rows."""
    observed = lines.select(F.col("ts").alias("second")).distinct()
    return observed.select("second", (F.row_number().over(Window.orderBy("second")) - 1).cast("long").alias("tick"))


def with_ticks(usage: DataFrame, observed: DataFrame) -> DataFrame:
    """Adds `tick` to each row, all rows of a topic and dimension in one partition. Every second in use is an observed one, so no
    row is lost."""
    return usage.join(F.broadcast(observed), "second").repartition(*QUOTA_KEY)
