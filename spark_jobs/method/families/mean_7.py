"""The mean of the last seven days."""

from __future__ import annotations

import numpy as np

from spark_jobs.method.memory import Floats, Memory, find_newest, mean_of


def mean_7(memory: Memory) -> Floats:
    found = mean_of(memory.mean[:, -7:])
    return np.where(np.isnan(find_newest(memory.mean)), np.nan, np.nan_to_num(found))
