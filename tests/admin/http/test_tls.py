"""Whose step of a TLS handshake is next (`tls.py`). Handshakes as a whole: tests/admin/test_reach.py."""

from __future__ import annotations

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from admin.http.tls import _Pace


async def test_addresses_take_turns_and_within_one_the_first_is_first(autojump_clock: MockClock) -> None:
    """In one line, an operator's two steps came after a hundred others each: seconds, at 10 ms for a step of RSA with the rest after it."""
    pace, made = _Pace(), list[str]()

    async def step(address: str, number: int) -> None:
        await pace.turn(address)
        made.append(f"{address}{number}")
        pace.free_at = trio.current_time() + 1

    pace.free_at = trio.current_time() + 1
    async with trio.open_nursery() as nursery:
        for address, count in {"a": 100, "b": 2, "c": 1}.items():
            for number in range(count):
                nursery.start_soon(step, address, number)
                await wait_all_tasks_blocked()
        assert made == []
    assert made[:7] == ["a0", "a1", "b0", "c0", "a2", "b1", "a3"]
    assert made[7:] == [f"a{number}" for number in range(4, 100)]
    await step("a", 100)


async def test_a_handshake_that_is_cut_off_leaves_the_line_and_passes_its_turn_on(autojump_clock: MockClock) -> None:
    pace, made = _Pace(), list[str]()
    pace.free_at = trio.current_time() + 1
    scopes = {name: trio.CancelScope() for name in ("turn", "waits", "goes on")}

    async def step(name: str) -> None:
        with scopes[name]:
            await pace.turn(name)
            made.append(name)

    async with trio.open_nursery() as nursery:
        for name in scopes:
            nursery.start_soon(step, name)
            await wait_all_tasks_blocked(0)
        for name in ("turn", "waits"):
            scopes[name].cancel()
    assert made == ["goes on"]
    assert (pace._lines, pace._taken) == ({}, False)
