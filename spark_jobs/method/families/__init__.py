"""Quota rules: the method, and the simple rules that it has to beat. A new one is a file here, a line in `QUOTA_RULES`, and a test.

A rule takes the `Memory` of one dimension and gives each topic's rate per second for the day to come, NaN where it has none. The fleet's
pooled backtest compares rules at equal reserve, so only the proportions between topics matter here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from spark_jobs.method.families.max_7 import max_7
from spark_jobs.method.families.mean_7 import mean_7
from spark_jobs.method.families.p99 import p99
from spark_jobs.method.families.yesterday_max import yesterday_max
from spark_jobs.method.memory import Floats, Memory

QUOTA_RULES: Final[dict[str, Callable[[Memory], Floats]]] = {
    "yesterday_max": yesterday_max,
    "max_7": max_7,
    "mean_7": mean_7,
    "p99": p99,
}
