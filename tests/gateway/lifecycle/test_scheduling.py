"""Work beside the messages, in slices."""

from __future__ import annotations

from collections.abc import Iterator

import trio
import trio.testing

from gateway.lifecycle.scheduling import run_cooperatively


async def test_beside_long_turns_several_slices_are_done_between_two(mock_clock: trio.testing.MockClock) -> None:
    """80 slices of 0.2 ms, as a fold of 10,000 topics has, beside messages that take 4 ms in each turn of the event loop."""
    turns = 0

    async def event_loop() -> None:
        nonlocal turns
        while True:
            turns += 1
            mock_clock.jump(0.004)
            await trio.lowlevel.checkpoint()

    def slices() -> Iterator[None]:
        for _ in range(80):
            mock_clock.jump(0.0002)
            yield

    async with trio.open_nursery() as nursery:
        nursery.start_soon(event_loop)
        await trio.lowlevel.checkpoint()
        before = turns
        await run_cooperatively(slices())
        found = turns - before
        nursery.cancel_scope.cancel()
    assert 4 <= found <= 30
