"""The busiest second of the last seven days."""

from __future__ import annotations

import numpy as np

from spark_jobs.method.memory import Floats, Memory, find_greatest, find_newest


def max_7(memory: Memory) -> Floats:
    return np.where(np.isnan(find_newest(memory.busiest)), np.nan, find_greatest(memory.busiest[:, -7:]))
