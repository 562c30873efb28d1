"""What a snapshot says beside topics: listeners and their brokers in short, limits that are over, and what the gateway adds in time.

All of it is a few items, however many topics and connections there are, and made once a second for all readers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from heapq import nlargest
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from msgspec import convert

from common.views.snapshot import ListenerInShortView, OverheadView

if TYPE_CHECKING:
    from common.views.limits import OverLimitView
    from common.views.listeners import ListenerView

MOST_OVER: Final = 50  # limits; that are over and shown, those that refuse most first; a guess
WINDOW: Final = 10  # snapshots, a second apart, that the time added is worked out over


def shorten(listeners: Iterable[ListenerView]) -> list[ListenerInShortView]:
    """The listeners of `GET /v1/listeners`, in short."""
    return [convert(listener, ListenerInShortView, from_attributes=True) for listener in listeners]


def over_limits(over: Iterable[OverLimitView]) -> list[OverLimitView]:
    """Limits that are over now, those that refuse most first."""
    return nlargest(MOST_OVER, over, key=lambda item: (item.rate, item.refused))


def add_counts(views: list[list[int]]) -> list[int]:
    """The counts of one histogram over several processes."""
    return [sum(column) for column in zip(*views, strict=True)]


class RecentOverhead:
    """What the gateway adds to messages in time, over the last seconds: from a histogram's counts, looked at once a second."""

    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds`: seconds, ascending; one count more than these lies above the last."""
        self._bounds = bounds
        self._looks: deque[tuple[float, list[int]]] = deque(maxlen=WINDOW)

    def look(self, counts: Sequence[int], now_s: float) -> OverheadView | None:
        """Milliseconds that half of the batches, and 99 of 100, did not exceed since WINDOW looks ago; None: there were none.

        A bucket's upper bound; of what lies above the last bound, that bound. `now_s`: monotonic seconds; what was seen at looks long ago,
        when somebody read snapshots last, does not count.
        """
        looks = self._looks
        while looks and now_s - looks[0][0] > 2 * WINDOW:
            looks.popleft()
        before = looks[0][1] if looks else counts
        recent = [max(0, now - then) for now, then in zip(counts, before, strict=True)]
        looks.append((now_s, list(counts)))
        total = sum(recent)
        if not total:
            return None
        return OverheadView(p50=self._quantile(recent, 0.5 * total), p99=self._quantile(recent, 0.99 * total))

    def _quantile(self, counts: list[int], wanted: float) -> float:
        seen = accumulate(counts)
        return next(round(bound * 1e3, 3) for bound, sums in zip((*self._bounds, self._bounds[-1]), seen, strict=True) if sums >= wanted)

    def __repr__(self) -> str:
        return f"<RecentOverhead of {len(self._looks)} looks>"
