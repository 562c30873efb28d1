"""Octets: what is compared, searched and hashed. Compiled, these are C written by hand: held to the Python of the same names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.octets import are_equal, begins, count_equal, find_quote, hash_octets
from support.cases import in_one_loop
from support.python_twin import python_twin

PYTHON = python_twin("common/octets.py")
LONG = 120  # octets: several words, and some octets behind the last


@given(st.binary(max_size=LONG), st.binary(max_size=9), st.data())
def test_octets_are_equal_up_to_the_first_that_differs(text: bytes, before: bytes, data: st.DataObject) -> None:
    other = bytearray(text)
    for place in data.draw(st.lists(st.integers(0, len(text) - 1), max_size=3)) if text else []:
        other[place] ^= data.draw(st.integers(1, 255))
    joined = before + text + bytes(other) + b"behind"
    counted = next((at for at, (one, two) in enumerate(zip(text, other, strict=True)) if one != two), len(text))
    assert count_equal(joined, len(before), len(before) + len(text), len(text)) == counted
    assert are_equal(joined, len(before), joined, len(before) + len(text), len(text)) == (counted == len(text))
    assert are_equal(joined, len(before), bytes(other), 0, len(text)) == (counted == len(text))
    assert begins(before + bytes(other) + b"behind", len(before), text) == (counted == len(text))


@given(st.binary(max_size=LONG), st.binary(max_size=9), st.data())
def test_the_first_quote_is_found_anywhere_and_nothing_else_for_it(text: bytes, before: bytes, data: st.DataObject) -> None:
    near = bytearray(text.replace(b'"', b"#"))
    for place in data.draw(st.lists(st.integers(0, len(near) - 1), max_size=2)) if near else []:
        near[place] = data.draw(st.sampled_from([34, 34 ^ 0x80, 35]))
    joined = before + bytes(near) + b'"' * 9
    assert find_quote(joined, len(before), len(before) + len(near)) == joined.find(b'"', len(before), len(before) + len(near))


@given(st.binary(max_size=LONG), st.binary(max_size=9), st.data())
def test_a_hash_is_that_of_python_wherever_the_octets_lie(text: bytes, before: bytes, data: st.DataObject) -> None:
    found = hash_octets(before + text + b"behind", len(before), len(before) + len(text))
    assert found == hash_octets(text, 0, len(text)) == PYTHON.hash_octets(text, 0, len(text))
    assert 0 <= found < 1 << 32
    if text:
        other = bytearray(text)
        other[data.draw(st.integers(0, len(text) - 1))] ^= data.draw(st.integers(1, 255))
        assert len(text) > 4 or hash_octets(bytes(other), 0, len(text)) != found  # within four octets every difference shows


@in_one_loop
@pytest.mark.parametrize("size", [0, 1, 3, 4, 7, 8, 9, 16, 23])
def test_names_that_are_counted_through_spread_over_a_table(size: int) -> None:
    names = [b"%06d" % number + b"x" * size for number in range(4096)]
    places = {hash_octets(name, 0, len(name)) & 0xFFFF for name in names}
    assert len(places) > 3800  # by chance: 3,971
