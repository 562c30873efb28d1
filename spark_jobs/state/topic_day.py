"""A topic's day in seconds → its two rows, messages and bytes, of the table `topics`: all that is remembered of it.

Demand is what clients wanted to send, in the second they wanted it. The log says something else where a limit was in the way:

* **Delayed** messages are in the log twice: in the second they came (`delayed`) and in the one they went through (`passed` or `refused`).
  A backlog per topic undoes that: messages that depart while there is a backlog are the backlog's, and demand is counted when it came.
* **Refused** messages come again and again from clients that retry. In a second they count up to the rate that was in force (the mean that
  passed per limited second): a topic too small for its quota grows by its demand, at most to the double in one night.
* **A storm** teaches nothing. When limited seconds are rare (`storm_share_ppm` of the observed ones, 1 %) and in them more was refused than
  passed, the refusals are not counted at all.
* **Dropped** messages (fire and forget) are refused ones; the log has no bytes of them: they are as large as the others of their second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_jobs.days import Day
from spark_jobs.state.loss_surface import BURSTS_S, Surface, compute_surfaces, find_need, find_overload_rates

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

# Millionths of the observed seconds: a topic that is limited for more than 15 minutes of a day is short of quota, not in a storm.
STORM_SHARE_PPM: Final = 10_000

_SHARE: Final = pa.struct([("gateway", pa.string()), ("total", pa.int64())])
TOPICS: Final = pa.schema([
    *[(name, pa.string()) for name in ("day", "protocol", "topic", "dimension")],
    *[(name, pa.int64()) for name in ("total", "messages", "passed", "refused", "delayed", "storm")],
    *[(name, pa.int64()) for name in ("active_seconds", "limited_seconds", "excluded_seconds", "max")],
    ("p50", pa.float64()), ("p99", pa.float64()),
    ("largest", pa.int64()), ("peak_100ms", pa.int64()),
    ("hours", pa.list_(pa.int64())), ("gateways", pa.list_(_SHARE)),
    ("refused_hours", pa.list_(pa.int64())),
    ("need", pa.float64()), ("overloaded", pa.list_(pa.float64())), ("first_step", pa.int64()), ("losses", pa.list_(pa.float32())),
])  # fmt: skip


class TopicSeconds(NamedTuple):
    """One topic's day in the log: arrays of one row per second with a line of it, rising; i64."""

    protocol: str
    topic: str
    second: Ints  # epoch s
    tick: Ints  # number of the second among the observed ones of the day, from 0
    passed: Ints  # messages
    refused: Ints
    delayed: Ints  # held back in this second; they pass, or are refused, in a later one
    dropped: Ints
    passed_bytes: Ints
    refused_bytes: Ints
    peak_100ms: Ints  # messages, at most so many in any tenth of the second
    largest: Ints  # bytes, mean message of the line with the largest ones
    gateways: Sequence[tuple[str, int, int]] = ()  # name, messages and bytes that passed there
    excluded_seconds: int = 0  # taken out of the day as an incident, and not among the rows


class Demand(NamedTuple):
    """Counted demand of one dimension per second, and the refused part that was left out as a storm."""

    amount: Ints
    storm: int


def flag_limited_seconds(day: TopicSeconds) -> NDArray[np.bool_]:
    """The seconds in which a limit was in the way."""
    return (day.refused > 0) | (day.delayed > 0) | (day.dropped > 0)


def restore_arrivals(departed: Ints, delayed: Ints) -> Ints:
    """Messages in the second they came. `departed`: passed or refused then; `delayed`: came then and was held back.

    backlog_t = max(0, backlog_(t-1) + delayed_t - departed_t); messages that leave it were counted when they came. One held back for
    less than a second is in both counts of one second; so messages may leave in the second they came, and at most a second's rate counts
    too late.
    """
    if not delayed.any():
        return departed
    walk: Ints = np.cumsum(delayed - departed)
    backlog = walk - np.minimum(np.minimum.accumulate(walk), 0)
    left = np.concatenate([[0], backlog[:-1]]) + delayed - backlog
    came: Ints = departed + delayed - left
    return came


def cap_refused(
    passed: Ints, refused: Ints, in_the_way: NDArray[np.bool_], observed_seconds: int, storm_share_ppm: int
) -> tuple[Ints, int]:
    """The part of `refused` that counts as demand in each second, and the sum of the rest."""
    total = int(refused.sum())
    if not total:
        return refused, 0
    most = find_refused_cap(total, int(passed[in_the_way].sum()), int(in_the_way.sum()), observed_seconds, storm_share_ppm)
    kept = np.minimum(refused, most)
    return kept, total - int(kept.sum())


def find_refused_cap(refused: int, passed: int, limited_seconds: int, observed_seconds: int, storm_share_ppm: int) -> int:
    """How many refused messages count as demand in a second, at most; 0 where they were a storm. `passed`: in the limited seconds."""
    if limited_seconds * 1_000_000 <= observed_seconds * storm_share_ppm and refused > passed:
        return 0
    return max(-(-passed // max(limited_seconds, 1)), 1)


def measure_demand(day: TopicSeconds, observed_seconds: int, storm_share_ppm: int) -> tuple[Demand, Demand]:
    """Counted demand in messages and in bytes."""
    in_the_way = flag_limited_seconds(day)
    kept, storm = cap_refused(day.passed, day.refused + day.dropped, in_the_way, observed_seconds, storm_share_ppm)
    messages = restore_arrivals(day.passed + kept, day.delayed)
    known = day.passed + day.refused
    size = np.divide(day.passed_bytes + day.refused_bytes, known, out=np.zeros(len(known)), where=known > 0)
    mean = float((day.passed_bytes + day.refused_bytes).sum() / max(known.sum(), 1))
    size = np.where(known > 0, size, mean)  # a second in which all were delayed or dropped
    size = np.divide(day.refused_bytes, day.refused, out=size, where=day.refused > 0)
    wanted = np.where(day.delayed > 0, mean, size) * (messages - day.passed)
    octets = np.where(messages == day.passed, day.passed_bytes, np.ceil(day.passed_bytes + wanted)).astype(np.int64)
    octets = np.maximum(octets, 0)
    return Demand(messages, storm), Demand(octets, max(int(day.passed_bytes.sum() + day.refused_bytes.sum() - octets.sum()), 0))


def make_topic_rows(batch: Sequence[TopicSeconds], day: Day, observed_seconds: int, storm_share_ppm: int = STORM_SHARE_PPM) -> pa.Table:
    """Rows of `TOPICS`: two for each topic of `batch` with demand. Hand over some hundred topics at a time: the loss surfaces of a batch
    are computed side by side."""
    found: list[tuple[TopicSeconds, str, Ints, int, int]] = []
    for each in batch:
        of_messages, of_bytes = measure_demand(each, observed_seconds, storm_share_ppm)
        total = int(of_messages.amount.sum())
        for dimension, (amount, storm) in (("messages", of_messages), ("bytes", of_bytes)):
            if amount.any():
                found.append((each, dimension, amount, storm, total))
    days = [(each.tick[amount > 0], amount[amount > 0].astype(np.float64)) for each, _, amount, _, _ in found]
    made = compute_surfaces(days, observed_seconds)
    start, hour_count = day.start, day.hour_count  # read once: each asks for the time zone
    lines = [_make_row(*entry, surface, day.date, start, hour_count, observed_seconds) for entry, surface in zip(found, made, strict=True)]
    return pa.Table.from_pylist(lines, TOPICS)


def _make_row(
    each: TopicSeconds,
    dimension: str,
    amount: Ints,
    storm: int,
    messages: int,
    surface: Surface,
    date: str,
    start: int,
    hour_count: int,
    observed_seconds: int,
) -> dict[str, object]:
    total = int(amount.sum())
    of_messages = dimension == "messages"
    p50, p99 = compute_load_percentiles(amount, (0.5, 0.99))

    def hours(counts: Ints) -> Ints | None:
        """The sums by hour of the day; None where there is nothing."""
        if not counts.any():
            return None
        return np.bincount((each.second - start) // 3600, weights=counts, minlength=hour_count).astype(np.int64)

    return {
        "day": date,
        "protocol": each.protocol,
        "topic": each.topic,
        "dimension": dimension,
        "total": total,
        "messages": messages,
        "passed": int((each.passed if of_messages else each.passed_bytes).sum()),
        "refused": int((each.refused + each.dropped).sum() if of_messages else each.refused_bytes.sum()),
        "delayed": int(each.delayed.sum()) if of_messages else 0,
        "storm": storm,
        "active_seconds": int((amount > 0).sum()),
        "limited_seconds": int(flag_limited_seconds(each).sum()),
        "excluded_seconds": each.excluded_seconds,
        "max": int(amount.max()),
        "p50": p50,
        "p99": p99,
        "largest": 1 if of_messages else int(each.largest.max()),
        "peak_100ms": int(np.minimum(each.peak_100ms, amount).max()) if of_messages else None,
        "hours": hours(amount),
        "refused_hours": hours(each.refused + each.dropped if of_messages else each.refused_bytes),
        "gateways": share_by_gateway(each.gateways, of_messages=of_messages, total=total),
        "need": min(find_need(surface, surface.total), float(amount.max())),  # a rate as high as the busiest second refuses nothing
        "overloaded": find_overload_rates(surface, observed_seconds),
        "first_step": surface.first_step,
        "losses": surface.losses.reshape(-1),
    }


def compute_load_percentiles(amount: Ints, shares: Sequence[float]) -> list[float]:
    """The busiest second that is needed to cover each of `shares` of all messages (or bytes), counted from the quiet seconds up."""
    ordered = np.sort(amount)
    sums = np.cumsum(ordered)
    at = np.searchsorted(sums, [each * float(sums[-1]) for each in shares], side="left")
    return [float(ordered[min(each, len(ordered) - 1)]) for each in at.tolist()]


def share_by_gateway(gateways: Sequence[tuple[str, int, int]], *, of_messages: bool, total: int) -> list[dict[str, object]]:
    """`total` divided in proportion to the part that passed at each gateway; evenly where nothing passed."""
    passed = [messages if of_messages else octets for _, messages, octets in gateways]
    whole = sum(passed)
    parts = [total * part // whole if whole else total // len(passed) for part in passed]
    if parts:
        parts[int(np.argmax(passed))] += total - sum(parts)
    return [{"gateway": name, "total": part} for (name, _, _), part in zip(gateways, parts, strict=True)]


def read_surface(row: dict[str, object]) -> Surface:
    """The loss surface of one row of `TOPICS` (as `Table.to_pylist` gives it)."""
    losses = np.asarray(row["losses"], np.float32).reshape(-1, len(BURSTS_S))
    return Surface(int(row["first_step"]), losses, float(row["total"]))  # type: ignore[call-overload,arg-type]  # a row of TOPICS
