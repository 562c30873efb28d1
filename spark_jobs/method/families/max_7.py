"""The busiest second of the last seven days."""

from __future__ import annotations

import numpy as np

from spark_jobs.method.memory import Floats, Memory, greatest, newest


def max_7(memory: Memory) -> Floats:
    return np.where(np.isnan(newest(memory.busiest)), np.nan, greatest(memory.busiest[:, -7:]))
