"""Bad bytes end the conversation with a sentence and a cause; nothing of them reaches the broker (`docs/design/reliability.md` F08 to
F11)."""

from __future__ import annotations

import struct
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.pipeline.errors import ProtocolError
from gateway.pipeline.parts import Part
from support.cases import in_one_loop
from support.rocketmq.bad_bytes import BAD, OTHER_PROTOCOLS
from support.rocketmq.frames import Value, encode_request, frame, heartbeat, json_header, response, send
from support.wires.conversations import MAX_FRAME, Talk, bytewise, randomly, rule

MIB = 1 << 20


@in_one_loop
@pytest.mark.parametrize(("data", "cause", "words"), BAD.values(), ids=BAD)
def test_the_error_says_what_it_was(data: bytes, cause: str, words: str) -> None:
    talk = Talk("rocketmq")
    with pytest.raises(ProtocolError) as caught:
        talk.client(data)
    error = caught.value
    assert (error.whose, error.cause, error.last_frames) == ("client", cause, b"")
    assert words in str(error)
    assert "\n" not in str(error)
    assert len(str(error)) < 200
    assert talk.to_broker == b""


@in_one_loop
@pytest.mark.parametrize(("data", "cause", "words"), BAD.values(), ids=BAD)
def test_requests_before_the_fault_pass_and_none_after_it(data: bytes, cause: str, words: str) -> None:
    before = heartbeat(opaque=1) + send(opaque=2) + send(opaque=3)
    after = send(opaque=4)
    for chunks in ([before + data + after], [*bytewise(before), data, after], [*randomly(before + data[:100], 1), data[100:], after]):
        talk = Talk("rocketmq", rule(messages=1))
        with pytest.raises(ProtocolError) as caught:
            talk.client(b"", chunks)
        assert (caught.value.cause, words in str(caught.value)) == (cause, True)
        assert talk.to_broker == heartbeat(opaque=1) + send(opaque=2)
        assert b'"opaque":          3,' in talk.to_client


@pytest.mark.parametrize(("data", "cause", "words"), OTHER_PROTOCOLS.values(), ids=OTHER_PROTOCOLS)
def test_other_protocols_are_detected_by_four_bytes(data: bytes, cause: str, words: str) -> None:
    with pytest.raises(ProtocolError, match=words) as caught:
        Talk("rocketmq").client(b"", bytewise(data[:4]))
    assert caught.value.cause == cause


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


@pytest.mark.parametrize("what", ["topic", "group", "properties", "access key", "consumed topic"])
def test_names_as_long_as_a_header_may_be_are_not_kept(what: str) -> None:
    """Once 100 requests of 200 kB each left 105 MB behind: raw keys, their text, and the templates of headers."""
    long = "x" * 100_000
    talk = Talk("rocketmq", rule(messages=1_000_000))
    talk.client(send("t0") + encode_request(11, {"topic": "t0", "consumerGroup": "g"}))
    talk.broker(response(1))
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(20):
            name = f"{number}{long}"
            extra: dict[str, Value] = {"b": name if what == "topic" else "t", "a": name if what == "group" else "g"}
            extra |= {"i": long if what == "properties" else "", "AccessKey": name if what == "access key" else "k"}
            data = encode_request(310, extra, opaque=number)
            if what == "consumed topic":
                data = encode_request(11, {"topic": name, "consumerGroup": name, "queueId": 0}, opaque=number)
            talk.client(data)
            assert talk.to_broker.endswith(data)
            talk.to_broker, talk.parts, talk.requests = b"", [], []
        del name, data, extra
        assert tracemalloc.get_traced_memory()[0] - before < MIB
    finally:
        tracemalloc.stop()


STREAM = heartbeat() + send(opaque=1) + send(opaque=2, binary=True) + send(opaque=3, one_way=True)


@given(
    garbage=st.one_of(st.binary(max_size=300), st.builds(frame, st.binary(max_size=60), st.binary(max_size=10), st.integers(0, 2))),
    keep=st.integers(0, len(STREAM)),
    split=st.integers(0, 300),
)
@example(garbage=b"\x00\x00\x00\x06\x00\x00\x00\x05\x00\x00\x00", keep=169, split=0)
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
