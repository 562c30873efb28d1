"""Turns of the event loop while work beside the messages goes on: after each of its slices, or where the turns are long, after several."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

LONG_TURN_S: Final = 0.001  # seconds; from here on a turn is one that a slice is measured by; a guess
PART: Final = 0.5  # of the turn before it, that a slice may take; a scrape of 10,000 topics takes a seventh longer with 0.25 (2026-12)
MAX_SLICE_S: Final = 0.004  # seconds; such a slice; a guess


class LoopTurns:
    """The turns within one piece of work.

    Beside a stream that takes a whole processor a turn takes 1 to 8 ms, and a scrape of 10,000 topics had more than a hundred of them. A
    message that waits for such a turn waits half as long again at most.
    """

    def __init__(self, clock: Callable[[], float], turn: Callable[[], Awaitable[None]]) -> None:
        """`clock`: seconds. `turn`: waits for one."""
        self._clock = clock
        self._turn = turn
        self._began = clock()
        self._slice_s = 0.0  # that the slice which began may take

    async def give(self) -> None:
        """A turn, if it is due."""
        now = self._clock()
        if now - self._began < self._slice_s:
            return
        await self._turn()
        self._began = self._clock()
        turn_s = self._began - now
        self._slice_s = min(PART * turn_s, MAX_SLICE_S) if turn_s > LONG_TURN_S else 0.0
