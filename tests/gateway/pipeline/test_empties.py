from __future__ import annotations

from gateway.pipeline.empties import NO_ENTRIES, NO_ITEMS, added, put


def test_the_first_item_makes_a_list_of_ones_own_and_the_next_goes_into_it() -> None:
    first: list[str] = added(NO_ITEMS, "a")
    second = added(first, "b")
    assert second is first
    assert (first, NO_ITEMS) == (["a", "b"], [])


def test_the_first_entry_makes_a_dictionary_of_ones_own_and_the_next_goes_into_it() -> None:
    first: dict[int, str] = put(NO_ENTRIES, 1, "a")
    second = put(put(first, 2, "b"), 1, "c")
    assert second is first
    assert (first, NO_ENTRIES) == ({1: "c", 2: "b"}, {})
