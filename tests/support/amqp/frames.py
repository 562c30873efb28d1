"""AMQP 0-9-1 frames for tests, written and read by pamqp: another hand than the gateway's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pamqp.base
import pamqp.exceptions
import pamqp.frame
from pamqp import body, commands, header

HEARTBEAT = b"\x08\x00\x00\x00\x00\x00\x00\xce"
PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"


def method(channel: int, frame: pamqp.base.Frame | header.ContentHeader) -> bytes:
    return pamqp.frame.marshal(frame, channel)


def raw_frame(kind: int, channel: int, payload: bytes, end: int = 0xCE) -> bytes:
    return bytes([kind]) + channel.to_bytes(2, "big") + len(payload).to_bytes(4, "big") + payload + bytes([end])


def content(
    channel: int,
    payload: bytes,
    *,
    cut: int = 131064,
    message_id: str | None = None,
    expiration: str | None = None,
    persistent: bool = False,
) -> bytes:
    """Header and body frames of at most `cut` bytes of payload."""
    properties = commands.Basic.Properties(delivery_mode=2 if persistent else 1, message_id=message_id, expiration=expiration)
    frames = [method(channel, header.ContentHeader(body_size=len(payload), properties=properties))]
    frames.extend(raw_frame(3, channel, payload[at : at + cut]) for at in range(0, len(payload), cut))
    return b"".join(frames)


def publish(
    channel: int,
    routing_key: str,
    payload: bytes = b"hello",
    *,
    exchange: str = "",
    mandatory: bool = False,
    cut: int = 131064,
    message_id: str | None = None,
    expiration: str | None = None,
    persistent: bool = False,
) -> bytes:
    command = commands.Basic.Publish(exchange=exchange, routing_key=routing_key, mandatory=mandatory)
    return method(channel, command) + content(
        channel, payload, cut=cut, message_id=message_id, expiration=expiration, persistent=persistent
    )


def deliver(channel: int, payload: bytes, *, tag: int = 1, cut: int = 131064, consumer_tag: str = "c") -> bytes:
    command = commands.Basic.Deliver(consumer_tag=consumer_tag, delivery_tag=tag, exchange="", routing_key="q")
    return method(channel, command) + content(channel, payload, cut=cut)


def grown_header(channel: int, size: int, payload: bytes) -> bytes:
    """A content whose header frame has a payload of `size` bytes, most of them one application header."""
    empty = len(pamqp.frame.marshal(header.ContentHeader(properties=commands.Basic.Properties(headers={"trace": ""})), channel)) - 8
    properties = commands.Basic.Properties(headers={"trace": "x" * (size - empty)})
    made = method(channel, header.ContentHeader(body_size=len(payload), properties=properties))
    return made + (raw_frame(3, channel, payload) if payload else b"")


def greeting(
    *,
    vhost: str = "/",
    user: str = "guest",
    password: str = "secret",
    frame_max: int = 131072,
    channel_max: int = 2047,
    heartbeat: int = 60,
    channels: tuple[int, ...] = (),
    confirms: tuple[int, ...] = (),
    capabilities: dict[str, bool] | None = None,
) -> bytes:
    """All a client says before its first publish, in one piece."""
    properties: dict[str, Any] = {"product": "test", "version": "1"}
    if capabilities is not None:
        properties["capabilities"] = capabilities
    pieces = [
        PROTOCOL_HEADER,
        method(0, commands.Connection.StartOk(properties, "PLAIN", f"\0{user}\0{password}", "en_US")),
        method(0, commands.Connection.TuneOk(channel_max, frame_max, heartbeat)),
        method(0, commands.Connection.Open(vhost)),
    ]
    for channel in channels:
        pieces.append(method(channel, commands.Channel.Open()))
        if channel in confirms:
            pieces.append(method(channel, commands.Confirm.Select(nowait=True)))
    return b"".join(pieces)


def broker_start() -> bytes:
    return method(0, commands.Connection.Start(server_properties={"product": "RabbitMQ"}))


def broker_opens() -> bytes:
    """All a broker says until the connection is open, in one piece: from then on publishes are judged."""
    return broker_start() + method(0, commands.Connection.Tune(2047, 131072, 60)) + method(0, commands.Connection.OpenOk())


def opened(*channels: int) -> bytes:
    """The broker's answers to the channel.opens of a `greeting`; the gateway's own replies wait for them."""
    return b"".join(method(channel, commands.Channel.OpenOk()) for channel in channels)


def ack(channel: int, tag: int, *, multiple: bool = False) -> bytes:
    return method(channel, commands.Basic.Ack(tag, multiple))


def nack(channel: int, tag: int, *, multiple: bool = False) -> bytes:
    return method(channel, commands.Basic.Nack(tag, multiple, requeue=False))


@dataclass(frozen=True)
class Frame:
    """One frame as read back: the method's name, or "ContentHeader", "ContentBody", "Heartbeat"."""

    channel: int
    name: str
    value: Any
    raw: bytes


def read_raw(raw: bytes) -> Frame:
    """One whole frame. Methods pamqp cannot read (names that are not UTF-8) are called "Unreadable"."""
    assert raw[-1] == 0xCE, "a frame does not end where it says"
    if raw[0] == 3:
        return Frame(int.from_bytes(raw[1:3], "big"), "ContentBody", body.ContentBody(raw[7:-1]), raw)
    try:
        used, channel, value = pamqp.frame.unmarshal(raw)
    except pamqp.exceptions.UnmarshalingException:
        return Frame(int.from_bytes(raw[1:3], "big"), "Unreadable", None, raw)
    assert used == len(raw)
    return Frame(channel, getattr(value, "name", type(value).__name__), value, raw)


def read(data: bytes) -> list[Frame]:
    """All frames of `data`, which must be whole."""
    frames: list[Frame] = []
    at = 8 if data.startswith(b"AMQP") else 0
    while at < len(data):
        size = 8 + int.from_bytes(data[at + 3 : at + 7], "big")
        raw = data[at : at + size]
        assert len(raw) == size, "ends within a frame"
        frames.append(read_raw(raw))
        at += size
    return frames


def names(data: bytes) -> list[str]:
    return [frame.name for frame in read(data)]


@dataclass(frozen=True)
class Confirm:
    """basic.ack or basic.nack, as it reached the client."""

    channel: int
    acked: bool
    tag: int
    multiple: bool


def confirms(data: bytes) -> list[Confirm]:
    """The confirms in `data`."""
    return [
        Confirm(frame.channel, frame.name == "Basic.Ack", frame.value.delivery_tag, frame.value.multiple)
        for frame in read(data)
        if isinstance(frame.value, commands.Basic.Ack | commands.Basic.Nack)
    ]


def per_channel(data: bytes) -> dict[int, bytes]:
    """The bytes of each channel, in order: what the protocol promises when channels interleave."""
    streams: dict[int, bytes] = {}
    for frame in read(data):
        streams[frame.channel] = streams.get(frame.channel, b"") + frame.raw
    return streams
