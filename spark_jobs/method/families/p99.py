"""The 99th percentile of the load, mean of the last seven days."""

from __future__ import annotations

import numpy as np

from spark_jobs.method.memory import Floats, Memory, find_newest, mean_of


def p99(memory: Memory) -> Floats:
    found = mean_of(memory.p99[:, -7:])
    return np.where(np.isnan(find_newest(memory.p99)), np.nan, np.nan_to_num(found))
