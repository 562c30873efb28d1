"""Bad bytes of an AMQP client, each with the reply code it must be told (F08, F09 of `docs/design/reliability.md`, `docs/design/amqp.md`
1.1).

To be said behind `OPENED`: channels 1 and 2 are open, frames of 131,072 bytes agreed on.
"""

from __future__ import annotations

from pamqp import commands

from support.amqp import frames as amqp

OPENED = amqp.greeting(channels=(1, 2), frame_max=131_072)
METHOD = amqp.method(1, commands.Basic.Publish(routing_key="orders"))
HEADER = amqp.content(1, b"hello")[: -len(amqp.raw_frame(3, 1, b"hello"))]


def publish_method(names: bytes) -> bytes:
    return amqp.raw_frame(1, 1, b"\x00\x3c\x00\x28\x00\x00" + names)


def header(size: int, *, channel: int = 1, kind: int = 60, weight: int = 0, extra: bytes = b"\x00\x00") -> bytes:
    payload = kind.to_bytes(2, "big") + weight.to_bytes(2, "big") + size.to_bytes(8, "big") + extra
    return amqp.raw_frame(2, channel, payload)


BAD = {
    "bad frame end": (amqp.raw_frame(1, 1, b"\x00\x14\x00\x28", end=0xCD), 501),
    "bad end of a publish": (METHOD[:-1] + b"\x00" + amqp.content(1, b"hello"), 501),
    "bad end of a header": (METHOD + HEADER[:-1] + b"\x00" + amqp.raw_frame(3, 1, b"hello"), 501),
    "bad end of a body": (METHOD + HEADER + amqp.raw_frame(3, 1, b"hello", end=0), 501),
    "frame of type 0": (amqp.raw_frame(0, 1, b""), 501),
    "frame of type 9": (amqp.raw_frame(9, 1, b"x"), 501),
    "protocol header in the middle": (amqp.PROTOCOL_HEADER, 501),
    "frame above the agreed size": (b"\x03\x00\x01" + (131_073).to_bytes(4, "big"), 501),
    "frame of 4 GiB": (b"\x01\x00\x01\xff\xff\xff\xff", 501),
    "header above the agreed size": (METHOD + b"\x02\x00\x01" + (131_073).to_bytes(4, "big"), 501),
    "body above the agreed size": (METHOD + header(200_000) + b"\x03\x00\x01" + (200_000).to_bytes(4, "big"), 501),
    "body above the agreed size, and there": (amqp.publish(1, "orders", bytes(131_073), cut=131_073), 501),
    "heartbeat on channel 1": (amqp.raw_frame(8, 1, b""), 505),
    "heartbeat with a payload": (amqp.raw_frame(8, 0, b"x"), 501),
    "method too short to be one": (amqp.raw_frame(1, 1, b"\x00\x3c"), 502),
    "publish on channel 0": (amqp.publish(0, "orders"), 503),
    "header on channel 0": (header(0, channel=0), 505),
    "body on channel 0": (amqp.raw_frame(3, 0, b"x"), 505),
    "header before method": (header(5), 505),
    "body before method": (amqp.raw_frame(3, 1, b"x"), 505),
    "body before header": (METHOD + amqp.HEARTBEAT + amqp.raw_frame(3, 1, b"x"), 505),
    "body at once after method": (METHOD + amqp.raw_frame(3, 1, b"hello"), 505),
    "method before header": (METHOD + METHOD + HEADER, 505),
    "ack within a body": (METHOD + header(9) + amqp.raw_frame(3, 1, b"12345") + amqp.ack(1, 1), 505),
    "body longer than announced": (METHOD + HEADER + amqp.raw_frame(3, 1, b"hello!"), 505),
    "body where none was announced": (METHOD + header(0) + amqp.raw_frame(3, 1, b""), 505),
    "header of another class": (METHOD + header(5, kind=61), 505),
    "header with a weight": (METHOD + header(5, weight=1), 505),
    "header too short": (METHOD + amqp.raw_frame(2, 1, b"\x00\x3c\x00\x00" + bytes(8)), 502),
    "body of 2**63": (METHOD + header(1 << 63), 502),
    "body of 2**64 - 1": (METHOD + header((1 << 64) - 1), 502),
    "exchange longer than the frame": (publish_method(b"\xffabc\x00\x00") + HEADER, 501),
    "routing key longer than the frame": (publish_method(b"\x00\xffabc\x00") + HEADER, 501),
    "publish without its bits": (publish_method(b"\x00\x03abc") + HEADER, 501),
    "publish with more than its bits": (publish_method(b"\x00\x03abc\x00\x00") + HEADER, 501),
    "publish without names": (amqp.raw_frame(1, 1, b"\x00\x3c\x00\x28") + HEADER, 501),
    "more channels than were agreed on": (b"".join(amqp.method(number, commands.Channel.Open()) for number in range(3, 2050)), 530),
}
