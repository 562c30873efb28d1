"""Headers that two parsers might read as different requests are refused; what clients write never is."""

from __future__ import annotations

import gzip
import json

import pytest

from gateway.pipeline.errors import ProtocolError
from gateway.protocols.rocketmq.header_ambiguity import (
    MAX_HARMLESS,
    MAX_UNKNOWN_CHARACTERS,
    MAX_UNKNOWN_FIELDS,
    decode_raw,
    fnv_1a,
    harmless,
    is_plain,
)
from gateway.protocols.rocketmq.headers import read_json
from support.cases import in_one_loop
from support.rocketmq.frames import frame, heartbeat, json_header, send, send_back
from support.rocketmq.remoting import JARS, frames_file
from support.wires.conversations import Talk, rule

EXT = '"extFields":{"b":"orders","topic":"free","a":"g"}'

REPEATED = [
    f'{{{EXT},"code":310,"code":34}}',  # 34 to us once; 310 to brokers up to 5.3: a send that nobody limited
    f'{{"code":"310","code":34,{EXT}}}',
    f'{{"code":34,"c\\u006fde":310,{EXT}}}',
    f'{{"c\\u006Fde":34,"code":310,{EXT}}}',
    f'{{"code":310,"flag":null,"flag":1,{EXT}}}',
    f'{{"code":310,"flag":0,"fl\\u0061g":1,{EXT}}}',
    f'{{"code":310,"opaque":null,"opaque":6,{EXT}}}',
    f'{{"code":310,{EXT},{EXT}}}',
    f'{{"code":310,{EXT},"extFields":null}}',
    '{"code":10,"extFields":{"topic":"orders","flag":"0"},"flag":0,"flag":1}',
    '{"code":10,"extFields":{"topic":"orders","flag":null},"flag":0,"flag":1}',
    '{"code":10,"flag":0,"flag":1,"extFields":{"topic":"orders"}}',
    f'{{"code":310,{EXT},"x":1,"x":2}}',
]


@pytest.mark.parametrize("text", REPEATED)
def test_a_field_said_twice_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError, match="is said twice") as caught:
        read_json(text.encode())
    assert caught.value.cause == "bad_header"


def test_nothing_of_such_a_header_reaches_the_broker_though_headers_like_it_were_seen() -> None:
    talk = Talk("rocketmq", rule(messages=1000))
    before = b"".join(send(opaque=opaque) for opaque in range(5))
    with pytest.raises(ProtocolError, match="'code' is said twice"):
        talk.client(before + frame(json_header(310, {"b": "orders"})[:-1] + b',"code":34}'))
    assert talk.to_broker == before


@in_one_loop
@pytest.mark.parametrize(
    "name",
    [
        "Code", "CODE", "co_de", "_code", "code_", "c-o-d-e", "c.o.d.e", "code ", " flag", "fl ag", "code\\u0000", "flag\\u0000",
        "\\u0000flag", "ext_fields", "extfields", "EXTFIELDS", "f_l-a_g", "serializeTypeCurrentRpc", "o\\tpaque", "code1",
        "x" * (MAX_UNKNOWN_CHARACTERS + 1),
    ],
)  # fmt: skip
def test_names_that_a_forgiving_parser_might_take_for_one_of_ours_are_refused(name: str) -> None:
    with pytest.raises(ProtocolError, match="is almost one of the protocol's"):
        read_json(f'{{"code":310,"extFields":{{"b":"t"}},"{name}":1}}'.encode())


@pytest.mark.parametrize(
    "name",
    [
        b"\x01adgh^\xc4\xa4\xe0\xbf\xb7\xc5\xa2\xc5\xa5\xc2\xb5\xc2\x97",  # FNV-1a as `code`; a control character may be masked
        b"\xff" * 16 + b"ahhd\xc2\xa4\xc3\xac\xc5\x91\xc4\xae\xc3\xb7\xc7\xac\xc5\xbaaaaaaa",  # with sixteen U+FFFD, one here
        rb"\ud800haah\u015e\u00b4\u0376\u00fe\u0385\u017d\u00cd",  # with the half of a pair, a question mark here
        b"xdhadhg~\xc3\xa1b\xc4\x8c\xc2\x99s\xda\x81",  # FNV-1a is what fastjson2 makes of `code`: its letters as one number
        b"xdhggaa\xc6\xa9\xc3\x93\xcc\xae\xc2\x88t@\xc7\x82",  # the same in the other order
    ],
)
@pytest.mark.parametrize("before", [b"", b'"remark":"' + b"\x01" * 256 + b'",'])
def test_names_made_to_have_the_hash_of_ours_in_a_broker_are_refused(before: bytes, name: bytes) -> None:
    with pytest.raises(ProtocolError, match="is almost one of the protocol's"):
        read_json(b'{%b"%b":310,"opaque":7,"flag":0,"extFields":{"b":"Victim"}}' % (before, name))


@pytest.mark.parametrize("name", ["body", "customHeader", "suspended", "x", "codes", "iscode", "zeit-\u00e4"])
def test_other_names_pass_as_they_always_did(name: str) -> None:
    assert read_json(f'{{"code":310,"extFields":{{"b":"t"}},"{name}":{{"code":[1]}}}}'.encode()).topic == b"t"


def test_unknown_names_are_looked_at_only_so_far() -> None:
    members = ",".join(f'"x{number}":1' for number in range(MAX_UNKNOWN_FIELDS + 1))
    with pytest.raises(ProtocolError, match="field 'x16' is almost"):
        read_json(f"{{{members}}}".encode())


@pytest.mark.parametrize("name", ['a\\"b', "a\\u0022b", '\\\\\\"', "\\\\u0022"])
def test_quotes_in_names_hide_no_field(name: str) -> None:
    text = f'{{"code":310, "{name}":"\\u0022\\"",{EXT}'
    assert read_json(f"{text}}}".encode()).topic == b"orders"
    for again in (name, "code", "\\u0063ode"):
        with pytest.raises(ProtocolError, match="is said twice"):
            read_json(f'{text},"{again}":34}}'.encode())


@pytest.mark.parametrize(("text", "found"), [("", 0xCBF29CE484222325), ("a", 0xAF63DC4C8601EC8C), ("foobar", 0x85944171F73967E8)])
def test_the_hash_is_fnv_1a(text: str, found: int) -> None:
    """Values of its authors (isthe.com/chongo/src/fnv/test_fnv.c)."""
    assert fnv_1a(text) == found


def header_of(whole: bytes) -> bytes:
    return whole[8 : 8 + int.from_bytes(whole[5:8], "big")]


@pytest.mark.parametrize("version", JARS)
def test_headers_that_java_writes_need_no_second_look(version: str) -> None:
    lines = gzip.decompress(frames_file(version).read_bytes()).decode().splitlines()
    frames = [bytes.fromhex(line["frame"]) for line in map(json.loads, lines) if line["type"] == "JSON"]
    assert len(frames) > 200
    assert [frame for frame in frames if not is_plain(header_of(frame), decode_raw(header_of(frame)))] == []


@pytest.mark.parametrize(
    "text",
    [
        header_of(heartbeat()),
        header_of(send(code=10, topic='a "quoted" \\"code\\" \u00e4 in a topic')),
        header_of(send_back()) + b"\n",  # C++
        b'{"code":310,"language":"CPP","opaque":4,"flag":0,"version":63,"extFields":{"queueId":0,"b":"t","batch":"0"}}\n',
    ],
)
def test_headers_that_others_write_need_none_either(text: bytes) -> None:
    assert is_plain(text, decode_raw(text))


@in_one_loop
@pytest.mark.parametrize(
    "text",
    [
        *(text for text in REPEATED if '"x":1' not in text),
        '{"code":310, "flag":0}',
        '{"code":310,"flag":0}\n\n',
        '{"c\\u006fde":310}',
        '{"code":310,"code":310}',
        " {}",
    ],
)
def test_headers_spelled_otherwise_get_a_second_look(text: str) -> None:
    assert not is_plain(text.encode(), decode_raw(text.encode()))


@pytest.mark.parametrize("topic", ["code", "flag", "extFields", "opaque"])
def test_topics_called_like_fields_pass(topic: str) -> None:
    assert read_json(json_header(310, {"b": topic, "code": "x"})).topic == topic.encode()
    assert read_json(json_header(10, {"topic": topic, "flag": "0"})).topic == topic.encode()
    assert read_json(b'{"code":310,"extFields":{"\\u0062":"\\u006f"},"opaque":1}').topic == b"o"


def test_unknown_names_that_were_met_before_are_counted_and_remembered_within_a_bound() -> None:
    for first in range(0, 2 * MAX_HARMLESS, MAX_UNKNOWN_FIELDS):
        members = ",".join(f'"x{number}":1' for number in range(first, first + MAX_UNKNOWN_FIELDS))
        assert read_json(f'{{"code":310,"extFields":{{"b":"t"}},{members}}}'.encode()).topic == b"t"
        assert len(harmless) <= MAX_HARMLESS
        with pytest.raises(ProtocolError, match="is almost"):
            read_json(f'{{"code":310,{members},"again":1}}'.encode())
    for _ in range(2):
        with pytest.raises(ProtocolError, match="'Code' is almost"):
            read_json(b'{"code":310,"Code":1}')
