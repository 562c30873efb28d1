"""Octets: comparing stretches of one buffer, word by word."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocols import octets
from gateway.protocols.octets import begins, count_equal_bytes, find_quote, same

LONG = 120  # octets: more than are looked at in words


@pytest.fixture(params=["as built", "in words"], scope="module", autouse=True)
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Only compiled code looks at words: the same code is tested without being compiled."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "in words":
            patch.setattr(octets, "LONG", 96)
        yield


@given(st.binary(min_size=8, max_size=LONG), st.data())
def test_alike_counts_the_octets_before_the_first_that_differs(text: bytes, data: st.DataObject) -> None:
    other = bytearray(text)
    for place in data.draw(st.lists(st.integers(0, len(text) - 1), max_size=3)):
        other[place] ^= data.draw(st.integers(1, 255))
    before = data.draw(st.binary(max_size=9))
    joined = before + text + bytes(other) + b"behind"
    counted = next((at for at, (one, two) in enumerate(zip(text, other, strict=True)) if one != two), len(text))
    assert count_equal_bytes(joined, len(before), len(before) + len(text), len(text)) == counted
    assert same(joined, len(before), len(before) + len(text), len(text)) == (counted == len(text))


@given(st.binary(max_size=LONG), st.binary(max_size=9), st.data())
def test_begins_says_whether_a_text_stands_there(text: bytes, before: bytes, data: st.DataObject) -> None:
    there = bytearray(text)
    for place in data.draw(st.lists(st.integers(0, len(text) - 1), max_size=1)) if text else []:
        there[place] ^= data.draw(st.integers(1, 255))
    assert begins(before + bytes(there) + b"behind", len(before), text) == (there == text)


@given(st.binary(max_size=LONG), st.binary(max_size=9), st.data())
def test_find_quote_finds_the_first_anywhere_and_nothing_else_for_it(text: bytes, before: bytes, data: st.DataObject) -> None:
    near = bytearray(text.replace(b'"', b"#"))
    for place in data.draw(st.lists(st.integers(0, len(near) - 1), max_size=2)) if near else []:
        near[place] = data.draw(st.sampled_from([34, 34 ^ 0x80, 35]))
    joined = before + bytes(near) + b'"' * 9
    assert find_quote(joined, len(before), len(before) + len(near)) == joined.find(b'"', len(before), len(before) + len(near))
