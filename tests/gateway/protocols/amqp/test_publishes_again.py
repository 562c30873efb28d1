"""Publishes that are published again: found in pieces of any size, framed anew, with the header that says so."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, frame, header

from gateway.protocols.amqp.publishes_again import AGAIN, Messages, marked
from support.amqp import frames as amqp


def content(properties: commands.Basic.Properties) -> bytes:
    """The payload of a content header."""
    return bytes(frame.marshal(header.ContentHeader(0, 3, properties), 1)[7:-1])


def properties_of(payload: bytes) -> commands.Basic.Properties:
    found = frame.unmarshal(b"\x02\x00\x01" + len(payload).to_bytes(4, "big") + payload + b"\xce")[2]
    assert isinstance(found, header.ContentHeader)
    return found.properties


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"content_type": "text/plain"},
        {"content_encoding": "gzip", "priority": 3},
        {"headers": {"a": 1, "b": "x"}},
        {"content_type": "t", "content_encoding": "e", "headers": {"a": {"b": True}}, "message_id": "7", "expiration": "60000"},
    ],
)
def test_the_header_is_added_and_all_else_stays(properties: dict[str, object]) -> None:
    before = commands.Basic.Properties(**properties)  # type: ignore[arg-type]
    payload = marked(content(before))
    after = properties_of(payload)
    assert after.headers == {**(before.headers or {}), AGAIN.decode(): True}
    for name in ("content_type", "content_encoding", "priority", "message_id", "expiration"):
        assert getattr(after, name) == getattr(before, name)


def test_a_message_that_was_replayed_before_is_marked_once() -> None:
    once = marked(content(commands.Basic.Properties(headers={"a": 1})))
    assert marked(once) == once


@given(sizes=st.lists(st.integers(0, 300), min_size=1, max_size=5), cuts=st.lists(st.integers(1, 400), min_size=1, max_size=30))
def test_messages_are_found_whatever_the_pieces(sizes: list[int], cuts: list[int]) -> None:
    publishes = [amqp.publish(1, f"key{number}", bytes([number]) * size, cut=100) for number, size in enumerate(sizes)]
    data = b"".join(publishes)
    messages = Messages()
    found = []
    at = index = 0
    while at < len(data):
        size = cuts[index % len(cuts)]
        index += 1
        found += messages.add(data[at : at + size], "1.durable", 1_000 + at)
        at += size
    assert [message.body for message in found] == [bytes([number]) * size for number, size in enumerate(sizes)]
    assert [message.routing_key for message in found] == [f"key{number}".encode() for number in range(len(sizes))]
    ends = [1_000 + sum(len(each) for each in publishes[: number + 1]) for number in range(len(sizes))]
    assert [message.end for message in found] == ends


def test_a_message_that_was_never_sent_as_a_whole_is_left_out() -> None:
    messages = Messages()
    assert messages.add(amqp.publish(1, "half", b"x" * 300, cut=100)[:-50], "1.durable", 0) == []
    messages.begin()
    [message] = messages.add(amqp.publish(1, "whole", b"y"), "1.durable", 500)
    assert (message.routing_key, message.body) == (b"whole", b"y")


def test_frames_fit_into_the_new_connections_frame_max() -> None:
    [message] = Messages().add(amqp.publish(7, "big", b"z" * 10_000, exchange="e", mandatory=True), "1.durable", 0)
    assert (message.exchange, message.mandatory) == (b"e", True)
    data = message.frames(1, 4096)
    kinds = []
    while data:
        size = 8 + int.from_bytes(data[3:7], "big")
        assert size <= 4096
        assert data[1:3] == b"\x00\x01"
        kinds.append(data[0])
        data = data[size:]
    assert kinds == [1, 2, 3, 3, 3]
