"""How long messages lately waited for a limit, topic by topic: histograms of the last half minute to minute.

Fed where a held message passes or is given up, so the way of a message that nothing holds does not come here. Two generations of half a
minute each: what is older is forgotten with its generation, and no look at the table is needed. Not counted: what waited where a rule pages
(that has figures of its own), and deliveries.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from limiter.keys import Key

GENERATION_NS: Final = 30_000_000_000  # ns; of which the last whole one and the one under way are looked at; a guess
MAX_TOPICS: Final = 1000  # topics; of a generation, whose waits are told apart: half a megabyte; further ones have none; a guess
PER_OCTAVE: Final = 4  # bounds; so that a bound is at most a fifth above what it stands for
OCTAVES: Final = 17  # from 1 ms to 131 s
BOUNDS_MS: Final = tuple(round(2 ** (step / PER_OCTAVE), 3) for step in range(OCTAVES * PER_OCTAVE + 1))

Place = tuple[str, str, str]  # protocol, topic as text, operation


class RecentWaits:
    """The waits of all topics of a process."""

    __slots__ = ("_before", "_began", "_now")

    def __init__(self) -> None:
        self._began = 0  # monotonic ns; of the generation under way
        self._now: dict[Place, list[int]] = {}  # topic -> messages by the bound that their wait does not exceed; the last are above all
        self._before: dict[Place, list[int]] = {}

    def note(self, key: Key, waited_ns: int, messages: int, now: int) -> None:
        """So many messages of `key` have waited for so long, and wait no more."""
        if now - self._began >= GENERATION_NS:
            self._turn(now)
        place = (key.origin.protocol, key.text, key.operation)
        counts = self._now.get(place)
        if counts is None:
            if len(self._now) >= MAX_TOPICS:
                return
            counts = self._now[place] = [0] * (len(BOUNDS_MS) + 1)
        counts[bisect_left(BOUNDS_MS, waited_ns / 1e6)] += messages

    def p99_ms(self, place: Place, now: int) -> float | None:
        """Milliseconds that 99 of 100 messages did not exceed, up to a fifth too high, at most the last bound; None: none has waited."""
        if now - self._began >= GENERATION_NS:
            self._turn(now)
        known = [counts for counts in (self._before.get(place), self._now.get(place)) if counts is not None]
        if not known:
            return None
        counts = known[0] if len(known) == 1 else [one + other for one, other in zip(known[0], known[1], strict=True)]
        left = 0.99 * sum(counts)
        for at, count in enumerate(counts):
            left -= count
            if left <= 0:
                return BOUNDS_MS[min(at, len(BOUNDS_MS) - 1)]
        return BOUNDS_MS[-1]

    def _turn(self, now: int) -> None:
        """Begin a generation. After a pause of two what was before is too old."""
        self._before = self._now if now - self._began < 2 * GENERATION_NS else {}
        self._now = {}
        self._began = now

    def __repr__(self) -> str:
        return f"<RecentWaits of {len(self._now)} and {len(self._before)} topics>"
