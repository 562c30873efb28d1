"""The topics to which something happened in the last second, with their rates: rows for the series (`admin/series_store.py`).

Once a second, after the accounts have worked out the rates. Those that moved, and those where messages wait, held by a limit, while nothing
moves, are on lists of the accounts. So it costs nothing for topics at rest, however many.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gateway.counting.accounts import Accounts, Place

SLICE: Final = 200  # topics; between two turns of the event loop: 0.2 ms (measured 2026-11)
KEPT: Final = 10  # seconds; that a worker keeps for a parent that does not ask; the oldest are given up

Values = tuple[float, ...]  # `admin.series_store.FIELDS`
Row = tuple["Place", Values]
Second = tuple[int, float, list[Row]]  # when it began (since 1970), how long it took, what moved


class MovingTopics:
    """Makes the rows of each second."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    def rows(self) -> Generator[None, None, list[Row]]:
        """In slices."""
        found: dict[Place, Values] = {}
        for number, totals in enumerate(self._accounts.active_topics(), 1):
            received, forwarded, refused, size = totals.last_rates
            waiting = totals.waiting
            if received or forwarded or refused or waiting:
                found[totals.place] = (received, forwarded, refused, size, float(waiting))
            if number % SLICE == 0:
                yield
        return list(found.items())


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
