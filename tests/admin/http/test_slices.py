"""Requests and streams take turns with the event loop, one in each."""

from __future__ import annotations

from collections.abc import Generator

import pytest
import trio
import trio.testing

from admin.http.slices import SLICE_S, in_steps, yield_to_loop


@pytest.mark.parametrize("turn_s", [0.0, 0.008])
async def test_one_request_works_in_each_turn_of_the_event_loop(mock_clock: trio.testing.MockClock, turn_s: float) -> None:
    """All wake at once, as streams do for a snapshot; whoever runs in every turn, as the event loop does, runs between any two of them."""
    woken, turns = trio.Event(), 0
    worked: list[tuple[int, int]] = []  # the turn, who

    async def event_loop() -> None:
        nonlocal turns
        while True:
            turns += 1
            mock_clock.jump(turn_s)
            await trio.lowlevel.checkpoint()

    async def stream(number: int) -> None:
        await woken.wait()
        await yield_to_loop()
        worked.append((turns, number))
        if len(worked) == 8:
            nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(event_loop)
        for number in range(8):
            nursery.start_soon(stream, number)
        await trio.lowlevel.checkpoint()
        woken.set()
    assert len({turn for turn, _ in worked}) == 8, "two worked in one turn"
    assert worked[-1][0] - worked[0][0] < 20, "turns were left unused"


async def test_beside_long_turns_a_request_waits_for_one_and_not_for_two(mock_clock: trio.testing.MockClock) -> None:
    """Tasks run in any order, so one in four waits for a second."""
    turns = 0

    async def event_loop() -> None:
        nonlocal turns
        while True:
            turns += 1
            mock_clock.jump(0.008)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(event_loop)
        await trio.lowlevel.checkpoint()
        before = turns
        for _ in range(40):
            worked = turns
            await yield_to_loop()
            assert turns > worked, "it worked twice in one turn"
        found = turns - before
        nursery.cancel_scope.cancel()
    assert found < 70


async def test_who_gives_up_waiting_does_not_keep_the_others() -> None:
    done: list[str] = []

    async def impatient() -> None:
        with trio.CancelScope() as scope:
            scope.cancel()
            await yield_to_loop()
            done.append("impatient")

    async def patient() -> None:
        await yield_to_loop()
        done.append("patient")

    async with trio.open_nursery() as nursery:
        for work in (impatient, patient, impatient, patient):
            nursery.start_soon(work)
    assert done == ["patient", "patient"]


async def test_work_rests_once_its_steps_have_taken_as_long_as_a_slice(autojump_clock: trio.testing.MockClock) -> None:
    turns = 0

    class Turns(trio.abc.Instrument):
        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            nonlocal turns
            turns += task is worker

    def work() -> Generator[None, None, list[int]]:
        found = []
        for _ in range(30):
            autojump_clock.jump(SLICE_S / 2.5)
            found.append(turns)
            yield
        return found

    worker = trio.lowlevel.current_task()
    trio.lowlevel.add_instrument(Turns())
    assert await in_steps(work()) == [number // 3 for number in range(30)]
