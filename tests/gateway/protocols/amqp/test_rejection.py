"""A rejection, read back by pamqp: the handshake up to connection.open, then the reason."""

from __future__ import annotations

import pytest
from pamqp import commands

from gateway.protocols.amqp.rejection import Rejection
from support.amqp import frames as amqp
from support.wires.conversations import bytewise, randomly

TEXT = "listener rabbit has 2 connections, max_connections is 2"
GREETING = amqp.greeting()
CLOSE_OK = amqp.method(0, commands.Connection.CloseOk())


def test_a_client_is_led_to_open_and_rejected_there() -> None:
    rejection = Rejection(320, TEXT)
    (start,) = amqp.read(rejection.receive(amqp.PROTOCOL_HEADER))
    assert isinstance(start.value, commands.Connection.Start)
    assert (start.value.version_major, start.value.version_minor) == (0, 9)
    assert start.value.mechanisms.split() == ["PLAIN", "AMQPLAIN", "EXTERNAL"]
    assert start.value.server_properties["product"] == "sluice"
    (tune,) = amqp.read(rejection.receive(amqp.method(0, commands.Connection.StartOk({}, "PLAIN", "\0a\0b", "en_US"))))
    assert isinstance(tune.value, commands.Connection.Tune)
    assert (tune.value.channel_max, tune.value.frame_max, tune.value.heartbeat) == (2047, 131072, 60)
    assert rejection.receive(amqp.method(0, commands.Connection.TuneOk(2047, 131072, 60))) == b""
    (close,) = amqp.read(rejection.receive(amqp.HEARTBEAT + amqp.method(0, commands.Connection.Open("/"))))
    assert isinstance(close.value, commands.Connection.Close)
    assert (close.value.reply_code, close.value.reply_text) == (320, f"CONNECTION_FORCED - {TEXT}")
    assert not rejection.over
    assert rejection.receive(amqp.publish(1, "q") + CLOSE_OK) == b""
    assert rejection.over


@pytest.mark.parametrize("chunks", [[GREETING], bytewise(GREETING), randomly(GREETING, 1), randomly(GREETING, 2)])
def test_it_is_the_same_however_the_bytes_come(chunks: list[bytes]) -> None:
    rejection = Rejection(530, TEXT)
    said = b"".join(rejection.receive(chunk) for chunk in chunks)
    assert amqp.names(said) == ["Connection.Start", "Connection.Tune", "Connection.Close"]
    rejection.receive(CLOSE_OK)
    assert rejection.over


@pytest.mark.parametrize(("product", "away"), [("Bunny", True), ("Bunny", False), ("pika", True)])
def test_bunny_is_told_nothing_while_its_broker_is_away(product: str, away: bool) -> None:
    """Before 3.2 it may recover no more once it is told; where the connection is closed, it tries again."""
    rejection = Rejection(320, TEXT, away)
    start_ok = amqp.method(0, commands.Connection.StartOk({"platform": "x", "product": product}, "PLAIN", "\0a\0b", "en_US"))
    said = rejection.receive(amqp.PROTOCOL_HEADER + start_ok)
    silent = product == "Bunny" and away
    assert amqp.names(said) == ["Connection.Start", *([] if silent else ["Connection.Tune"])]
    assert rejection.over == silent


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"AMQP\x00\x01\x00\x00",
        amqp.PROTOCOL_HEADER + b"\x01\x00\x00\xff\xff\xff\xff" + b"x",
        amqp.PROTOCOL_HEADER + amqp.raw_frame(1, 0, b"abcd", end=0),
    ],
    ids=["http", "amqp 1.0", "4 GiB announced", "no end octet"],
)
def test_a_client_that_does_not_speak_the_protocol_is_not_waited_for(garbage: bytes) -> None:
    rejection = Rejection(320, TEXT)
    rejection.receive(garbage)
    assert rejection.over
    assert "rest=0" in repr(rejection)
