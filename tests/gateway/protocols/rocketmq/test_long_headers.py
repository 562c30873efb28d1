"""Requests with a header longer than is taken: answered as the broker answers them, thrown away, and nothing else on the connection
fails."""

from __future__ import annotations

import itertools
import tracemalloc

import pytest

from gateway.pipeline.errors import ProtocolError
from gateway.protocols.rocketmq.conversation import RocketmqConversation
from gateway.protocols.rocketmq.long_headers import KEPT_BYTES
from gateway.protocols.rocketmq.size_checks import MAX_HEADER_BYTES
from support.cases import in_one_loop
from support.rocketmq.frames import Value, binary_header, encode_request, frame, heartbeat, json_header, read_response, send, split_frames
from support.wires.conversations import Talk, bytewise, randomly, rule

LONG = "x" * (MAX_HEADER_BYTES + 40_000)


def as_go_writes_it(opaque: int, flag: int = 0) -> bytes:
    text = '{"code":310,"language":"GO","version":317,"opaque":%d,"flag":%d,"remark":"","extFields":{"b":"orders","i":"%s"}}'
    return (text % (opaque, flag, LONG)).encode()


def extra(**more: Value) -> dict[str, Value]:
    return {"a": "producers", "b": "orders", "i": LONG, **more}


STYLES = {
    "Java": json_header(310, extra(), opaque=7),
    "Go": as_go_writes_it(7),
    "C++, which ends its headers with a new line": json_header(10, {"topic": "orders", "properties": LONG}, opaque=7) + b"\n",
    "numbers and the same names within extFields": json_header(10, extra(flag=2, opaque=99), opaque=7),
    "the names within a text": json_header(310, extra(z='},"opaque":99,"flag":2,{"opaque":98}'), opaque=7),
    "binary": binary_header(310, extra(), opaque=7),
}


def codes(answers: bytes) -> list[tuple[object, object]]:
    return [(answer["opaque"], answer["code"]) for answer in map(read_response, split_frames(answers))]


@in_one_loop
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("body", [b"", b"b" * 300_000], ids=["no body", "with a body"])
@pytest.mark.parametrize("cut", ["at once", "in reads", "at its edges"])
def test_it_is_answered_and_the_connection_goes_on(style: str, body: bytes, cut: str) -> None:
    data = heartbeat(opaque=6) + frame(STYLES[style], body, 1 if style == "binary" else 0) + send(opaque=8)
    if cut == "at its edges":
        edges = [0, *range(30), len(data) - 260 - len(body), len(data) - len(body) - 250, len(data) - 240]
        edges = sorted({edge for edge in edges if 0 <= edge <= len(data)} | {len(data)})
        chunks = [data[at:end] for at, end in itertools.pairwise(edges)]
    else:
        chunks = [data] if cut == "at once" else [data[at : at + 65_536] for at in range(0, len(data), 65_536)]
    talk = Talk("rocketmq", rule(messages=100))
    talk.client(b"", chunks)
    assert codes(talk.to_client) == [(7, 13)]
    remark = str(read_response(talk.to_client)["remark"])
    assert str(len(STYLES[style])) in remark
    assert "message's body" in remark
    assert talk.to_broker == heartbeat(opaque=6) + send(opaque=8)
    assert talk.requests == [("orders", "producers", 1, 200)], "it was not charged to anybody"


OTHERS = {
    "a heartbeat": json_header(34, {"x": LONG}, opaque=7),
    "a query, as Go writes it": as_go_writes_it(7).replace(b"310", b"14", 1),
    "a send-back, binary": binary_header(36, {"group": "workers", "x": LONG}, opaque=7),
    "a title cut within an emoji": json_header(34, {"x": LONG + "\ud83d"}, opaque=7),
}


@pytest.mark.parametrize("style", OTHERS)
@pytest.mark.parametrize("cut", [1 << 16, 1 << 20])
def test_what_is_no_send_passes_and_the_broker_says_what_it_says(style: str, cut: int) -> None:
    data = frame(OTHERS[style], b"body", 1 if "binary" in style else 0) + send(opaque=8)
    talk = Talk("rocketmq")
    talk.client(b"", [data[:20], *(data[at : at + cut] for at in range(20, len(data), cut))])
    assert (talk.to_broker, talk.to_client) == (data, b"")


def test_what_begins_as_no_send_and_is_one_is_judged_or_refused() -> None:
    limited = Talk("rocketmq", rule(messages=1000))
    with pytest.raises(ProtocolError, match="said twice"):
        limited.client(frame(json_header(34, extra(), opaque=7)[:-1] + b',"code":310}'))
    limited = Talk("rocketmq", rule(messages=1000))
    limited.client(frame(b'{"opaque":7,' + json_header(34, {"x": LONG})[1:].replace(b',"opaque":1', b"")))
    assert codes(limited.to_client) == [(7, 1)]


def test_the_end_of_one_is_the_beginning_of_the_next() -> None:
    data = b"".join([frame(json_header(310, extra(), opaque=number), b"b" * number) for number in range(5)])
    for chunks in ([data], randomly(data, 3)):
        talk = Talk("rocketmq")
        talk.client(b"", chunks)
        assert codes(talk.to_client) == [(number, 13) for number in range(5)]
        assert talk.to_broker == b""


def test_each_of_its_last_bytes_may_come_alone() -> None:
    data = frame(json_header(310, extra(), opaque=-12), b"body")
    talk = Talk("rocketmq")
    talk.client(b"", [data[:-400], *bytewise(data[-400:-1])])
    assert talk.to_client == b"", "not before its client has sent it all"
    talk.client(data[-1:])
    assert codes(talk.to_client) == [(-12, 13)]


def test_a_one_way_request_is_thrown_away_without_a_word() -> None:
    talk = Talk("rocketmq")
    talk.client(frame(json_header(310, extra(), flag=2)) + frame(binary_header(310, extra(), flag=2), b"", 1) + send(opaque=8))
    assert talk.to_client == b""
    assert talk.to_broker == send(opaque=8)


def test_it_does_not_wait_behind_a_frame_of_the_brokers() -> None:
    """The broker stands within an answer: the reply comes behind that."""
    talk = Talk("rocketmq")
    talk.client(send(opaque=1))
    answer = encode_request(0, None, b"z" * 100, opaque=1, flag=1)
    talk.broker(answer[:50])
    talk.client(frame(json_header(310, extra(), opaque=2)))
    assert talk.to_client == answer[:50]
    talk.broker(answer[50:])
    assert codes(talk.to_client) == [(1, 0), (2, 13)]


def test_it_is_not_kept() -> None:
    header = json_header(310, {"b": "orders", "i": "x" * (15 << 20)}, opaque=7)
    data = frame(header)
    pieces = [data[at : at + 65_536] for at in range(0, len(data), 65_536)]
    talk = Talk("rocketmq")
    tracemalloc.start()
    try:
        for piece in pieces:
            talk.client(piece)
            assert len(talk.rest) < 8
        assert tracemalloc.get_traced_memory()[1] < 4 * KEPT_BYTES + 65_536
    finally:
        tracemalloc.stop()
    assert codes(talk.to_client) == [(7, 13)]


def test_the_longest_header_that_is_taken_passes_and_a_byte_more_is_answered() -> None:
    shortest = len(json_header(310, {"a": "producers", "b": "orders", "i": ""}, opaque=7))
    for more, answered in ((0, []), (1, [(7, 13)])):
        header = json_header(310, {"a": "producers", "b": "orders", "i": "x" * (MAX_HEADER_BYTES - shortest + more)}, opaque=7)
        talk = Talk("rocketmq")
        talk.client(frame(header))
        assert codes(talk.to_client) == answered
        assert talk.to_broker == (b"" if answered else frame(header))


def test_a_client_is_not_known_before_its_first_request_is_whole() -> None:
    """Until then the time for the handshake runs."""
    data = frame(json_header(310, extra(), opaque=7))
    talk = Talk("rocketmq")
    assert isinstance(talk.conversation, RocketmqConversation)
    talk.client(data[:-1])
    assert not talk.conversation.handshake_done
    talk.client(data[-1:])
    assert talk.conversation.handshake_done


@pytest.mark.parametrize(
    "header",
    [b"{" + b" " * MAX_HEADER_BYTES + b"}", json_header(0, {"x": "y" * MAX_HEADER_BYTES}, opaque=5, flag=1)],
    ids=["no opaque", "an answer"],
)
def test_what_cannot_be_answered_ends_the_connection(header: bytes) -> None:
    with pytest.raises(ProtocolError, match="header of"):
        Talk("rocketmq", rule(messages=100)).client(b"", [frame(header)])
