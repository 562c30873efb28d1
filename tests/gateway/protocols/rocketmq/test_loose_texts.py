"""Texts that are no JSON, but which every broker takes, pass the first time and the hundredth, and mean what they mean to the broker."""

from __future__ import annotations

import json
import time

import pytest

from gateway.pipeline.errors import ProtocolError
from gateway.protocols.rocketmq.headers import read_json
from gateway.protocols.rocketmq.loose_texts import MAX_CONTROLS, tighten
from support.builds import build_of
from support.cases import in_one_loop
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
    "characters for digits": "\\u\u00e9\u4e2d\U0001f600 \\u\U0001f60012".encode(),
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


@in_one_loop
@pytest.mark.parametrize(
    "text",
    [
        header(rb"\q"), header(b"x", topic=rb"\u12 4"), header(rb"\u12"), header(rb"\x4"), header(b"\\\n"), header(b"x") + b"\0",
        b"\xef\xbb\xbf" + header(b"x"), header(b"\xe5"), header(b"\xc3\\"), header(b"x", topic=b"t\xe5xxxxxxx"),
        b"\x01" + header(b"x"), header(b"x")[:-1] + b"\x01}", header(rb"\u12\x41\x41"), header(rb"\u120\x41"),
        header("\\u12\u00e9".encode()), header("\\u\U0001f600x".encode()), header(b"\\"), header(rb"\ud83"),
    ],
)  # fmt: skip
def test_what_no_broker_takes_or_might_be_read_otherwise_is_refused(text: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        read_json(text)
    assert caught.value.cause == "bad_header"


@pytest.mark.parametrize("control", [b"\x01", rb"\1", rb"\x01"])
def test_of_many_control_characters_further_ones_are_masked(control: bytes) -> None:
    """No broker takes a topic with either; a letter that is spelled in digits stays what it is."""
    assert read_json(header(control * (MAX_CONTROLS - 1), topic=b"t\x01")).topic == b"t\x01"
    late = header(b"x", topic=rb"\x6frders" + control)
    assert read_json(late.replace(b'{"a"', b'{"i":"%b","a"' % (control * MAX_CONTROLS))).topic == b"orders\x7f"


BYTES = 8000
DEAR = {
    "control characters": b"\x01",
    "control characters apart": b"a\x01",
    "octal escapes": rb"\1",
    "hexadecimal escapes": rb"\x41",
    "half surrogate pairs": rb"\ud83d",
    "digits that are none": rb"\uzzzz",
    "spelled apostrophes": rb"\'",
    "no UTF-8": b"\xff",
    "no UTF-8 apart": b"\xffa",
    "many short texts": b'\x01","k":"',
}


def seconds(text: bytes) -> float:
    """Processor time of this thread, the least of several."""
    found = []
    for _ in range(5):
        began = time.thread_time()
        read_json(text)
        found.append(time.thread_time() - began)
    return min(found)


def test_no_spelling_costs_much_more_than_fields_without_any() -> None:
    """Compiled at most 4 times as much; control characters took 180 times as much, octal escapes 120, hexadecimal ones 60."""
    fields = b",".join(b'"k":"%d"' % number for number in range(BYTES // 11))
    plain = header(b"x").replace(b'"m"', fields + b',"m"')
    odd = {name: header(spelling * (BYTES // len(spelling)) + b"xxxxxxxx") for name, spelling in DEAR.items()}
    # In turn, and the least of many: a neighbour on the same core makes both dear, or one of a pair.
    times = {name: min(seconds(text) / seconds(plain) for _ in range(9)) for name, text in odd.items()}
    most = 8 if build_of("gateway.protocols.rocketmq.loose_texts")[0] == "compiled" else 100
    assert {name: ratio for name, ratio in times.items() if ratio > most} == {}


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
