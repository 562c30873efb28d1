"""Texts that are no JSON, but which every broker takes, pass the first time and the hundredth, and mean what they mean to the broker."""

from __future__ import annotations

import json

import pytest

from gateway.pipeline.errors import ProtocolError
from gateway.protocols.rocketmq.headers import read_json
from gateway.protocols.rocketmq.loose_texts import tighten
from support.rocketmq.frames import frame, send
from support.wires.conversations import Talk, rule


def header(value: bytes, name: bytes = b"i", topic: bytes = b"orders", opaque: int = 7) -> bytes:
    return b'{"code":310,"extFields":{"a":"g","b":"%b","%b":"%b","m":"false"},"flag":0,"opaque":%d}' % (topic, name, value, opaque)


LOOSE = {
    "a title cut within an emoji": rb"KEYS\u0001hello \ud83d\u0002",
    "half a pair at the end": rb"\uD83D",
    "the second half alone": rb"\ude00",
    "halves beside a pair": rb"\ude00\ud83d\ude00\ud83d",
    "control characters": b"KEYS\x01a\nb\tc\x00\x02",
    "hexadecimal escapes": rb"\x41\x4b",
    "octal escapes and others": rb"\0\7\v\F\'",
    "behind a backslash": rb"\\ud83d \\x41 \ud83d",
    "digits that are none": rb"\u12_x \u....",
    "GBK": b"KEYS\\u0001\xc4\xe3\xba\xc3\\u0002........",
}


@pytest.mark.parametrize("value", LOOSE.values(), ids=LOOSE)
def test_they_pass_first_and_after_others_like_them(value: bytes) -> None:
    loose = frame(header(value), b"body")
    first = Talk("rocketmq", rule(messages=1000))
    first.client(loose)
    assert (first.to_broker, first.requests) == (loose, [("orders", "g", 1, 4)])
    later = Talk("rocketmq", rule(messages=1000))
    usual = b"".join(frame(header(b"KEYS\\u0001%d\\u0002" % number, opaque=number), b"body") for number in range(5))
    later.client(usual)
    later.client(loose)
    assert later.to_broker == usual + loose


@pytest.mark.parametrize(
    ("topic", "read"),
    [
        (rb"t\x41", "tA"), (rb"t\'", "t'"), (rb"t\ud83d", "t?"), (rb"\ud83d\ude00\ude00", "\U0001f600?"), (b"t\x01\n", "t\x01\n"),
        (rb"t\\x41", "t\\x41"), (rb"\7\v\F\0", "\x07\x0b\x0c\x00"),
    ],
)  # fmt: skip
def test_a_topic_so_spelled_is_what_the_broker_reads(topic: bytes, read: str) -> None:
    assert read_json(header(b"x", topic=topic)).topic.decode() == read


@pytest.mark.parametrize(
    "text",
    [
        header(rb"\q"), header(b"x", topic=rb"\u12 4"), header(rb"\u12"), header(rb"\x4"), header(b"\\\n"), header(b"x") + b"\0",
        b"\xef\xbb\xbf" + header(b"x"), header(b"\xe5"), header(b"\xc3\\"), header(b"x", topic=b"t\xe5xxxxxxx"),
        b"\x01" + header(b"x"), header(b"x")[:-1] + b"\x01}",
    ],
)  # fmt: skip
def test_what_no_broker_takes_or_might_be_read_otherwise_is_refused(text: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        read_json(text)
    assert caught.value.cause == "bad_header"


def test_fields_cannot_hide_in_such_spellings() -> None:
    with pytest.raises(ProtocolError, match="said twice"):
        read_json(rb'{"code":310,"c\x6fde":34,"extFields":{"b":"t","i":"\ud83d"}}')
    with pytest.raises(ProtocolError, match="almost one of the protocol's"):
        read_json(rb'{"code":310,"flag\ud83d":1,"extFields":{"b":"t"}}')


def test_json_stays_what_it_is() -> None:
    text = send()[8:].split(b"x" * 200)[0]
    assert json.loads(tighten(text)) == json.loads(text)


@pytest.mark.parametrize("number", [b"007", b"00"])
def test_a_number_with_zeros_before_it_is_read_alike_first_and_later(number: bytes) -> None:
    """Parsers differ about them; the broker closes the connection, or it does not."""
    odd = frame(header(b"x")[:-1] + b',"version":%b}' % number)
    usual = b"".join(frame(header(b"x", opaque=at)[:-1] + b',"version":%d}' % (470 + at)) for at in range(5))
    later = Talk("rocketmq", rule(messages=1000))
    later.client(usual)
    with pytest.raises(ProtocolError):
        Talk("rocketmq", rule(messages=1000)).client(odd)
    with pytest.raises(ProtocolError):
        later.client(odd)
