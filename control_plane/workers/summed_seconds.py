"""Adds up what happened in each second, over all workers: rows for the series of their parent (`admin/series_store.py`).

All workers look at the same clock, and name a second by it. A second is closed once every worker that serves has reported it, or WAIT_S
after the first one has: then it lacks those that were late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gateway.counting.accounts import Place
    from gateway.telemetry.moving_topics import Second, Values

WAIT_S: Final = 2.5  # seconds; a worker is asked once a second, and has a second to answer (a guess)
MOST_OPEN: Final = 20  # seconds; that are not closed


class OpenSecond:
    """One second, as far as workers have reported it."""

    __slots__ = ("elapsed_s", "first_at", "rows", "workers")

    def __init__(self, first_at: float) -> None:
        self.first_at = first_at
        self.elapsed_s = 1.0
        self.workers: set[int] = set()
        self.rows: dict[Place, Values] = {}


class SummedSeconds:
    """The seconds that are not closed yet."""

    def __init__(self) -> None:
        self._open: dict[int, OpenSecond] = {}
        self._closed = 0  # the last second that was closed
        self.seen: set[int] = set()  # workers that are in it

    def add(self, worker: int, seconds: Iterable[Second], now_s: float) -> None:
        """What a worker reports; `now_s` is monotonic. What comes too late for its second is left out."""
        for second, elapsed_s, rows in seconds:
            if self._closed - MOST_OPEN < second <= self._closed:
                continue
            entry = self._open.get(second)
            if entry is None:
                if len(self._open) >= MOST_OPEN:
                    continue
                entry = self._open[second] = OpenSecond(now_s)
            entry.workers.add(worker)
            entry.elapsed_s = max(entry.elapsed_s, elapsed_s)
            for (protocol, topic, operation), values in rows:
                place = protocol, topic, operation
                known = entry.rows.get(place)
                entry.rows[place] = (
                    tuple(values) if known is None else tuple([one + other for one, other in zip(known, values, strict=True)])
                )

    def take(self, serving: set[int], now_s: float) -> list[Second]:
        """Close what can be closed. `serving`: the workers that serve."""
        found: list[Second] = []
        for second in sorted(self._open, key=lambda second: (second <= self._closed, second)):  # the last are of a clock that was set back
            entry = self._open[second]
            if not serving <= entry.workers and now_s - entry.first_at < WAIT_S:
                break
            del self._open[second]
            self._closed, self.seen = second, entry.workers
            found.append((second, entry.elapsed_s, list(entry.rows.items())))
        return found

    def __repr__(self) -> str:
        return f"<SummedSeconds {len(self._open)} open>"
