"""Layouts: compiled, headers are compared by C written by hand: held to the Python of the same name."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.protocols.rocketmq.layouts import (
    DIGITS,
    LENGTH_SHIFT,
    MAX_OPAQUE,
    NAME,
    OPAQUE,
    PLACE,
    PLACE_SHIFT,
    TEXT,
    Layout,
    match_layout,
)
from support.python_twin import python_twin

PYTHON = python_twin("gateway/protocols/rocketmq/layouts.py")
SEGMENTS = (b'{"a":"', b'","b":"', b'","e":"', b'","i":"', b'"},"opaque":', b"}")
LAYOUT = Layout(SEGMENTS, bytes([TEXT, NAME, DIGITS, TEXT, OPAQUE]))
NUMBERS = (b"", b"0", b"00", b"7", b"07", b"123", b"9" * 18, b"9" * 19, b"2147483647", b"2147483648")
TEXTS = (b"orders", b'"', b"\\", b'\\"', b"\x80", b"12345\\", b"\\12345", b"n" * 300)
LIKELY = st.sampled_from((*NUMBERS, *TEXTS))


def joined(values: list[bytes]) -> bytes:
    return b"".join(one + other for one, other in zip(SEGMENTS, [*values, b""], strict=True))


def test_what_varies_is_found() -> None:
    text = joined([b"group", b"orders", b"3", b"KEYS", b"77"])
    found = match_layout(LAYOUT.plan, LAYOUT.text, b"before" + text + b"behind", 6, 6 + len(text))
    assert found & MAX_OPAQUE == 77
    place = found >> PLACE_SHIFT & PLACE
    assert text[place : place + (found >> LENGTH_SHIFT)] == b"orders"
    assert match_layout(LAYOUT.plan, LAYOUT.text, text + b" ", 0, len(text) + 1) == -1
    assert match_layout(LAYOUT.plan, LAYOUT.text, text, 0, len(text) - 1) == -1


@given(st.lists(LIKELY | st.binary(max_size=20), min_size=5, max_size=5), st.binary(max_size=9), st.data())
def test_headers_fit_as_python_says(values: list[bytes], before: bytes, data: st.DataObject) -> None:
    text = bytearray(joined(values))
    for place in data.draw(st.lists(st.integers(0, len(text) - 1), max_size=2)):
        text[place] = data.draw(st.sampled_from(b'"\\09{}\x80a'))
    whole = before + bytes(text) + b'"0}'
    end = len(before) + len(text) - data.draw(st.sampled_from([0, 0, 0, 1, 7]))
    asked = (LAYOUT.plan, LAYOUT.text, whole, len(before), end)
    assert match_layout(*asked) == PYTHON.match_layout(*asked)


def test_a_name_that_is_too_long_for_its_place_fits_nothing() -> None:
    for length, fits in ((0x3FFF, True), (0x4000, False)):
        text = joined([b"group", b"n" * length, b"3", b"KEYS", b"77"])
        for of in (match_layout, PYTHON.match_layout):
            assert (of(LAYOUT.plan, LAYOUT.text, text, 0, len(text)) >= 0) == fits
