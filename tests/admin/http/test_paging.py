"""Pages of lists that come slice by slice: what each turn of the event loop does for them is bounded."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from admin.authentication.auth import Actor, Role
from admin.http import paging
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


@given(
    names=st.sets(st.integers(0, 10**6), max_size=400),
    first=st.integers(0, 450),
    count=st.integers(1, 60),
    part=st.sampled_from([1, 40, 500]),
)
def test_a_part_of_a_long_list_in_order_is_that_of_the_sorted_list(names: set[int], first: int, count: int, part: int) -> None:
    items = [("amqp", f"t{number}", "produce") for number in names]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paging, "SORTED_AT_ONCE", part)
        patch.setattr(paging, "SAMPLE", min(part, 16))
        assert trio.run(paging.in_order, items, first, count) == sorted(items)[first : first + count]


async def test_the_last_of_100_000_are_found_without_sorting_them() -> None:
    items = [("amqp", Name(f"{number * 7919 % 100_000:06}"), "produce") for number in range(100_000)]
    Name.compared = 0
    assert [name for _, name, _ in await paging.in_order(items, 99_950, 60)] == [f"{number:06}" for number in range(99_950, 100_000)]
    assert Name.compared < 400_000, "to sort them takes 1,600,000"


@given(
    values=st.lists(st.sampled_from([0.1, 0.2, 0.3, 7.0]) | st.floats(0, 9, allow_nan=False), min_size=1, max_size=300),
    at=st.floats(0, 1, exclude_max=True),
    part=st.sampled_from([1, 40, 500]),
)
def test_the_value_at_a_place_is_that_of_the_sorted_list_however_many_are_alike(values: list[float], at: float, part: int) -> None:
    place = int(at * len(values))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paging, "SORTED_AT_ONCE", part)
        patch.setattr(paging, "SAMPLE", min(part, 16))
        assert trio.run(paging.value_at, values, place) == sorted(values, reverse=True)[place]
