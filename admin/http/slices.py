"""How work for operators shares the event loop with the messages: in slices, one at a time, with a rest after each of a long list."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Final, TypeVar

import trio

from common.loop_turns import LONG_TURN_S

T = TypeVar("T")
U = TypeVar("U")

REST: Final = 2  # times as long as a slice took, messages go first: long lists take a third of the processor at most; a guess
SLICE_S: Final = 0.0003  # seconds; as long as messages may wait for one
MAX_REST_S: Final = 0.01  # seconds; after one slice

_turn: Final[trio.lowlevel.RunVar[trio.Lock]] = trio.lowlevel.RunVar("admin_turn")


async def rest_after(started: float) -> None:
    """Give the event loop its turns after a slice of a long list: REST times as long as the slice took, but not for long."""
    await trio.sleep(min(REST * (trio.current_time() - started), MAX_REST_S))


async def rest_if_due(started: float) -> float:
    """The same once as much has been done as one slice may take; when the next began.

    Where a slice takes far less: a rest is a millisecond at least, as the kernel's clock has it.
    """
    if trio.current_time() - started < SLICE_S:
        return started
    await rest_after(started)
    return trio.current_time()


async def in_steps(work: Generator[None, None, T]) -> T:
    """What a piece of work returns, with a rest once its steps have taken as long as one slice may."""
    started = trio.current_time()
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
        started = await rest_if_due(started)


async def in_slices(work: Callable[[T], U], items: Sequence[T], per_slice: int) -> list[U]:
    """What `work` makes of each of `items`, with a rest after every `per_slice` of them."""
    found: list[U] = []
    for first in range(0, len(items), per_slice):
        started = trio.current_time()
        found += map(work, items[first : first + per_slice])
        await rest_after(started)
    return found


async def yield_to_loop() -> None:
    """Wait for a turn of the event loop in which no other request or stream is worked on; they take turns in the order they came.

    Eight streams that get the same snapshot would else make their messages one after another before the next message of a client is
    looked at (`bench/admin_load.py`). A long wait for a lock that was free was the event loop's turn; beside a stream, five more of these
    in each request took 15 ms.
    """
    try:
        turn = _turn.get()
    except LookupError:
        turn = trio.Lock()
        _turn.set(turn)
    free, asked = not turn.locked(), trio.current_time()
    async with turn:
        if free and trio.current_time() - asked > LONG_TURN_S:
            return
        await trio.lowlevel.checkpoint()  # trio runs the tasks of a round in any order: without it two could follow each other
