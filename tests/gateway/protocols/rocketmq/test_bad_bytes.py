"""Bad bytes end the conversation with a sentence and a cause; nothing of them reaches the broker (`reliability.md` F08 to F11)."""

from __future__ import annotations

import struct
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.messages import Part, ProtocolError
from support.conversations import MAX_FRAME, Talk, bytewise, randomly, rule
from support.rocketmq import frame, heartbeat, json_header, send

MIB = 1 << 20

BAD = [
    pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "wrong_protocol", "HTTP request", id="HTTP GET"),
    pytest.param(b"POST /v1 HTTP/1.1\r\n\r\n", "wrong_protocol", "HTTP request", id="HTTP POST"),
    pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "wrong_protocol", "gRPC client on the remoting port", id="HTTP/2"),
    pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "wrong_protocol", "TLS on a plain port", id="TLS"),
    pytest.param(b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n", "wrong_protocol", "PROXY protocol", id="PROXY v1"),
    pytest.param(b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c", "wrong_protocol", "PROXY protocol", id="PROXY v2"),
    pytest.param(b"AMQP\x00\x00\x09\x01", "wrong_protocol", "AMQP client", id="AMQP 0-9-1"),
    pytest.param(b"AMQP\x03\x01\x00\x00", "wrong_protocol", "AMQP client", id="AMQP 1.0"),
    pytest.param(b"\x10\x13\x00\x04MQTT\x04\x02\x00\x3c", "wrong_protocol", "MQTT", id="MQTT"),
    pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n", "wrong_protocol", "SSH", id="SSH"),
    pytest.param(b"\xff\xff\xff\xff\x00\x00\x00\x00", "frame_too_large", "max_frame", id="4 GiB"),
    pytest.param(struct.pack(">II", MAX_FRAME - 3, 8), "frame_too_large", "max_frame", id="16 MiB + 1"),
    pytest.param(bytes(8), "bad_length", "0 bytes", id="length 0"),
    pytest.param(struct.pack(">II", 3, 0), "bad_length", "3 bytes", id="length 3"),
    pytest.param(struct.pack(">II", 10, 7) + bytes(6), "bad_header", "header of 7 bytes", id="header longer than the frame"),
    pytest.param(struct.pack(">II", 10, 0xFFFFFF) + bytes(6), "bad_header", "header of 16777215 bytes", id="header of 16 MiB"),
    pytest.param(struct.pack(">II", 15 * MIB, 14 * MIB), "frame_too_large", "header of", id="header larger than is taken"),
    pytest.param(frame(b"{}", kind=2), "bad_header", "serialize type 2", id="type 2"),
    pytest.param(frame(b"{}", kind=255), "bad_header", "serialize type 255", id="type 255"),
    pytest.param(frame(b""), "bad_header", "unreadable", id="no header"),
    pytest.param(frame(b"{", b"body"), "bad_header", "unreadable", id="half a JSON header"),
    pytest.param(frame(b"\x80" * 30), "bad_header", "unreadable", id="not UTF-8"),
    pytest.param(frame(b"[" * 10_000), "bad_header", "unreadable", id="depth 10,000"),
    pytest.param(frame(b"[" * 10_000 + b"]" * 10_000), "bad_header", "unreadable", id="depth 10,000, closed"),
    pytest.param(frame(b'{"code":1e400}'), "bad_header", "unreadable", id="1e400"),
    pytest.param(frame(bytes(20), kind=1), "bad_header", "fixed part", id="binary header too short"),
    pytest.param(frame(json_header(310, {"b": 1.5}, opaque=1)), "bad_header", "topic", id="topic 1.5"),  # type: ignore[dict-item]
]


@pytest.mark.parametrize(("data", "cause", "words"), BAD)
def test_the_error_says_what_it_was(data: bytes, cause: str, words: str) -> None:
    talk = Talk("rocketmq")
    with pytest.raises(ProtocolError) as caught:
        talk.client(data)
    error = caught.value
    assert (error.whose, error.cause, error.farewell) == ("client", cause, b"")
    assert words in str(error)
    assert "\n" not in str(error)
    assert len(str(error)) < 200
    assert talk.to_broker == b""


@pytest.mark.parametrize(("data", "cause", "words"), BAD)
def test_what_came_before_goes_its_way_and_nothing_after(data: bytes, cause: str, words: str) -> None:
    before = heartbeat(opaque=1) + send(opaque=2) + send(opaque=3)
    after = send(opaque=4)
    for chunks in ([before + data + after], [*bytewise(before), data, after], [*randomly(before + data[:100], 1), data[100:], after]):
        talk = Talk("rocketmq", rule(messages=1))
        with pytest.raises(ProtocolError) as caught:
            talk.client(b"", chunks)
        assert (caught.value.cause, words in str(caught.value)) == (cause, True)
        assert talk.to_broker == heartbeat(opaque=1) + send(opaque=2)
        assert b'"opaque":          3,' in talk.to_client


@pytest.mark.parametrize("stranger", [b"GET ", b"PRI ", b"\x16\x03\x01\x02", b"PROX", b"AMQP"])
def test_strangers_are_known_by_four_bytes(stranger: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        Talk("rocketmq").client(b"", bytewise(stranger))
    assert caught.value.cause == "wrong_protocol"


def test_announced_sizes_are_not_allocated() -> None:
    prefixes = [
        struct.pack(">II", MAX_FRAME - 4, 100),
        struct.pack(">II", MAX_FRAME - 4, MIB),
        struct.pack(">II", 0xFFFFFFFF, 0),
        struct.pack(">II", MAX_FRAME - 4, 0x00FFFFF0),
        frame(json_header(310, {"b": "t", "m": "true"}))[4:],
    ]
    prefixes[4] = struct.pack(">I", MAX_FRAME - 4) + prefixes[4]
    tracemalloc.start()
    try:
        for prefix in prefixes:
            talk = Talk("rocketmq")
            with suppress(ProtocolError):
                talk.client(prefix)
            assert talk.to_broker == b""
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()


STREAM = heartbeat() + send(opaque=1) + send(opaque=2, binary=True) + send(opaque=3, one_way=True)


@given(
    garbage=st.one_of(st.binary(max_size=300), st.builds(frame, st.binary(max_size=60), st.binary(max_size=10), st.integers(0, 2))),
    keep=st.integers(0, len(STREAM)),
    split=st.integers(0, 300),
)
@settings(max_examples=150, deadline=None)
def test_garbage_from_the_client_raises_nothing_else(garbage: bytes, keep: int, split: int) -> None:
    data = STREAM[:keep] + garbage
    outcomes = []
    for chunks in ([data], [data[:split], data[split:]], bytewise(data)):
        talk = Talk("rocketmq", rule(messages=1))
        try:
            talk.client(b"", chunks)
            outcomes.append((talk.to_broker, talk.to_client, ""))
        except ProtocolError as error:
            outcomes.append((talk.to_broker, talk.to_client, error.cause))
    assert outcomes[0] == outcomes[1] == outcomes[2]
    if keep >= len(heartbeat()):
        assert outcomes[0][0].startswith(heartbeat())


@given(st.lists(st.tuples(st.integers(0, len(STREAM) - 1), st.integers(0, 255)), min_size=1, max_size=4))
@settings(max_examples=150, deadline=None)
def test_flipped_bytes_raise_nothing_else(flips: list[tuple[int, int]]) -> None:
    data = bytearray(STREAM)
    for at, octet in flips:
        data[at] = octet
    talk = Talk("rocketmq", rule(messages=1))
    fault = ""
    try:
        talk.client(bytes(data))
    except ProtocolError as error:
        fault = error.whose
    assert fault in {"", "client"}


@given(st.binary(max_size=200))
@settings(max_examples=100, deadline=None)
def test_garbage_from_the_broker_raises_nothing_else_and_nothing_is_kept_back(data: bytes) -> None:
    talk = Talk("rocketmq")
    fault = ""
    try:
        talk.broker(b"", randomly(data, len(data)))
    except ProtocolError as error:
        fault = error.whose
    assert (talk.to_client == data) if fault == "" else (fault == "broker" and data.startswith(talk.to_client))


def test_an_error_after_decoded_parts_waits_for_the_next_call() -> None:
    talk = Talk("rocketmq")
    parts: list[Part] = []
    data = send() + b"GET / HTTP/1.1\r\n"
    position = talk.conversation.decode(data, 0, 512, parts)
    assert (position, len(parts), talk.conversation.need) == (len(send()), 1, 1)
    with pytest.raises(ProtocolError):
        talk.conversation.decode(data[position:], 0, 512, [])
