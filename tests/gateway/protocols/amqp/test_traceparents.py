"""The trace context of publishes, in whatever table a client sends."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, header

from gateway.protocols.amqp.traceparents import traceparent_of, traceparents
from support.amqp import frames as amqp

VALUE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def publish(headers: dict[str, Any] | None, body: bytes = b"hello", **properties: Any) -> bytes:
    content = header.ContentHeader(body_size=len(body), properties=commands.Basic.Properties(headers=headers, **properties))
    frames = amqp.method(1, commands.Basic.Publish(exchange="orders", routing_key="created")) + amqp.method(1, content)
    return frames + (amqp.raw_frame(3, 1, body) if body else b"")


def found(data: bytes) -> bytes:
    return traceparent_of(data, 0, len(data))


@pytest.mark.parametrize(
    "properties", [{}, {"content_type": "text/plain"}, {"content_type": "a/b", "content_encoding": "gzip", "priority": 3}]
)
@pytest.mark.parametrize("before", [{}, {"a": 1, "b": "x" * 300, "c": True, "d": 1.5, "e": None, "f": {"g": [1, "h"]}, "i": -1 << 40}])
def test_the_entry_is_found_wherever_it_stands(properties: dict[str, Any], before: dict[str, Any]) -> None:
    assert found(publish({**before, "traceparent": VALUE, "z": 1}, **properties)) == VALUE.encode()


@pytest.mark.parametrize(
    "headers",
    [
        None,
        {},
        {"tracestate": "a=b"},
        {"Traceparent": VALUE},
        {"xtraceparent": VALUE},
        {"traceparent": 5},
        {"traceparent": bytearray(VALUE.encode())},  # type x
        {"inner": {"traceparent": VALUE}},
        {"text": f"traceparentS\0\0\0\x37{VALUE}"},
        {"traceparent": "long" * 1000},
    ],
)
def test_what_only_looks_like_it_is_not_taken(headers: dict[str, Any] | None) -> None:
    assert found(publish(headers)) == b""


def test_the_word_in_a_body_or_another_property_is_not_taken() -> None:
    entry = b"\x0btraceparentS\0\0\0\x37" + VALUE.encode()
    assert found(publish(None, body=entry)) == b""
    assert found(publish({"a": "b"}, body=entry, message_id="traceparent", content_type="traceparent")) == b""


def test_each_publish_of_a_run_has_its_own() -> None:
    values = [VALUE[:-3] + f"-{number:02x}" for number in range(4)]
    run = b"".join(publish({"traceparent": value}, body=b"x" * (10_000 if number == 1 else 0)) for number, value in enumerate(values))
    assert traceparents(run, 0, len(run), 10) == [value.encode() for value in values]
    assert traceparents(run, 0, len(run), 2) == [value.encode() for value in values[:2]]


def test_a_publish_whose_body_is_still_coming_in_has_one() -> None:
    data = publish({"traceparent": VALUE}, body=b"x" * 5000)
    assert traceparents(data[:-5008], 0, len(data) - 5008, 1) == [VALUE.encode()]


def payload_bounds(data: bytes) -> tuple[int, int]:
    """Where the content header's payload begins and ends."""
    at = 8 + int.from_bytes(data[3:7], "big")
    return at + 7, at + 7 + int.from_bytes(data[at + 3 : at + 7], "big")


@given(
    noise=st.lists(st.tuples(st.integers(0, 1_000), st.integers(0, 255)), max_size=8),
    before=st.dictionaries(st.text(max_size=12), st.one_of(st.integers(-99, 99), st.text(max_size=20), st.none()), max_size=4),
)
def test_damaged_headers_never_fail_nor_yield_more_than_is_there(noise: list[tuple[int, int]], before: dict[str, Any]) -> None:
    data = bytearray(publish({**before, "traceparent": VALUE}))
    start, end = payload_bounds(bytes(data))
    for place, octet in noise:
        data[start + 12 + place % (end - start - 12)] = octet  # the gateway has checked what comes before
    value = found(bytes(data))
    assert value == b"" or value in bytes(data[start:end])


@given(st.binary(max_size=200))
def test_any_payload_behind_the_property_flags_is_survived(tail: bytes) -> None:
    payload = b"\0\x3c\0\0" + (5).to_bytes(8, "big") + b"\xe0\0" + tail + b"traceparent"
    data = amqp.method(1, commands.Basic.Publish()) + amqp.raw_frame(2, 1, payload) + amqp.raw_frame(3, 1, b"hello")
    value = found(data)
    assert value == b"" or value in payload
