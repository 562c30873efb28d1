"""Tonight's quotas on the last days that the state knows, before they are published: the quick answer, from the loss surfaces alone.

Out of sample a night is judged a day later, by the night after it. Before that only the days that it was learned from can be asked, and
quotas that refuse much of each of them are wrong, whatever comes. One day proves little: a topic that grew tenfold yesterday is refused
most of it by its rail, rightly. So the night is compared with **each** of the last days of the kind (working day or week-end) of the day
to come, and with what is live on the same days: quotas of a Saturday refuse a Wednesday, and a throttled topic's refuse less each night.

Messages of topics with a quota; without those that a person has pinned. No Spark where the state is on this machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date as calendar_date
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.days import Day
from spark_jobs.method.memory import Floats
from spark_jobs.night import read_rates, read_surfaces
from spark_jobs.report.words import share_text
from spark_jobs.schemas import TOPICS as TOPICS_SCHEMA
from spark_jobs.state.state import DayStates
from spark_jobs.state.tables import read_arrow
from spark_jobs.state.topic_day import TOPICS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from limiter.quota_snapshot import Snapshot

DAYS: Final = 7  # a whole week, so both kinds of days are among them
COLUMNS: Final = pa.schema([TOPICS.field(name) for name in ("protocol", "topic", "dimension", "first_step", "total", "losses")])
SATURDAY: Final = 5


class JudgedDay(NamedTuple):
    """One day: messages offered to topics with a quota, and refused by tonight's quotas and by the live ones."""

    date: str
    offered: float
    refused: float
    live: float | None  # None: nothing is live
    with_pins: float  # share of all, also of topics that are pinned, that tonight's quotas would have refused
    topics: Mapping[tuple[str, str], float] = MappingProxyType({})  # protocol and topic -> refused, of all that were refused something

    def to_json(self) -> dict[str, Any]:
        """The day without its topics, of which there may be many."""
        return {name: value for name, value in self._asdict().items() if name != "topics"}

    @property
    def share(self) -> float:
        return self.refused / self.offered if self.offered else 0.0


def judge_days(state: DayStates, snapshot: Snapshot, live: Snapshot, day: Day, spark: SparkSession | None = None) -> list[JudgedDay]:
    """Judge the last days up to `day`, oldest first; `spark` for a state that is not of this machine.

    Raises InsufficientInputError where a day of the state cannot be read, OSError where a file cannot.
    """
    found = []
    for manifest in state.read_manifests_before(day.before(-1).date, DAYS):
        if manifest.zone == day.zone:
            rows = read_arrow(spark, "topics", COLUMNS, TOPICS_SCHEMA, [state.data(manifest)])
            found.append(judge_day(manifest.date, rows, snapshot, live))
    return found


def judge_day(date: str, rows: pa.Table, snapshot: Snapshot, live: Snapshot) -> JudgedDay:
    """Judge one day, by the rows of its table `topics`."""
    keys = [(quota.protocol, quota.topic) for quota in snapshot.quotas]
    own = np.array([quota.evidence.get("status") != "pinned" for quota in snapshot.quotas], np.bool_)
    surfaces = read_surfaces(rows.filter(pc.equal(rows["dimension"], "messages")), "messages", keys)
    new, old = read_rates(snapshot, "messages", keys), read_rates(live, "messages", keys)
    offered, refused = np.where(np.isnan(new[0]), 0.0, surfaces.total), surfaces.interpolate_loss(*new)
    return JudgedDay(
        date, float(offered[own].sum()), _sum_lost(refused[own]), _sum_lost(surfaces.interpolate_loss(*old)[own]) if live.quotas else None,
        _sum_lost(refused) / max(float(offered.sum()), 1.0), {key: float(lost) for key, lost in zip(keys, refused, strict=True) if lost >=
        1},
    )  # fmt: skip


def _sum_lost(each: Floats) -> float:
    return float(np.nansum(each))


def select_same_kind(days: Sequence[JudgedDay], to_come: str) -> list[JudgedDay]:
    """The days of the kind of `to_come`, working day or week-end; all where there is none."""
    return [day for day in days if _is_weekend(day.date) == _is_weekend(to_come)] or list(days)


def _is_weekend(date: str) -> bool:
    return calendar_date.fromisoformat(date).weekday() >= SATURDAY


def describe_judged_days(days: Sequence[JudgedDay]) -> str:
    """A sentence about what the quotas would have refused, for the report."""
    offered = sum(day.offered for day in days)
    if not days or not offered:
        return "Tonight's quotas were not judged on past days: the state has no day with a topic that has a quota"
    worst = max(days, key=lambda day: day.share)
    past = f"the last {len(days)} days" if len(days) > 1 else "the last day"
    said = f"A check of topics without a pin, no forecast: of {past}, which they were learned from, tonight's quotas would have refused "
    said += f"{_format_share(days, 'refused')} (most on {worst.date}: {share_text(worst.share)})"
    return said + (f"; those before them {_format_share(days, 'live')}" if all(day.live is not None for day in days) else "")


def _format_share(days: Sequence[JudgedDay], what: str) -> str:
    return share_text(sum(getattr(day, what) for day in days) / sum(day.offered for day in days))
