"""The trace context of sends, in both encodings of headers."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocols.rocketmq.traceparents import traceparent_of, traceparents
from support.cases import in_one_loop
from support.rocketmq import frames as rocketmq

VALUE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
ENTRY = f"traceparent\x01{VALUE}\x02"


def send(properties: rocketmq.Value, *, code: int = 310, binary: bool = False, body: bytes = b"hello", opaque: int = 1) -> bytes:
    short = code in (310, 320, 325)
    extra: dict[str, rocketmq.Value] = {"b" if short else "topic": "orders", "a" if short else "producerGroup": "producers"}
    extra["i" if short else "properties"] = properties
    return rocketmq.encode_request(code, extra, body, binary=binary, opaque=opaque)


def found(data: bytes) -> bytes:
    return traceparent_of(data, 0, len(data))


@in_one_loop
@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("code", [10, 310, 320])
@pytest.mark.parametrize("properties", [ENTRY, f"KEYS\x01a\x02{ENTRY}WAIT\x01true\x02", f"WAIT\x01true\x02{ENTRY}"[:-1]])
def test_the_property_is_found_wherever_it_stands(properties: str, code: int, binary: bool) -> None:
    assert found(send(properties, code=code, binary=binary)) == VALUE.encode()


@in_one_loop
@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize(
    "properties",
    [
        "",
        None,
        "WAIT\x01true\x02",
        f"xtraceparent\x01{VALUE}\x02",
        f"KEYS\x01traceparent\x02A\x01{VALUE}\x02",
        f"A\x01{VALUE}traceparent",
        "traceparent\x02",
        f"traceparent\x01{'long' * 1000}\x02",
    ],
)
def test_what_only_looks_like_it_is_not_taken(properties: str | None, binary: bool) -> None:
    assert found(send(properties, binary=binary)) == b""


@pytest.mark.parametrize("binary", [False, True])
def test_the_word_in_a_body_or_another_field_is_not_taken(binary: bool) -> None:
    assert found(send("", body=ENTRY.encode(), binary=binary)) == b""
    extra: dict[str, rocketmq.Value] = {"a": ENTRY, "b": "orders", "properties": ENTRY}  # the short form calls it `i`
    assert found(rocketmq.encode_request(310, extra, binary=binary)) == b""
    assert found(rocketmq.encode_request(36, {"group": "workers", "i": ENTRY, "properties": ENTRY}, binary=binary)) == b""


def test_each_send_of_a_run_has_its_own() -> None:
    values = [VALUE[:-3] + f"-{number:02x}" for number in range(4)]
    run = b"".join(send(f"traceparent\x01{value}\x02", opaque=number) for number, value in enumerate(values))
    assert traceparents(run, 0, len(run), 10) == [value.encode() for value in values]
    assert traceparents(run, 0, len(run), 2) == [value.encode() for value in values[:2]]


def test_a_send_whose_body_is_still_coming_in_has_one() -> None:
    data = send(ENTRY, body=b"x" * 5000)[:-4000]
    assert traceparents(data, 0, len(data), 1) == [VALUE.encode()]


@given(noise=st.lists(st.tuples(st.integers(0, 1_000), st.integers(0, 255)), max_size=8), binary=st.booleans())
def test_damaged_headers_never_fail_nor_yield_more_than_is_there(noise: list[tuple[int, int]], binary: bool) -> None:
    data = bytearray(send(f"KEYS\x01a\x02{ENTRY}", binary=binary))
    end = 8 + (int.from_bytes(data[4:8], "big") & 0xFFFFFF)
    for place, octet in noise:
        data[8 + place % (end - 8)] = octet
    value = found(bytes(data))
    assert len(value) <= 512


@given(st.recursive(st.one_of(st.none(), st.integers(), st.text(max_size=8)), lambda inner: st.lists(inner, max_size=3)))
def test_header_fields_of_any_type_are_survived(value: object) -> None:
    for fields in ({"extFields": value}, {"code": value, "extFields": {"i": ENTRY}}, {"code": 310, "extFields": {"i": value}}):
        data = b"".join(
            rocketmq.frame(text.encode()) for text in (json.dumps({**fields, "remark": "traceparent"}), json.dumps([value, "traceparent"]))
        )
        assert all(each in (b"", VALUE.encode()) for each in traceparents(data, 0, len(data), 2))
