"""Nights in memory: the driver's part of the job, night after night, with what would be kept in the states. No Spark, no files."""

from __future__ import annotations

import hashlib
import itertools
import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from limiter.quota_snapshot import Snapshot
from spark_jobs.days import Day
from spark_jobs.method.outcomes import OUTCOMES
from spark_jobs.method.pins import Pin
from spark_jobs.night import Night, NightResult, compute_night
from spark_jobs.nights.rails import Rails, hold
from spark_jobs.parameters import Parameters
from spark_jobs.state.manifest import Manifest
from spark_jobs.state.topic_day import TOPICS, TopicSeconds, make_topic_rows
from support.quota_weeks.memories import remembered_of
from support.quota_weeks.weeks import Week

KEPT = [name for name in TOPICS.names if name not in {"losses", "first_step"}]
KNOWN: dict[bytes, pa.Table] = {}  # the rows of each day that has been asked for: many nights are the same, and most of each is its day


@dataclass
class Nights:
    """The states, and the snapshot that is live."""

    parameters: Parameters = field(default_factory=Parameters)
    live: Snapshot | None = None
    pins: Sequence[Pin] = ()
    manifests: list[Manifest] = field(default_factory=list)
    topics: list[pa.Table] = field(default_factory=list)
    outcomes: list[pa.Table] = field(default_factory=list)
    known: dict[bytes, pa.Table] = field(default_factory=lambda: KNOWN)

    def night(self, week: Week, **manifest: Any) -> NightResult:
        """Compute the night after that day, publish its quotas (by its rails), keep its state. `manifest`: fields of the day's manifest."""
        facts, table = self.day(week, **manifest)
        result = self.result(facts, table)
        self.manifests.append(replace(facts, fleet=result.fleet))
        self.topics.append(table)
        self.outcomes.append(result.outcomes)
        self.live = result.snapshot if self.live is None else hold(self.live, result.snapshot, Rails())[0]
        return result

    def day(self, week: Week, **manifest: Any) -> tuple[Manifest, pa.Table]:
        """The manifest and the rows of a day."""
        counts = dict.fromkeys(("rows", "corrupt", "stray", "duplicates", "missing_lines"), 0)
        texts = {"date": week.day.date, "data": "data-x", "code": "test", "fingerprint": "", "zone": week.day.zone}
        facts = Manifest(**{**texts, **counts, **manifest}, observed_seconds=week.observed_seconds, start=week.day.start, end=week.day.end)
        asked = week.topics, week.day, week.observed_seconds, self.parameters.storm_share_ppm
        key = hashlib.sha256(pickle.dumps(asked)).digest()
        if key not in self.known:
            self.known[key] = make_topic_rows(*asked)
        return facts, self.known[key]

    def result(self, facts: Manifest, table: pa.Table) -> NightResult:
        return compute_night(self.inputs(facts, table))

    def inputs(self, facts: Manifest, table: pa.Table) -> Night:
        """What the driver's part is given for the day of `facts` and `table`."""
        days = [*self.manifests, facts]
        topics = pa.concat_tables([each.select(KEPT) for each in [*self.topics, table]])
        outcomes = pa.concat_tables([OUTCOMES.empty_table(), *self.outcomes])
        day = Day(facts.date, facts.zone)
        of = remembered_of
        return Night(day, days, of(topics), of(table), of(outcomes), self.parameters, self.live, "2026-11-21T01:00:00Z", "test", self.pins)


def limited(offered: np.ndarray, rate: float, burst: float, retries: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(passed, refused) by second when a token bucket is in force; `retries`: how often a refused one is sent again in its second."""
    passed = np.zeros(len(offered), np.int64)
    level = burst
    for at, amount in enumerate(offered):
        level = min(burst, level + rate)
        passed[at] = min(int(level), int(amount))
        level -= passed[at]
    return passed, (offered - passed) * (1 + retries)


def topic_seconds(
    name: str,
    day: Day,
    passed: np.ndarray,
    refused: np.ndarray | None = None,
    size: int = 200,
    gateways: Sequence[tuple[str, float]] = (("a", 1.0),),
) -> TopicSeconds:
    """A topic whose seconds follow each other from midnight on; `gateways`: name and share of what passed."""
    n = len(passed)
    tick = np.arange(n, dtype=np.int64)
    none = np.zeros(n, np.int64)
    lost = none if refused is None else refused.astype(np.int64)
    through = passed.astype(np.int64)
    whole = int(through.sum())
    shares = tuple((gateway, int(whole * share), int(whole * share) * size) for gateway, share in gateways)
    return TopicSeconds(
        "rocketmq", name, day.start + tick, tick, through, lost, none, none, through * size, lost * size, through, np.full(n, size), shares
    )


def days_from(first: str) -> Iterable[Day]:
    day = Day(first)
    return (day.before(-at) for at in itertools.count())


def steady_nights(nights: Nights, count: int, topic: Callable[[Day], list[TopicSeconds]], first: str = "2026-03-02") -> list[NightResult]:
    """`count` nights, day by day."""
    return [nights.night(Week(day, 86_400, topic(day))) for day in itertools.islice(days_from(first), count)]
