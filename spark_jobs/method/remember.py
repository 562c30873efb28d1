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

COLUMNS = (
    "day",
    "protocol",
    "topic",
    "dimension",
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
CENSORED_PPM = 10_000  # of the observed seconds: a day that was limited longer gives lower bounds (as topic_day.STORM_SHARE_PPM)


def calendar(first: str, last: str) -> list[str]:
    """All days from `first` to `last`."""
    start, end = calendar_date.fromisoformat(first), calendar_date.fromisoformat(last)
    return [(start + timedelta(days=at)).isoformat() for at in range((end - start).days + 1)]


def keys_of(table: pa.Table) -> tuple[tuple[str, str], ...]:
    """The topics of `table`, in order."""
    pairs = table.select(["protocol", "topic"]).group_by(["protocol", "topic"]).aggregate([])
    return tuple(sorted(zip(pairs["protocol"].to_pylist(), pairs["topic"].to_pylist(), strict=True)))


def only_refused(table: pa.Table) -> NDArray[np.bool_]:
    """Which rows are of a topic's day on which it was refused and nothing of it passed: nobody knows what it would have sent."""
    return np.asarray((table["passed"].to_numpy() == 0) & (table["refused"].to_numpy() > 0))


def remember(
    table: pa.Table,
    observed: Mapping[str, int],
    dimension: str,
    keys: Sequence[tuple[str, str]],
    *,
    scale: Mapping[str, Floats] | None = None,
    left_out: Mapping[str, NDArray[np.bool_]] | None = None,
) -> Memory:
    """The memory of one dimension. `observed`: observed seconds of each remembered day, the newest one included; `keys`: the topics, in
    order.

    By day, one value per topic: `scale`, what to multiply the demand with where gateways were missing; `left_out`, which topics learn
    nothing from that day.
    """
    days = calendar(min(observed), max(observed))
    own = table.filter(pc.equal(table["dimension"], dimension))
    place = {key: at for at, key in enumerate(keys)}
    row = np.array([place[key] for key in zip(own["protocol"].to_pylist(), own["topic"].to_pylist(), strict=True)], np.int64)
    at_day = {day: at for at, day in enumerate(days)}
    column = np.array([at_day[day] for day in own["day"].to_pylist()], np.int64)
    seconds = np.array([observed.get(day, 0) for day in days], np.float64)
    span = np.broadcast_to(seconds, (len(keys), len(days))).copy()

    def filled(values: Floats, empty: float) -> Floats:
        found = np.full((len(keys), len(days)), empty)
        found[row, column] = values
        return found

    def numbers(name: str) -> Floats:
        return np.asarray(own[name].to_numpy(), np.float64)

    span[row, column] = np.maximum(span[row, column] - numbers("excluded_seconds"), 1.0)
    total = filled(numbers("total"), 0.0)
    first_seen = np.where((total > 0).any(axis=1), np.argmax(total > 0, axis=1), len(days))
    known = (seconds > 0)[None, :] & (np.arange(len(days)) >= first_seen[:, None])
    for day, topics in (left_out or {}).items():
        known[:, at_day[day]] &= ~topics
    factor = np.ones_like(span)
    for day, values in (scale or {}).items():
        factor[:, at_day[day]] = values

    def only_known(values: Floats) -> Floats:
        return np.where(known, values, np.nan)

    limited = filled(numbers("limited_seconds"), 0.0)
    return Memory(
        keys=tuple(keys),
        weekdays=weekdays(days),
        mean=only_known(np.divide(total, span, out=np.zeros_like(total), where=span > 0) * factor),
        messages=only_known(filled(numbers("messages"), 0.0) * factor),
        need=only_known(filled(numbers("need"), np.nan) * factor),
        busiest=only_known(filled(numbers("max"), 0.0) * factor),
        p99=only_known(filled(numbers("p99"), 0.0) * factor),
        largest=only_known(filled(numbers("largest"), 0.0)),
        evenness=only_known(filled(evenness(own), np.nan)),
        overloaded=np.where(known[:, :, None], overloads(own, row, column, known.shape) * factor[:, :, None], np.nan),
        censored=(limited * 1_000_000 > span * CENSORED_PPM) & known,
    )


def overloads(rows: pa.Table, row: Ints, column: Ints, shape: tuple[int, ...]) -> Floats:
    """`overloaded` of `rows` at their places (topics x days x OVERLOADS); NaN where there is none."""
    found = np.full((*shape, len(OVERLOADS)), np.nan)
    lists = rows["overloaded"].combine_chunks() if isinstance(rows["overloaded"], pa.ChunkedArray) else rows["overloaded"]
    known = pc.equal(pc.fill_null(pc.list_value_length(lists), 0), len(OVERLOADS)).to_numpy(zero_copy_only=False)
    values = lists.filter(pa.array(known)).flatten().to_numpy(zero_copy_only=False)
    found[row[known], column[known]] = values.reshape(-1, len(OVERLOADS))
    return found


def weekdays(days: Sequence[str]) -> Ints:
    """0 Monday to 6 Sunday of each day, and of the one after the last."""
    first = calendar_date.fromisoformat(days[0]).weekday()
    return np.asarray((first + np.arange(len(days) + 1)) % 7, np.int64)


def evenness(rows: pa.Table) -> Floats:
    """The day's mean hour / its fullest hour, of each row."""
    hours = rows["hours"].combine_chunks() if isinstance(rows["hours"], pa.ChunkedArray) else rows["hours"]
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
