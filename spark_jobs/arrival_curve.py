"""The arrival curve of a topic's day: how large a bucket must be so that it refuses nothing, for any rate.

b(r) = max over s <= t of A(s, t) - r (t - s), where A(s, t) is what arrived in the seconds s to t. It is found in one pass: with C
the running sum, b(r) = max_t [(C_t - r t) - min_{s <= t} (C_{s-1} - r s)] (brute force in the tests agrees). b falls with r and is
convex, so its values on a geometric grid of rates, joined by straight lines, are never below the truth (overestimate at most 4.6 %,
docs/design/quotas.md 2); below the grid it rises by at most one unit per unit of rate and second of span; above the grid its last value
holds. So a day is remembered in some thirty numbers.

Time is counted in ticks (observed seconds), so a missing hour neither fills nor empties the bucket: the burst may come out too
large, never too small.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from spark_jobs.schemas import QUOTA_KEY

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

RATE_RATIO: Final = 1.15  # docs/design/quotas.md 2
RESULT: Final = "protocol string, topic string, dimension string, curve array<struct<step:int, burst:bigint>>"


def grid(mean: float, peak: int) -> range:
    """Steps k whose rates 1.15^k reach from at most `mean` (of the active seconds) to at least `peak`."""
    lowest = math.floor(math.log(mean) / math.log(RATE_RATIO))
    highest = math.ceil(math.log(peak) / math.log(RATE_RATIO))
    return range(lowest, highest + 1)


def burst(tick: NDArray[np.int64], amount: NDArray[np.int64], rate: float) -> int:
    """b(rate), rounded up; `tick` rising."""
    total = np.cumsum(amount)
    drained = rate * tick
    lowest = np.minimum.accumulate(total - amount - drained)
    return math.ceil(float(np.max(total - drained - lowest)) - 1e-6)  # the sums are floats: 1e14 with 16 digits at worst


def curve(tick: NDArray[np.int64], amount: NDArray[np.int64]) -> list[tuple[int, int]]:
    """(step, b(1.15^step)) for every step of the grid of these seconds."""
    steps = grid(float(np.mean(amount)), int(np.max(amount)))
    return [(step, burst(tick, amount, RATE_RATIO**step)) for step in steps]


def _curve_of(table: pa.Table) -> pa.Table:
    """One topic and dimension, on a worker."""
    table = table.sort_by("tick")
    points = curve(table.column("tick").to_numpy(), table.column("amount").to_numpy())
    kind = pa.list_(pa.struct([("step", pa.int32()), ("burst", pa.int64())]))
    names = {name: [table.column(name)[0].as_py()] for name in ("protocol", "topic", "dimension")}
    return pa.table({**names, "curve": pa.array([[{"step": step, "burst": value} for step, value in points]], type=kind)})


def curves(usage: DataFrame) -> DataFrame:
    """Usage with ticks → (protocol, topic, dimension, curve). A group is at most 86,400 rows, however hot the topic."""
    return usage.select(*QUOTA_KEY, "tick", "amount").groupBy(*QUOTA_KEY).applyInArrow(_curve_of, RESULT)
