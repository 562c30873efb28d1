"""A public web log as weeks: 41 topics, 3.5 days (17 to 20 May 2015), made from elastic/examples (apache_logs, Apache-2.0)."""

from __future__ import annotations

import csv
import gzip
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from spark_jobs.days import Day
from support.quota_weeks.weeks import Week, seconds_of

FILE: Final = Path(__file__).parent / "data" / "web-log-41-topics.csv.gz"
DATES: Final = ("2015-05-17", "2015-05-18", "2015-05-19", "2015-05-20")


def web_log() -> Iterator[Week]:
    """Its days in UTC; the first begins, and the last ends, with the log."""
    by_topic: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    with gzip.open(FILE, "rt") as lines:
        for row in csv.DictReader(lines):
            cell = by_topic[row["topic"]][int(row["ts"])]
            cell[0] += int(row["messages"])
            cell[1] += int(row["bytes"])
    moments = [second for seconds in by_topic.values() for second in seconds]
    for date in DATES:
        day = Day(date)
        start, end = max(day.start, min(moments)), min(day.end, max(moments) + 1)
        found = []
        for topic, seconds in sorted(by_topic.items()):
            own = sorted(second for second in seconds if start <= second < end)
            if own:
                counts = np.array([seconds[second] for second in own])
                second = np.array(own)
                found.append(seconds_of(topic, second, second - start, counts[:, 0], counts[:, 1]))
        yield Week(day, end - start, found)
