"""What was refused of one connection of late: a count for each of the last ten seconds, written only when something is refused.

The other rates are worked out by a tick each second (`recent_rates.py`). Of ten thousand connections that would be ten thousand rings to go
round, though few are refused. So here the ring turns when it is written or read, by the time that both are given; until the first refusal
there is none.
"""

from __future__ import annotations

from typing import Final

SECOND: Final = 1_000_000_000  # ns
SECONDS: Final = 10  # of each ring; as long as the other rates are means over (`recent_rates.TICKS`)


class RecentRefusals:
    """Messages refused or dropped in each of the last SECONDS seconds, and in all. Times are monotonic ns, and do not go back."""

    __slots__ = ("_began", "_ring", "_second", "total")

    def __init__(self, now: int) -> None:
        self.total = 0
        self._began = now  # the first refusal of those that the ring may still have
        self._second = now // SECOND  # the last one that was written or read
        self._ring = [0] * SECONDS  # by second % SECONDS

    def add(self, messages: int, now: int) -> None:
        second = now // SECOND
        if second != self._second:
            self._forget(second)
            if not any(self._ring):
                self._began = now
        self._ring[second % SECONDS] += messages
        self.total += messages

    def _forget(self, second: int) -> None:
        """Empty the places of the seconds in which nothing was written, and of `second` itself."""
        for each in range(max(self._second + 1, second - SECONDS + 1), second + 1):
            self._ring[each % SECONDS] = 0
        self._second = second

    def per_second(self, now: int) -> float:
        """A mean over the last ten seconds; soon after the first refusal over the time since, and over one second at least."""
        second = now // SECOND
        if second != self._second:
            self._forget(second)
        window = min(now - self._began, now - (second - SECONDS + 1) * SECOND)
        return sum(self._ring) * SECOND / max(window, SECOND)

    def __repr__(self) -> str:
        return f"<RecentRefusals {self._ring}, {self.total} in all>"
