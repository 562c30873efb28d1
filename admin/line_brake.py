"""A bound on how many lines of one kind are written to the journal."""

from __future__ import annotations

from typing import Final

SECOND: Final = 1_000_000_000  # ns


class LineBrake:
    """At most so many journal lines a second; the others are counted."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._began = 0
        self._lines = 0
        self._left_out = 0

    def admit(self, now: int) -> int:
        """How many lines were left out before this one; -1 to leave this one out too. `now` is monotonic ns."""
        if not self._began or now - self._began >= SECOND:
            self._began, self._lines = now, 0
        self._lines += 1
        if self._lines > self._per_second:
            self._left_out += 1
            return -1
        left_out, self._left_out = self._left_out, 0
        return left_out
