"""Bad bytes: the protocol's own error for whoever sent them, ProtocolError and nothing else, nothing forwarded after them."""

from __future__ import annotations

import tracemalloc
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands

from gateway.pipeline.errors import ProtocolError
from support.amqp import frames as amqp
from support.amqp.bad_bytes import BAD, HEADER, METHOD, OPENED
from support.cases import in_one_loop
from support.wires.conversations import Talk, bytewise, randomly


def opened() -> Talk:
    talk = Talk("amqp")
    talk.client(OPENED)
    talk.broker(amqp.broker_opens())
    talk.to_client = b""
    return talk


@in_one_loop
@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("cut", ["whole", "bytewise", "behind a good one"])
def test_the_client_is_told_its_error_and_nothing_more_is_forwarded(name: str, cut: str) -> None:
    data, code = BAD[name]
    talk = opened()
    before = talk.to_broker
    good = amqp.publish(2, "bills", b"x" * 10)
    said = (good if cut == "behind a good one" else b"") + data + good
    with pytest.raises(ProtocolError) as caught:
        talk.client(said, bytewise(said) if cut == "bytewise" else None)
    error = caught.value
    assert error.whose == "client"
    [close] = amqp.read(error.last_frames)
    assert isinstance(close.value, commands.Connection.Close)
    assert (close.channel, close.value.reply_code) == (0, code)
    assert close.value.reply_text.split(" - ")[0] == str(error).split(" - ")[0]
    assert good not in talk.to_broker[len(before) :]


@pytest.mark.parametrize(
    ("first", "cause"),
    [
        (b"GET / HTTP/1.1\r\n", "wrong_protocol_http"),
        (b"POST /v1 HTTP/1.1\r\n", "wrong_protocol_http"),
        (b"PRI * HTTP/2.0\r\n\r\n", "wrong_protocol_http2"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", "wrong_protocol_tls"),
        (b"AMQP\x00\x01\x00\x00", "wrong_protocol_amqp_1_0"),
        (b"AMQP\x03\x01\x00\x00", "wrong_protocol_amqp_1_0"),
        (b"AMQP\x01\x01\x08\x00", "wrong_protocol_amqp_version"),
        (b"\x10\x0c\x00\x04MQTT", "wrong_protocol_mqtt"),
        (b"\x00\x00\x00\xd2\x00\x00", "wrong_protocol_unknown"),
    ],
)
def test_another_protocol_is_told_ours_and_named_in_the_cause(first: bytes, cause: str) -> None:
    for chunks in ([first], bytewise(first)):
        talk = Talk("amqp")
        with pytest.raises(ProtocolError) as caught:
            talk.client(first, chunks)
        assert (caught.value.cause, caught.value.last_frames) == (cause, amqp.PROTOCOL_HEADER)
        assert talk.to_broker == b""


def test_no_announced_size_is_ever_allocated() -> None:
    talk = Talk("amqp")
    talk.client(amqp.greeting(channels=(1,), frame_max=0))
    talk.broker(amqp.broker_opens())
    tracemalloc.start()
    with pytest.raises(ProtocolError):
        talk.client(b"\x03\x00\x01\xff\xff\xff\xf0" + bytes(100))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


def test_without_an_agreed_size_the_listeners_holds() -> None:
    talk = Talk("amqp", max_frame=1 << 20)
    talk.client(amqp.greeting(channels=(1,), frame_max=0))
    talk.broker(amqp.broker_opens())
    talk.client(amqp.publish(1, "orders", b"x" * (1 << 20), cut=1 << 20))
    with pytest.raises(ProtocolError) as caught:
        talk.client(amqp.publish(1, "orders", b"x" * (1 << 21), cut=(1 << 20) + 1))
    assert caught.value.cause == "frame_too_large"


@pytest.mark.parametrize("payload", [131_064, 131_072])
def test_frames_up_to_the_brokers_own_tolerance_pass(payload: int) -> None:
    talk = opened()
    before = len(talk.to_broker)
    data = amqp.publish(1, "orders", b"x" * payload, cut=payload)
    talk.client(data)
    assert talk.to_broker[before:] == data


def test_within_a_frame_from_the_broker_there_are_no_close_frames() -> None:
    talk = opened()
    talk.broker(amqp.deliver(2, b"x" * 1000)[:-10])
    with pytest.raises(ProtocolError) as caught:
        talk.client(amqp.raw_frame(9, 1, b""))
    assert talk.conversation.last_frames(caught.value) == b""


# ---- the broker's bytes ----------------------------------------------------------------------------------------------

BAD_BROKER = {
    "bad frame end": amqp.raw_frame(1, 0, b"\x00\x0a\x00\x3c\x00", end=0),
    "bad end of a body": amqp.raw_frame(3, 1, b"hello", end=0),
    "frame of unknown type": amqp.raw_frame(7, 1, b""),
    "frame above the agreed size": b"\x03\x00\x01" + (131_073).to_bytes(4, "big") + b"x",
    "header that never ends": b"\x02\x00\x01\xff\xff\xff\xf0" + bytes(100),
    "method too short to be one": amqp.raw_frame(1, 1, b"\x00"),
    "header too short": amqp.raw_frame(2, 1, b"\x00\x3c\x00\x00"),
    "confirm of the wrong size": amqp.raw_frame(1, 1, b"\x00\x3c\x00\x50\x00"),
    "confirm for what never was": amqp.ack(1, 2),
}


@in_one_loop
@pytest.mark.parametrize("name", BAD_BROKER)
@pytest.mark.parametrize("bytes_at_a_time", [1, 1000])
def test_a_brokers_bad_bytes_are_its_own_fault(name: str, bytes_at_a_time: int) -> None:
    data = BAD_BROKER[name]
    talk = opened()
    talk.client(amqp.method(1, commands.Confirm.Select()) + amqp.publish(1, "orders"))
    with pytest.raises(ProtocolError) as caught:
        talk.broker(data, [data[at : at + bytes_at_a_time] for at in range(0, len(data), bytes_at_a_time)])
    error = caught.value
    assert (error.whose, error.cause) == ("broker", "broker_protocol_error")
    told = talk.to_client + error.last_frames
    if name == "bad end of a body" and bytes_at_a_time == 1:  # the client stands within that frame: nothing can be said
        assert told == data[:-1]
    else:
        close = amqp.read(told)[-1].value
        assert isinstance(close, commands.Connection.Close)
        assert close.reply_code == 541


def test_frames_before_a_brokers_bad_frame_reach_the_client() -> None:
    talk = opened()
    talk.client(amqp.method(1, commands.Confirm.Select()) + amqp.publish(1, "orders"))
    with pytest.raises(ProtocolError) as caught:
        talk.broker(amqp.ack(1, 1) + amqp.raw_frame(7, 1, b""))
    assert amqp.names(talk.to_client + caught.value.last_frames) == ["Basic.Ack", "Connection.Close"]


# ---- anything at all -------------------------------------------------------------------------------------------------

STARTS = [OPENED, b"", amqp.PROTOCOL_HEADER, OPENED + METHOD, OPENED + METHOD + HEADER]
FRAGMENTS = [data for data, _ in BAD.values()] + [
    amqp.publish(1, "a"),
    amqp.publish(2, "b", b""),
    amqp.HEARTBEAT,
    METHOD,
    HEADER,
    OPENED[8:],
]


@settings(deadline=None, max_examples=150)
@given(st.sampled_from(STARTS), st.lists(st.one_of(st.binary(max_size=40), st.sampled_from(FRAGMENTS)), max_size=6), st.integers(0, 99))
def test_garbage_raises_protocol_error_and_nothing_else(start: bytes, pieces: list[bytes], seed: int) -> None:
    data = b"".join(pieces)
    noise = Random(seed)
    flipped = bytearray(data)
    for _ in range(noise.randrange(3) if data else 0):
        flipped[noise.randrange(len(flipped))] = noise.randrange(256)
    for sent in (data, bytes(flipped)):
        talk = Talk("amqp")
        try:
            talk.client(start + sent, randomly(start + sent, seed))
            talk.broker(amqp.broker_opens() + sent, randomly(amqp.broker_opens() + sent, seed))
        except ProtocolError:
            pass
        talk.conversation.abandon()
        talk.conversation.end()


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=300))
def test_any_table_in_start_ok_is_survived(noise: bytes) -> None:
    table = len(noise).to_bytes(4, "big") + noise
    arguments = table + b"\x05PLAIN" + (8).to_bytes(4, "big") + b"\0me\0word" + b"\x05en_US"
    talk = Talk("amqp")
    talk.client(amqp.PROTOCOL_HEADER + amqp.raw_frame(1, 0, b"\x00\x0a\x00\x0b" + arguments))
    assert talk.conversation.user == "me"


@in_one_loop
@pytest.mark.parametrize("side", ["client", "broker"])
@pytest.mark.parametrize("channel", [0, 1])
@pytest.mark.parametrize("fill", [0x00, 0x01, 0xFF])
def test_a_method_that_ends_too_early_is_the_protocols_own_error_or_none(side: str, channel: int, fill: int) -> None:
    talk, blamed = opened(), {side}
    for index in commands.INDEX_MAPPING:
        for size in range(24):
            frame = amqp.raw_frame(1, channel, (index.to_bytes(4, "big") + bytes([fill]) * 20)[:size])
            try:
                (talk.client if side == "client" else talk.broker)(frame)
            except ProtocolError as error:
                blamed.add(error.whose)
                talk = opened()
    assert blamed == {side}
