"""Headers are read as the broker reads them, or not at all.

`vectors/headers.json` holds what the decoders of RocketMQ 4.9.8, 5.3.3 and 5.4.0 make of each header (`support/rocketmq/remoting.py`).
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.pipeline.errors import ProtocolError
from gateway.protocols.rocketmq.headers import Header, read_binary, read_json
from support.cases import in_one_loop
from support.rocketmq import frames as rocketmq
from support.rocketmq.remoting import JARS, disagreement, headers_file

VECTORS = json.loads(headers_file().read_text())
SENDS_SHORT = (310, 320, 325)
SENDS_LONG = (10, 324)


def meaning(header: Header) -> tuple[bytes, bytes, bool, int]:
    return header.topic, header.group, header.batch, header.flag


@in_one_loop
@pytest.mark.parametrize("row", VECTORS, ids=[row["text"] for row in VECTORS])
def test_no_header_is_read_differently_from_any_broker(row: dict[str, Any]) -> None:
    """Refusing is always safe; passing what the broker cannot read is too (it closes the connection); another meaning never is."""
    try:
        header = read_json(bytes.fromhex(row["header"]))
    except ProtocolError:
        return
    assert {version: disagreement(header, read) for version, read in row["broker"].items()} == dict.fromkeys(JARS, "")


def test_the_vectors_contain_headers_that_are_read_and_headers_that_are_refused() -> None:
    read = 0
    for row in VECTORS:
        with suppress(ProtocolError):
            read += bool(read_json(bytes.fromhex(row["header"])).topic)
    assert 40 < read < len(VECTORS) - 40


@in_one_loop
@pytest.mark.parametrize("code", SENDS_SHORT + SENDS_LONG)
@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
@pytest.mark.parametrize(
    ("topic", "batch", "expected"),
    [
        ("orders", "false", (b"orders", False)),
        ("orders", "true", (b"orders", True)),
        ("orders", True, (b"orders", True)),
        ("orders", False, (b"orders", False)),
        ("orders", "0", (b"orders", False)),
        ("orders", 1, (b"orders", False)),
        (42, None, (b"42", False)),
        (True, None, (b"true", False)),
        (None, None, (b"", False)),
        ("%RETRY%g", None, (b"%RETRY%g", False)),
        ("\u4e2d\u6587", None, ("\u4e2d\u6587".encode(), False)),
    ],
)
def test_sends_of_every_code_with_values_of_every_type(
    code: int, binary: bool, topic: rocketmq.Value, batch: rocketmq.Value, expected: tuple[bytes, bool]
) -> None:
    names = rocketmq.SHORT if code in SENDS_SHORT else rocketmq.LONG
    extra = {names["topic"]: topic, "zz": 7, names["group"]: "g", names["batch"]: batch}
    if binary:
        data = b"xx" + rocketmq.binary_header(code, extra, opaque=-5) + b"body"
        header = read_binary(data, 2, len(data) - 4)
    else:
        header = read_json(rocketmq.json_header(code, extra, opaque=-5))
    assert (header.topic, header.batch) == expected
    assert (header.group, header.opaque, header.flag) == (b"g", -5, 0)


@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
def test_a_send_back_is_for_the_retry_topic_of_its_group(binary: bool) -> None:
    extra: dict[str, rocketmq.Value] = {"group": "workers", "originTopic": "orders", "topic": "no", "b": "no"}
    data = rocketmq.binary_header(36, extra) if binary else rocketmq.json_header(36, extra)
    header = read_binary(data, 0, len(data)) if binary else read_json(data)
    assert meaning(header) == (b"%RETRY%workers", b"workers", False, 0)


@in_one_loop
@pytest.mark.parametrize("code", [0, 11, 12, 34, 35, 37, 38, 41, 105, 9003, 30_000])
@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
def test_other_codes_are_not_limited(code: int, binary: bool) -> None:
    extra: dict[str, rocketmq.Value] = {"topic": "orders", "b": "orders", "group": "g"}
    data = rocketmq.binary_header(code, extra) if binary else rocketmq.json_header(code, extra)
    header = read_binary(data, 0, len(data)) if binary else read_json(data)
    assert header.topic == b""


@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
def test_answers_to_the_broker_are_not_limited(binary: bool) -> None:
    encode = rocketmq.binary_header if binary else rocketmq.json_header
    data = encode(310, {"b": "orders"}, flag=1)
    header = read_binary(data, 0, len(data)) if binary else read_json(data)
    assert (header.topic, header.flag) == (b"", 1)


def test_binary_the_last_of_two_equal_names_wins_as_in_the_brokers_map() -> None:
    first = rocketmq.binary_header(310, {"b": "free", "a": "g"})
    again = rocketmq.binary_header(310, {"b": "orders"})[21:]
    entries = first[21:] + again
    data = first[:17] + len(entries).to_bytes(4, "big") + entries
    assert read_binary(data, 0, len(data)).topic == b"orders"


@pytest.mark.parametrize(
    ("why", "data"),
    [
        ("shorter than the fixed part", b"\x01\x36" + bytes(18)),
        ("remark longer than the header", b"\x01\x36" + bytes(11) + b"\x00\x00\x00\x09" + bytes(4)),
        ("remark of 4 GiB", b"\x01\x36" + bytes(11) + b"\xff\xff\xff\xff" + bytes(4)),
        ("extFields longer than the header", b"\x01\x36" + bytes(15) + b"\x00\x00\x00\x01"),
        ("bytes after extFields", b"\x01\x36" + bytes(19) + b"\x00"),
        ("an entry cut short", b"\x01\x36" + bytes(15) + b"\x00\x00\x00\x03\x00\x01b"),
        ("a name longer than extFields", b"\x01\x36" + bytes(15) + b"\x00\x00\x00\x07\xff\xffb\x00\x00\x00\x00"),
        ("a value longer than extFields", b"\x01\x36" + bytes(15) + b"\x00\x00\x00\x08\x00\x01b\x00\x00\x00\x02t"),
        ("a value of 4 GiB", b"\x01\x36" + bytes(15) + b"\x00\x00\x00\x08\x00\x01b\xff\xff\xff\xfft"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_broken_binary_headers_of_sends_are_refused(why: str, data: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        read_binary(data, 0, len(data))
    assert (caught.value.cause, caught.value.whose) == ("bad_header", "client"), why


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\x00",
        b"{",
        b"[" * 100_000,
        b'{"extFields":' * 10_000,
        b'{"code":1e400}',
        b'{"code":' + b"9" * 5000 + b"}",
        b'{"opaque":99999999999}',
        b'{"opaque":-2147483649}',
        b'{"code":310,"extFields":{"b":' + b"9" * 5000 + b"}}",
    ],
    ids=lambda text: repr(text[:20]),
)
def test_hostile_json_is_refused(text: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_json(text)


@given(st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_garbage_raises_only_protocol_errors(data: bytes) -> None:
    with suppress(ProtocolError):
        read_json(data)
    for binary in (data, b"\x01\x36" + data):
        with suppress(ProtocolError):
            read_binary(binary, 0, len(binary))


def test_a_header_shows_itself() -> None:
    assert (
        repr(read_json(b'{"code":10,"extFields":{"topic":"t"},"opaque":3}'))
        == "<Header code=10 opaque=3 flag=0 topic=b't' group=b'' batch=False user=b'' source=b''>"
    )
