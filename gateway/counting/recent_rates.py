"""Mean rates over the last ten seconds: a ring of counts per tick, filled once a second, so that no message pays for it.

One second says little beside a breaker: 1,500/s against a limit of 500/s are 500 passed in one second and none in the next three. Ten
seconds are a mean that stands still while the traffic does. A ring belongs to something that moves, and is dropped once all of it is zero.
"""

from __future__ import annotations

from array import array
from typing import Final

TICKS: Final = 10  # of a second each; the window of every rate that is shown; shorter shows the breaker, longer hides an incident's end


class RecentCounts:
    """Counts of the last TICKS ticks, of `width` things, and how long those ticks took.

    In the first ten seconds the window is as long as the ring has been filled: a flood shows at its full rate after one second.
    """

    __slots__ = ("at", "ring", "sums", "width")

    def __init__(self, width: int) -> None:
        self.width = width
        self.at = 0  # the oldest tick's place in the ring, which the next one takes
        self.ring: array[int] = array("q", bytes(8 * TICKS * (width + 1)))  # per tick: its ns, then its counts
        self.sums = [0] * (width + 1)

    def add(self, seconds: float, counts: tuple[int, ...]) -> None:
        """What one tick counted."""
        sums, ring = self.sums, self.ring
        at = self.at * (self.width + 1)
        nanoseconds = int(seconds * 1e9)
        sums[0] += nanoseconds - ring[at]
        ring[at] = nanoseconds
        for number, count in enumerate(counts, 1):
            sums[number] += count - ring[at + number]
            ring[at + number] = count
        self.at = (self.at + 1) % TICKS

    @property
    def seconds(self) -> float:
        """How long the window is."""
        return self.sums[0] / 1e9

    def rates(self) -> tuple[float, ...]:
        """Each count per second, over the window; zero before the first tick."""
        seconds = max(self.sums[0], 1) / 1e9
        return tuple([count / seconds for count in self.sums[1:]])

    def empty(self) -> bool:
        """Whether nothing was counted in the window."""
        return not any(self.sums[1:])

    def __repr__(self) -> str:
        return f"<RecentCounts {self.sums[1:]} in {self.sums[0] / 1e9:.3f} s>"
