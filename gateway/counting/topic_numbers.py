"""What there is to sort topics by, and the sums of their rates: loops over many topics, compiled, for whoever shows a few of them.

An open page asks for both each second or two. Of 100,000 topics that all move, the same loops took a fifth of a core in pure Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gateway.counting.accounts import Place, TopicTotals

RECEIVED: Final = 0
FORWARDED: Final = 1
REFUSED: Final = 2
BYTES: Final = 3
WAITING: Final = 4
MOVING: Final = 5
SHADOW_REFUSED: Final = 6
TROUBLE: Final = 7
KINDS: Final = {
    "received_per_second": RECEIVED,
    "forwarded_per_second": FORWARDED,
    "refused_per_second": REFUSED,
    "bytes_per_second": BYTES,
    "waiting": WAITING,
    "moving": MOVING,
    "shadow_refused": SHADOW_REFUSED,
    "trouble": TROUBLE,
}
Trouble = tuple[float, float, float]  # refused a second, waiting, received a second


def note_numbers(some: list[TopicTotals], kind: int, weights: Trouble, found: dict[Place, float]) -> None:
    """Put one of the numbers of each topic of which it is not 0 into `found`. `weights`: of TROUBLE."""
    for totals in some:
        received, forwarded, refused, size = totals.rates
        if kind == RECEIVED:
            number = received
        elif kind == FORWARDED:
            number = forwarded
        elif kind == REFUSED:
            number = refused
        elif kind == BYTES:
            number = size
        elif kind == WAITING:
            number = float(totals.waiting)
        elif kind == MOVING:
            number = received + forwarded + totals.waiting
        elif kind == SHADOW_REFUSED:
            number = float(totals.shadow_refused)
        else:
            number = refused * weights[0] + totals.waiting * weights[1] + received * weights[2]
        if number != 0.0:
            found[totals.place] = number


class Worst:
    """The sums of the rates of topics, and those with most trouble: of what is refused, then of what waits, then of what comes."""

    def __init__(self, most: int) -> None:
        self.received = 0.0
        self.forwarded = 0.0
        self.refused = 0.0
        self.bytes = 0.0
        self._most = most
        self._found: list[tuple[Trouble, Place]] = []
        self._least: Trouble = (0.0, 0.0, 0.0)  # only what is worse is of interest

    def add(self, some: list[TopicTotals]) -> None:
        for totals in some:
            received, forwarded, refused, size = totals.rates
            self.received += received
            self.forwarded += forwarded
            self.refused += refused
            self.bytes += size
            trouble = (refused, float(totals.waiting), received)
            if trouble > self._least:
                self._found.append((trouble, totals.place))
        if len(self._found) > 2 * self._most:
            self._cut()

    def _cut(self) -> None:
        self._found.sort(key=lambda entry: entry[0], reverse=True)
        del self._found[self._most :]
        if len(self._found) == self._most:
            self._least = self._found[-1][0]

    def list_troubles(self) -> dict[Place, Trouble]:
        """Those with most, the worst first."""
        self._cut()
        return {place: trouble for trouble, place in self._found}

    def __repr__(self) -> str:
        return f"<Worst {len(self._found)}>"
