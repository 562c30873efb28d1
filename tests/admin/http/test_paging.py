"""Pages of lists that come slice by slice: what each turn of the event loop does for them is bounded."""

from __future__ import annotations

import pytest
import trio

from admin.authentication.auth import Actor, Role
from admin.http.paging import LIMIT, Selection, page
from admin.http.parsing import Head
from admin.http.routing import Request

NAMES = 20_000
IN_ONE_TURN = 10_000  # comparisons: 200 items out of 100 runs are some 3,000


class Name(str):
    """A name that counts how often names are compared."""

    __slots__ = ()
    compared = 0

    def __lt__(self, other: str) -> bool:
        Name.compared += 1
        return str.__lt__(self, other)


async def test_a_client_that_adds_the_cursor_to_its_first_address_gets_every_page() -> None:
    names, found, query = [f"t{number:03}" for number in range(300)], [], {"offset": "100", "limit": "50"}
    while True:
        request = Request("1", Head("GET", "/v1/topics", "", {}, 0), Actor("anna", Role.VIEWER, "127.0.0.1"), {}, query, 0)
        items, following = await page(names, lambda name: (0.0, name), request)
        found += items
        if following is None:
            break
        query["cursor"] = following
    assert found == names[100:]


@pytest.mark.parametrize("at_a_time", [1, 7, 200])
async def test_an_export_of_items_that_come_singly_is_merged_in_small_turns(at_a_time: int) -> None:
    names = [Name(f"{number * 7919 % NAMES:06}") for number in range(NAMES)]
    head = Head("GET", "/v1/limits", "", {}, 0)
    request = Request("1", head, Actor("anna", Role.VIEWER, "127.0.0.1"), {}, {LIMIT.name: str(NAMES)}, 0)
    chosen: Selection[Name] = Selection(lambda name: (0.0, name), request)
    for first in range(0, NAMES, at_a_time):
        chosen.add(names[first : first + at_a_time])
    before, turns = Name.compared, [0]

    async def event_loop() -> None:
        nonlocal before
        while True:
            turns.append(Name.compared - before)
            before = Name.compared
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(event_loop)
        await trio.lowlevel.checkpoint()
        found, following = await chosen.ended()
        nursery.cancel_scope.cancel()
    assert (found, following) == (sorted(names), None)
    assert max(turns) < IN_ONE_TURN
