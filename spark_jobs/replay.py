"""Replays a day through quotas: how much would a bucket have refused?

The bucket starts full; each second it is filled by one second of rate, then takes what it can, part of a second's amount if need
be. Messages and bytes are replayed apart, whole seconds at a time. The limiter itself decides message by message, so this is an
estimate; it is exact for one bucket fed at one instant of each second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from spark_jobs.schemas import QUOTA_KEY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

RESULT: Final = "protocol string, topic string, dimension string, rule string, offered bigint, refused bigint"


def refused(tick: Sequence[int], amount: Sequence[int], rate: int, burst: int) -> int:
    """How much of `amount` a bucket of `burst`, filled with `rate` per tick, refuses; `tick` rising."""
    level = burst
    total = 0
    before = tick[0] if tick else 0
    for now, asked in zip(tick, amount, strict=True):
        level = min(burst, level + rate * (now - before))
        before = now
        if asked > level:
            total += asked - level
            level = 0
        else:
            level -= asked
    return total


def _replay_group(table: pa.Table) -> pa.Table:
    """One topic, dimension and rule, on a worker."""
    table = table.sort_by("tick")
    names = {name: [table.column(name)[0].as_py()] for name in ("protocol", "topic", "dimension", "rule")}
    amount = table.column("amount").to_pylist()
    lost = refused(table.column("tick").to_pylist(), amount, table.column("rate")[0].as_py(), table.column("burst")[0].as_py())
    return pa.table({**names, "offered": pa.array([sum(amount)], pa.int64()), "refused": pa.array([lost], pa.int64())})


def replay(usage: DataFrame, quotas: DataFrame) -> DataFrame:
    """Usage with ticks, and quotas (…, rule, rate, burst) → (protocol, topic, dimension, rule, offered, refused); quotas of silent
    topics give no row."""
    rows = usage.select(*QUOTA_KEY, "tick", "amount").join(quotas.select(*QUOTA_KEY, "rule", "rate", "burst"), QUOTA_KEY)
    return rows.groupBy(*QUOTA_KEY, "rule").applyInArrow(_replay_group, RESULT)
