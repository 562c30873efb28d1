"""From the rows of the daily states (`schemas.TOPICS`) to the arrays of the method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date as calendar_date
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_jobs.method.memory import Floats, Ints, Memory
from spark_jobs.state.loss_surface import OVERLOADS
from spark_jobs.state.remembered import TopicPlaces

COLUMNS = (
    "day",
    "protocol",
    "topic",
    "dimension",
    "passed",
    "refused",
    "total",
    "messages",
    "need",
    "overloaded",
    "max",
    "p99",
    "largest",
    "limited_seconds",
    "excluded_seconds",
    "hours",
)
CENSORED_PPM = 10_000  # millionths of the observed seconds: a day that was limited longer gives lower bounds (as topic_day.STORM_SHARE_PPM)


def list_days(first: str, last: str) -> list[str]:
    """All days from `first` to `last`."""
    start, end = calendar_date.fromisoformat(first), calendar_date.fromisoformat(last)
    return [(start + timedelta(days=at)).isoformat() for at in range((end - start).days + 1)]


def find_keys(table: pa.Table) -> tuple[tuple[str, str], ...]:
    """The topics of `table`, in order."""
    pairs = table.select(["protocol", "topic"]).group_by(["protocol", "topic"]).aggregate([])
    return tuple(sorted(zip(pairs["protocol"].to_pylist(), pairs["topic"].to_pylist(), strict=True)))


def flag_only_refused(table: pa.Table) -> NDArray[np.bool_]:
    """Which rows are of a topic's day on which it was refused and nothing of it passed: its demand is not known."""
    return np.asarray((table["passed"].to_numpy() == 0) & (table["refused"].to_numpy() > 0))


def drop_only_refused(table: pa.Table) -> pa.Table:
    """The rows without those of `flag_only_refused`."""
    shut = flag_only_refused(table)
    return table.filter(pa.array(~shut)) if shut.any() else table


class Remembering:
    """The memory of one dimension while it is filled, some rows at a time. `observed`: observed seconds of each remembered day, the newest
    one included; `keys`: the topics, in order.

    By day, one value per topic: `scale`, the factor of the demand where gateways were missing; `left_out`, whether the topic learns nothing
    from that day.
    """

    def __init__(
        self,
        observed: Mapping[str, int],
        dimension: str,
        keys: Sequence[tuple[str, str]],
        *,
        scale: Mapping[str, Floats] | None = None,
        left_out: Mapping[str, NDArray[np.bool_]] | None = None,
    ) -> None:
        self._dimension, self._keys, self._places = dimension, keys, TopicPlaces(keys)
        self._days = list_days(min(observed), max(observed))
        self._at_day = {day: at for at, day in enumerate(self._days)}
        self._scale, self._left_out = scale or {}, left_out or {}
        self._seconds = np.array([observed.get(day, 0) for day in self._days], np.float64)
        shape = (len(keys), len(self._days))
        self._span = np.broadcast_to(self._seconds, shape).copy()
        self._filled = {name: np.zeros(shape) for name in ("total", "messages", "max", "p99", "largest", "limited_seconds")}
        self._filled |= {name: np.full(shape, np.nan) for name in ("need", "evenness")}
        self._overloaded = np.full((*shape, len(OVERLOADS)), np.nan)

    def add(self, table: pa.Table) -> None:
        """Add rows of `topics`, of any dimension, with at least COLUMNS; all their topics are among the keys."""
        own = table.filter(pc.equal(table["dimension"], self._dimension))
        row = self._places.find(own)
        column = np.array([self._at_day[day] for day in own["day"].to_pylist()], np.int64)

        def numbers(name: str) -> Floats:
            return np.asarray(own[name].to_numpy(), np.float64)

        self._span[row, column] = np.maximum(self._span[row, column] - numbers("excluded_seconds"), 1.0)
        for name, filled in self._filled.items():
            filled[row, column] = compute_evenness(own) if name == "evenness" else numbers(name)
        lists = combine_chunks(own["overloaded"])
        known = pc.equal(pc.fill_null(pc.list_value_length(lists), 0), len(OVERLOADS)).to_numpy(zero_copy_only=False)
        values = lists.filter(pa.array(known)).flatten().to_numpy(zero_copy_only=False)
        self._overloaded[row[known], column[known]] = values.reshape(-1, len(OVERLOADS))

    def make_memory(self) -> Memory:
        """The memory of the added rows; none may be added any more."""
        total, span, days = self._filled.pop("total"), self._span, self._days
        first_seen = np.where((total > 0).any(axis=1), np.argmax(total > 0, axis=1), len(days))
        known = (self._seconds > 0)[None, :] & (np.arange(len(days)) >= first_seen[:, None])
        for day, topics in self._left_out.items():
            known[:, self._at_day[day]] &= ~topics
        censored = (self._filled.pop("limited_seconds") * 1_000_000 > span * CENSORED_PPM) & known
        mean = np.divide(total, span, out=np.zeros_like(total), where=span > 0)
        del total
        arrays = {"mean": mean, "overloaded": self._overloaded, **self._filled}
        for name, values in arrays.items():
            for day, factor in self._scale.items():
                if name not in {"largest", "evenness"}:
                    at = self._at_day[day]
                    values[:, at] *= factor if values.ndim == 2 else factor[:, None]
            values[~known] = np.nan
        return Memory(keys=tuple(self._keys), weekdays=weekdays(days), busiest=arrays.pop("max"), censored=censored, **arrays)


def combine_chunks(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def weekdays(days: Sequence[str]) -> Ints:
    """0 Monday to 6 Sunday of each day, and of the one after the last."""
    first = calendar_date.fromisoformat(days[0]).weekday()
    return np.asarray((first + np.arange(len(days) + 1)) % 7, np.int64)


def compute_evenness(rows: pa.Table) -> Floats:
    """The day's mean hour / its fullest hour, of each row."""
    hours = combine_chunks(rows["hours"])
    counts = pc.list_value_length(hours).to_numpy(zero_copy_only=False).astype(np.float64)
    if not len(counts):
        return np.zeros(0)
    owner = np.repeat(np.arange(len(counts)), counts.astype(np.int64))
    values = hours.flatten().to_numpy(zero_copy_only=False).astype(np.float64)
    total, fullest = np.zeros(len(counts)), np.zeros(len(counts))
    np.add.at(total, owner, values)
    np.maximum.at(fullest, owner, values)
    found: Floats = np.divide(total, counts * fullest, out=np.ones(len(counts)), where=counts * fullest > 0)
    return found
