"""Work beside the messages gives the event loop its turns."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from common.loop_turns import LoopTurns


@pytest.mark.parametrize(("turn_s", "least", "most"), [(0.0, 40, 50), (0.001, 15, 50), (0.008, 3, 20), (1.0, 1, 20)])
async def test_work_takes_as_many_turns_as_messages_wait_for_anyway(
    mock_clock: trio.testing.MockClock, turn_s: float, least: int, most: int
) -> None:
    """45 slices of 0.3 ms beside messages that take `turn_s` in each turn. They run in any order, so one may seem twice as long."""
    turns = 0

    async def event_loop() -> None:
        nonlocal turns
        while True:
            turns += 1
            mock_clock.jump(turn_s)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(event_loop)
        await trio.lowlevel.checkpoint()
        own = LoopTurns(trio.current_time, trio.lowlevel.checkpoint)
        before = turns
        for _ in range(45):
            mock_clock.jump(0.0003)
            await own.give()
        found = turns - before
        nursery.cancel_scope.cancel()
    assert least <= found <= most
