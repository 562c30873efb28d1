"""Yesterday's maximum: the busiest second of the newest known day."""

from __future__ import annotations

from spark_jobs.method.memory import Floats, Memory, find_newest


def yesterday_max(memory: Memory) -> Floats:
    return find_newest(memory.busiest)
