"""How long a message is of use by its own word, behind whatever properties stand before it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, header

from gateway.protocols.amqp.expirations import expiration_of
from limiter.limits import NEVER
from support.amqp import frames as amqp

SHORT = st.none() | st.text(alphabet="ab/", max_size=200)
OCTET = st.none() | st.integers(0, 9)


def publish(**properties: Any) -> bytes:
    content = header.ContentHeader(body_size=5, properties=commands.Basic.Properties(**properties))
    return (
        amqp.method(1, commands.Basic.Publish(exchange="orders", routing_key="k"))
        + amqp.method(1, content)
        + amqp.raw_frame(3, 1, b"hello")
    )


def found(data: bytes) -> int:
    return expiration_of(data, 0, len(data))


@given(
    properties=st.fixed_dictionaries({
        "content_type": SHORT, "content_encoding": SHORT, "headers": st.none() | st.dictionaries(st.sampled_from("abc"), st.integers(0, 9)),
        "priority": OCTET, "correlation_id": SHORT, "reply_to": SHORT, "message_id": SHORT, "user_id": SHORT,
    }),
    milliseconds=st.none() | st.integers(1, (1 << 32) - 1),
)  # fmt: skip
def test_it_is_found_behind_any_properties(properties: dict[str, Any], milliseconds: int | None) -> None:
    text = None if milliseconds is None else str(milliseconds)
    assert found(publish(**properties, expiration=text)) == (NEVER if milliseconds is None else milliseconds * 1_000_000)


@pytest.mark.parametrize("text", ["", "soon", "-1", "1.5", " 5", "12345678901", "5s"])
def test_what_is_no_number_of_milliseconds_is_the_brokers_to_refuse(text: str) -> None:
    assert found(publish(expiration=text)) == NEVER


def test_one_that_is_over_at_once_has_a_millisecond() -> None:
    assert found(publish(expiration="0")) == 1_000_000


@given(cut=st.integers(0, 200), at=st.integers(0, 200), octet=st.integers(0, 255))
def test_no_bytes_of_a_client_do_harm(cut: int, at: int, octet: int) -> None:
    """Of the content header; the frames around it are looked at before."""
    whole = publish(content_type="text/plain", headers={"a": 1}, expiration="5000", reply_to="me")
    first = int.from_bytes(whole[3:7], "big") + 8
    content = bytearray(whole[first:])
    if 7 + at < len(content):
        content[7 + at] = octet
    data = whole[:first] + bytes(content)
    assert 0 < expiration_of(data, 0, max(len(data) - cut, first + 30)) <= NEVER
