"""How work beside the messages shares the event loop with them: at common ticks, and in slices.

Each time the process wakes costs 100 to 400 µs of processor, cold caches and trio's own turn included, whatever is done then. So tasks
that look around a few times a second do it at the same moments, the whole multiples of TICK_S: one waking serves them all. One timer does,
too (`wait_for_tick`): each of trio's sleeps ends as a cancelled one, with an exception. With both, an idle gateway runs a third fewer
instructions (2026-11).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final, TypeVar

import trio

from common.loop_turns import LoopTurns

REST: Final = 2  # times as long as a slice of a list for operators took, messages go first; a guess
MAX_REST_S: Final = 0.01  # seconds; after one slice
T = TypeVar("T")

TICK_S: Final = 0.25  # seconds; between two ticks, for deadlines and heartbeats: heartbeats are at least 1 s apart


def tick_time(wait_s: float = TICK_S) -> float:
    """The last tick (a whole multiple of TICK_S in trio's time) that is at most `wait_s` from now. `wait_s` is at least TICK_S."""
    return ((trio.current_time() + wait_s) // TICK_S) * TICK_S


class SharedTicker:
    """Wakes all waiters at the next tick with one trio timer: the first waiter sleeps until then, and if it is cancelled, the next."""

    def __init__(self) -> None:
        self._others = trio.lowlevel.ParkingLot()
        self._asleep = False
        self._late_s = 0.0  # how late the last tick came for the waiter that slept until it

    async def wait(self) -> float:
        due = tick_time()
        while trio.current_time() < due:
            if self._asleep:
                await self._others.park()
                continue
            self._asleep = True
            try:
                await trio.sleep_until(due)
                self._late_s = trio.current_time() - due
            finally:
                self._asleep = False
                self._others.unpark_all()
        return self._late_s


_ticker: Final[trio.lowlevel.RunVar[SharedTicker]] = trio.lowlevel.RunVar("ticker")


async def wait_for_tick() -> float:
    """Wait for the next tick with all other waiters. Returns how late the timer was, in seconds, without the other waiters' work."""
    try:
        ticker = _ticker.get()
    except LookupError:
        ticker = SharedTicker()
        _ticker.set(ticker)
    return await ticker.wait()


async def run_cooperatively(slices: Iterator[None]) -> None:
    """Do all slices of a piece of work, with the turns of the event loop that are due between them."""
    turns = LoopTurns(trio.current_time, trio.lowlevel.checkpoint)
    for _ in slices:
        await turns.give()


async def compute_cooperatively(slices: Generator[None, None, T]) -> T:
    """What a piece of work returns, with a turn of the event loop after each of its slices."""
    while True:
        try:
            next(slices)
        except StopIteration as end:
            result: T = end.value
            return result
        await trio.lowlevel.checkpoint()


async def collect_cooperatively(slices: Iterator[list[T]]) -> list[T]:
    """One list for operators out of its slices. Messages go first: after each there is a rest of REST times as long."""
    found: list[T] = []
    started = trio.current_time()
    for part in slices:
        found += part
        await trio.sleep(min(REST * (trio.current_time() - started), MAX_REST_S))
        started = trio.current_time()
    return found
