"""States on disk, as a computation leaves them, without Spark and without a log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from spark_jobs.days import Day
from spark_jobs.schemas import TOPICS as TOPICS_SCHEMA
from spark_jobs.state.manifest import Manifest
from spark_jobs.state.state import DayStates
from spark_jobs.state.tables import write_arrow
from spark_jobs.state.topic_day import make_topic_rows
from spark_jobs.storage.local import LocalStorage
from spark_jobs.storage.location import Location
from support.quota_weeks.nights import topic_seconds

SECONDS = 3600  # of the day in which topics send


def state_at(folder: Path) -> DayStates:
    return DayStates(Location.of("state", folder), LocalStorage())


def keep_day(folder: Path, date: str, rates: dict[str, float], **manifest: Any) -> None:
    """A day on which each topic sent so many messages a second, evenly."""
    state, day = state_at(folder), Day(date)
    staged = state.stage(date)
    topics = [topic_seconds(name, day, np.full(SECONDS, rate)) for name, rate in rates.items()]
    write_arrow(None, make_topic_rows(topics, day, 86_400), "topics", TOPICS_SCHEMA, staged)
    counts = dict.fromkeys(("rows", "corrupt", "stray", "duplicates", "missing_lines"), 0)
    facts: dict[str, Any] = {"date": date, "code": "test", "fingerprint": "", "zone": "UTC", **counts, **manifest}
    state.publish(Manifest(**facts, data=staged.path.rpartition("/")[2], observed_seconds=86_400, start=day.start, end=day.end))
