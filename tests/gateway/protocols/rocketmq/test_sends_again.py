"""Sends that are sent again: the mark, in every form of a request, and everything else as it was."""

from __future__ import annotations

import json

import pytest

from gateway.protocols.rocketmq.sends_again import AGAIN, SendsAgain
from gateway.protocols.rocketmq.spool_copy import messages_of
from support.rocketmq.frames import batch_body, encode_request, frame, send, send_back, split_frames

MARK = {"x-sluice-replayed": "true"}


def again(data: bytes, opaque: int = 7) -> bytes:
    (found,) = SendsAgain().add(data, "5.durable", 100)
    assert (found.file, found.end) == ("5.durable", 100 + len(data))
    frame = found.frame(opaque)
    assert split_frames(frame) == [frame]
    return frame


@pytest.mark.parametrize("one_way", [False, True])
@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
@pytest.mark.parametrize("code", [10, 310])
def test_a_send_gets_the_property_and_all_else_stays(code: int, *, binary: bool, one_way: bool) -> None:
    data = send("orders", b"text \xff", opaque=3, code=code, binary=binary, one_way=one_way)
    marked = again(data)
    (before,), (after,) = messages_of(data, 0, len(data)), messages_of(marked, 0, len(marked))
    assert after == {**before, "properties": {**before["properties"], **MARK}}
    assert again(marked) == marked, "what has it is left as it is"
    as_before = send("orders", b"text \xff", opaque=3, code=code, binary=binary)
    unmarked = marked.replace(b"x-sluice-replayed\\u0001true\\u0002", b"").replace(b"x-sluice-replayed\x01true\x02", b"")
    assert len(unmarked) == len(as_before), "it wants an answer, whatever it wanted"


@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
def test_each_message_of_a_batch_gets_it(*, binary: bool) -> None:
    data = send("orders", batch_body(b"one", b"two"), code=320, batch=True, binary=binary)
    (found,) = SendsAgain().add(data, "1.durable", 0)
    marked = found.frame(1)
    told = messages_of(marked, 0, len(marked))
    assert [(each["body"], each["properties"]) for each in told] == [("one", {"WAIT": "true", **MARK}), ("two", {"WAIT": "true", **MARK})]
    assert found.messages() == 2
    body = marked[8 + (int.from_bytes(marked[4:8]) & 0xFFFFFF) :]
    assert int.from_bytes(body[:4]) * 2 == len(body), "each says its own size"


def test_a_signed_request_stays_as_it_is_but_for_its_opaque() -> None:
    fields = {"a": "producers", "b": "orders", "e": "0", "i": "K\x01v\x02", "AccessKey": "alice", "Signature": "s3cret="}
    data = encode_request(310, fields, b"text", opaque=3)
    header = json.loads(again(data)[8:-4])
    assert header["extFields"] == fields
    assert header["opaque"] == 7


def test_a_record_of_several_is_taken_apart_with_their_places() -> None:
    first, second = send(opaque=1), send(opaque=2, binary=True)
    found = SendsAgain().add(first + second, "9.durable", 40)
    assert [(each.body, each.end) for each in found] == [(first, 40 + len(first)), (second, 40 + len(first) + len(second))]


@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
def test_a_message_whose_properties_have_no_room_for_it_stays_as_it_is(*, binary: bool) -> None:
    """The broker takes 32,767 bytes, its own among them. With the mark it would refuse what it takes without."""
    long = "K\x01" + "\u00e9" * 16_200 + "\x02"
    data = encode_request(310, {"a": "producers", "b": "orders", "e": "0", "i": long}, b"text", opaque=3, binary=binary)
    (told,) = messages_of(again(data), 0, len(again(data)))
    assert list(told["properties"]) == ["K"]
    batch = batch_body(b"one", properties=long.encode()) + batch_body(b"two")
    data = send("orders", batch, code=320, batch=True, binary=binary)
    marked = again(data)
    assert [AGAIN in each["properties"] for each in messages_of(marked, 0, len(marked))] == [False, True]


@pytest.mark.parametrize("code", [10, 310])
@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
def test_a_send_without_properties_gets_them(code: int, *, binary: bool) -> None:
    names = ("producerGroup", "topic", "queueId") if code == 10 else ("a", "b", "e")
    data = encode_request(code, dict(zip(names, ("producers", "orders", "0"), strict=True)), b"text", opaque=3, binary=binary)
    marked = again(data)
    (told,) = messages_of(marked, 0, len(marked))
    assert told["properties"] == MARK


@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
def test_a_send_back_gets_no_properties(*, binary: bool) -> None:
    marked = again(send_back(binary=binary))
    (told,) = messages_of(marked, 0, len(marked))
    assert "properties" not in told["fields"]
    assert "i" not in told["fields"]


def test_chinese_properties_have_as_many_bytes_as_the_client_gave_them() -> None:
    """Escaped, as `json.dumps` has it, this header was twice as long."""
    fields = {"a": "producers", "b": "orders", "e": "0", "i": "\u8ba2\u5355\x01" + "\u4e2d\u6587" * 5_000 + "\x02"}
    header = json.dumps({"code": 310, "extFields": fields, "flag": 0, "opaque": 3}, separators=(",", ":"), ensure_ascii=False).encode()
    data = frame(header, b"text")
    assert len(again(data)) == len(data) + len(r"x-sluice-replayed\u0001true\u0002")
    (told,) = messages_of(again(data), 0, len(again(data)))
    assert told["properties"] == {"\u8ba2\u5355": "\u4e2d\u6587" * 5_000, **MARK}


def test_half_of_a_surrogate_pair_stays_what_it_was() -> None:
    data = frame(rb'{"code":310,"extFields":{"b":"orders","i":"K\u0001\ud800\u0002"},"flag":0,"opaque":3}', b"text")
    assert rb"K\u0001\ud800\u0002x-sluice-replayed\u0001true" in again(data)


@pytest.mark.parametrize("data", [frame(b"no json"), frame(b"[]"), frame(b'{"extFields":[1]}'), frame(b"\x01", kind=1)])
def test_what_cannot_be_read_counts_as_one_message(data: bytes) -> None:
    (found,) = SendsAgain().add(data, "1.durable", 0)
    assert found.messages() == 1
