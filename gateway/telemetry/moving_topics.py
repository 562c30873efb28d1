"""The topics to which something happened in the last second, with their rates: rows for the series (`admin/series_store.py`).

Once a second, after the accounts have worked out the rates. Those that moved are on a list of the accounts; those where messages wait,
held by a limit, while nothing moves, are remembered here. So it costs nothing for topics at rest, however many.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gateway.counting.accounts import Accounts, Place, TopicTotals

SLICE: Final = 200  # topics; between two turns of the event loop: 0.2 ms (measured 2026-11)
KEPT: Final = 10  # seconds; that a worker keeps for a parent that does not ask; the oldest are given up

Values = tuple[float, ...]  # `admin.series_store.FIELDS`
Row = tuple["Place", Values]
Second = tuple[int, float, list[Row]]  # when it began (since 1970), how long it took, what moved


class MovingTopics:
    """Makes the rows of each second."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self._held: dict[Place, TopicTotals] = {}  # where messages waited at the end of the last second

    def rows(self) -> Generator[None, None, list[Row]]:
        """In slices."""
        held, self._held = self._held, {}
        found: dict[Place, Values] = {}
        for number, totals in enumerate(self._accounts.moving_topics(), 1):
            place = (totals.protocol, totals.text, totals.operation)
            held.pop(place, None)
            self._note(place, totals, found)
            if number % SLICE == 0:
                yield
        for number, (place, totals) in enumerate(held.items(), 1):
            self._note(place, totals, found)
            if number % SLICE == 0:
                yield
        return list(found.items())

    def _note(self, place: Place, totals: TopicTotals, found: dict[Place, Values]) -> None:
        """Of two of the same name, one of which is forgotten, the later counts."""
        received, forwarded, refused, size = totals.last_rates
        waiting = totals.waiting
        if waiting:
            self._held[place] = totals
        if received or forwarded or refused or waiting:
            found[place] = (received, forwarded, refused, size, float(waiting))
        else:
            found.pop(place, None)


class SecondsToReport:
    """A worker's last seconds, until its parent asks for them."""

    def __init__(self) -> None:
        self._kept: deque[Second] = deque(maxlen=KEPT)

    def close_second(self, second: int, elapsed_s: float, rows: list[Row]) -> Iterator[None]:
        self._kept.append((second, elapsed_s, rows))
        yield

    def take(self) -> list[Second]:
        """Those since it was asked last."""
        kept = list(self._kept)
        self._kept.clear()
        return kept
