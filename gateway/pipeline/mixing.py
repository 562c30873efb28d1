"""Mixing: when requests of several keys that follow one another go as one part (`Request.columns`)."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

MIN_MIXED_AHEAD: Final = 3  # requests that are still to come, as large as the last: two or three are cheaper as parts (2026-11)
MIN_PAUSE: Final = 4  # runs that go as parts after one that had to be cut: to cut one costs some tenths of it; a guess
MAX_PAUSE: Final = 60  # the same where one after the other had to be cut; a guess


class Mixing:
    """Whether the runs of a connection are mixed: not for some after one that had to be cut, the more the more often that was so.

    After a run of few, as of a client whose threads have a channel each, the next one begins with parts: it may be as short.
    """

    def __init__(self) -> None:
        self.begun = False  # the connection mixes at all
        self.apart: i64 = 0  # parts that the next run begins with
        self._made = False  # a run was, since the last was cut
        self._pause: i64 = 0  # runs
        self._left: i64 = 0  # of the present pause

    def begin_run(self) -> bool:
        """Whether the next run is mixed."""
        if self._left > 0:
            self._left -= 1
            return False
        if self._made:
            self._pause = 0  # the last one passed
        self._made = True
        return True

    def note_cut(self) -> None:
        """The last run was cut. On the thread that judges it: then no other run begins."""
        self._made = False
        self._pause = min(2 * self._pause + MIN_PAUSE, MAX_PAUSE)
        self._left = self._pause
