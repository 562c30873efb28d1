"""Whole publishes: compiled, they are measured by C written by hand: held to the Python of the same name."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.protocols.amqp.publishes import HEADER_BYTES, HEADER_SHIFT, METHOD_SHIFT, WHOLE, measure_publish
from support.amqp import frames
from support.python_twin import python_twin

PYTHON = python_twin("gateway/protocols/amqp/publishes.py")
LIMIT = 131_072


def test_sizes_are_those_of_the_frames() -> None:
    text = frames.publish(1, "orders.1", b"body", exchange="shop")
    method = int.from_bytes(text[3:7], "big") + 8
    header = int.from_bytes(text[method + 3 : method + 7], "big") + 8
    for known in (0, method):
        found = measure_publish(b"xx" + text + b"more", 2, len(text) + 6, known, 1, LIMIT)
        assert (found >> METHOD_SHIFT, found >> HEADER_SHIFT & HEADER_BYTES, found & WHOLE) == (method, header, len(text))
    assert measure_publish(text, 0, len(text), 0, 2, LIMIT) == -1
    assert measure_publish(text, 0, len(text) - 1, 0, 1, LIMIT) == -1
    assert measure_publish(text, 0, len(text), 0, 1, 3) == -1


@given(
    st.sampled_from(["", "shop", "e" * 127]),
    st.text(st.characters(codec="ascii"), max_size=255),
    st.binary(max_size=40),
    st.binary(max_size=5),
    st.data(),
)
def test_publishes_are_measured_as_python_does(exchange: str, key: str, body: bytes, before: bytes, data: st.DataObject) -> None:
    text = bytearray(frames.publish(3, key, body, exchange=exchange))
    for place in data.draw(st.lists(st.integers(0, len(text) - 1), max_size=2)):
        text[place] = data.draw(st.sampled_from([0, 1, 2, 3, 0x28, 0x3C, 0x7F, 0x80, 0xCE, 0xFF]) | st.integers(0, 255))
    whole = before + bytes(text) + b"\xce" * 9
    end = len(before) + len(text) + data.draw(st.sampled_from([0, 0, 9, -1, -8]))
    method = data.draw(st.sampled_from([0, 0, int.from_bytes(text[3:7], "big") + 8, 7]))
    asked = (whole, len(before), end, min(method, 1 << 40), 3, data.draw(st.sampled_from([LIMIT, LIMIT, 20, 1 << 33])))
    assert measure_publish(*asked) == PYTHON.measure_publish(*asked)
