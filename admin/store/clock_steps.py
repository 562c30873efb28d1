"""Steps of the wall clock, and which ends of live changes are to be believed.

What a live change ends by is the time of day. The naive way removes it from the disk when the clock says so; but a clock that is an hour
ahead says so of all that ends within that hour, and they are gone when it is put right. So what has ended does not hold, at once, and is
removed only where the clock is to be believed: of an end that it came to by running, or that it has been past for BELIEVE_S. An end that
it was past at the start, or jumped over, waits so long; NTP sets a clock right within minutes. If it is put back, the change holds again.

A step is seen against CLOCK_BOOTTIME, which nobody sets. A clock that is wrong and runs steadily for longer cannot be told from a right
one; then the history has what was removed (action: expiry), with its value.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

STEP_S: Final = 2.0  # by which the clock has moved on its own within a look; NTP slews less than 1 ms in a second (adjtimex(2): 500 ppm)
BELIEVE_S: Final = 900.0  # for a clock that was set to be set again; NTP clients have asked several times by then (a guess)


def since_boot() -> float:
    """Seconds that no setting of the clock changes, suspended or not."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class ClockSteps:
    """Watches one wall clock; without a steady one beside it (`None`) it is believed as it is."""

    def __init__(self, wall_clock: Callable[[], float], steady: Callable[[], float] | None) -> None:
        self._wall_clock = wall_clock
        self._believed = steady is None
        self._steady = steady or wall_clock
        self._offset = self._wall_clock() - self._steady()
        self._begun = (self._wall_clock(), self._steady())  # the start, or after the last step

    def look(self) -> float:
        """By how many seconds the clock was set forward (below 0: back) since the last look; 0 where it ran."""
        wall, steady = self._wall_clock(), self._steady()
        step = wall - steady - self._offset
        self._offset = wall - steady
        if abs(step) < STEP_S:
            return 0.0
        self._begun = (wall, steady)
        return step

    def believes(self, end: float) -> bool:
        """Whether the clock may be believed that `end`, which lies behind it, is over."""
        wall, steady = self._begun
        return self._believed or end > wall or self._steady() - steady >= BELIEVE_S

    def __repr__(self) -> str:
        return f"<ClockSteps steady for {self._steady() - self._begun[1]:.0f} s>"
