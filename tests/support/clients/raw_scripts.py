"""Scripts of bytes for a real broker: every item of "everything passes" that a client library never says.

Every name begins with `Q`, which is another one each time a script is played (`raw_amqp.play`). A step is what the client says, or the name
of a frame it waits for (counted from the beginning). Before an error that ends the connection a script waits for what it was owed:
RabbitMQ's channels answer through processes of their own, and its connection.close may come before their answers, or in their place.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from pamqp import commands, header

from support.amqp import frames as amqp
from support.clients.raw_amqp import PLACEHOLDER, Step, opening

GET = b"\x00\x3c\x00\x46\x00\x00"


def method(channel: int, class_id: int, method_id: int, arguments: bytes = b"") -> bytes:
    return amqp.raw_frame(1, channel, class_id.to_bytes(2, "big") + method_id.to_bytes(2, "big") + arguments)


def short(text: bytes) -> bytes:
    return bytes([len(text)]) + text


def declare(name: bytes, *, channel: int = 1, bits: int = 0b01000) -> bytes:
    """queue.declare."""
    return method(channel, 50, 10, b"\x00\x00" + short(name) + bytes([bits]) + b"\x00\x00\x00\x00")


def publish(
    name: bytes,
    body: bytes,
    *,
    channel: int = 1,
    exchange: bytes = b"",
    bits: int = 0,
    cuts: tuple[int, ...] = (),
    props: bytes = b"\x00\x00",
) -> bytes:
    """A publish with its body cut at `cuts`; equal neighbours make empty frames."""
    places = [0, *cuts, len(body)]
    frames = [amqp.raw_frame(3, channel, body[a:b]) for a, b in pairwise(places)] if body else []
    head = method(channel, 60, 40, b"\x00\x00" + short(exchange) + short(name) + bytes([bits]))
    return head + amqp.raw_frame(2, channel, b"\x00\x3c\x00\x00" + len(body).to_bytes(8, "big") + props) + b"".join(frames)


def get(name: bytes, *, channel: int = 1) -> bytes:
    return amqp.raw_frame(1, channel, GET + short(name) + b"\x01")


EXCLUSIVE = 0b00100
NOWAIT = 0b10000
Q = PLACEHOLDER
OPEN = opening(1, 2)
READY = OPEN + declare(Q, bits=EXCLUSIVE)
METHOD, HEADER, BODY = [frame.raw for frame in amqp.read(publish(Q, b"interleaved"))]
CC: dict[str, Any] = {"headers": {"CC": ["passes-cc"], "BCC": ["passes-bcc"]}}
CC_PROPS = amqp.method(1, header.ContentHeader(body_size=2, properties=commands.Basic.Properties(**CC)))[7 + 12 : -1]
FOREIGN_USER = amqp.method(1, header.ContentHeader(body_size=2, properties=commands.Basic.Properties(user_id="somebody")))[7 + 12 : -1]
OWN_USER = amqp.method(1, header.ContentHeader(body_size=2, properties=commands.Basic.Properties(user_id="guest")))[7 + 12 : -1]
LONG = b"n" * 255
BYTES = b"caf\xe9.\xff\xfe"
AMQPLAIN = "\x05LOGINS\x00\x00\x00\x05guest\x08PASSWORDS\x00\x00\x00\x05guest"
BEHIND_OTHERS = "\x01xt\x01\x01aV\x01bD\0\0\0\0\1\x01cs\0\1\x01dF\0\0\0\x03\x01aV\x01eA\0\0\0\x02t\x01" + AMQPLAIN.replace(
    "LOGINS", "LOGINx"
)
SELECT = amqp.method(1, commands.Confirm.Select())
SELECT_NOWAIT = amqp.method(1, commands.Confirm.Select(nowait=True))

SCRIPTS: dict[str, tuple[Step, ...]] = {
    # handshakes
    "everything in one segment, a publish and its confirm": (
        READY + SELECT + publish(Q, b"all at once") + get(Q),
        "Basic.GetOk",
        "Basic.Ack",
    ),
    "step by step": (
        amqp.PROTOCOL_HEADER,
        "Connection.Start",
        OPEN[8:].split(b"\xce\x01\x00\x00", 1)[0] + b"\xce",
        "Connection.Tune",
        b"\x01\x00\x00" + OPEN[8:].split(b"\xce\x01\x00\x00", 1)[1],
        "Channel.OpenOk",
    ),
    "AMQPLAIN": (opening(1, mechanism="AMQPLAIN", response=AMQPLAIN), "Channel.OpenOk"),
    "AMQPLAIN, the name behind fields of other types": (opening(1, mechanism="AMQPLAIN", response=BEHIND_OTHERS), "Channel.OpenOk"),
    "wrong password": (opening(response="\0guest\0wrong"),),
    "EXTERNAL without a certificate": (opening(1, mechanism="EXTERNAL", response=""),),
    "several rounds of SASL": (
        opening(1, mechanism="RABBIT-CR-DEMO", response="guest")[:8]
        + amqp.method(0, commands.Connection.StartOk({}, "RABBIT-CR-DEMO", "guest", "en_US")),
        "Connection.Secure",
        amqp.method(0, commands.Connection.SecureOk("My password is guest")),
        "Connection.Tune",
        amqp.method(0, commands.Connection.TuneOk(2047, 131072, 0)) + amqp.method(0, commands.Connection.Open("/")),
        "Connection.OpenOk",
    ),
    "a virtual host that is not": (opening(1, vhost="nowhere"), "Connection.Close"),
    "AMQP 0-9": (b"AMQP\x01\x01\x00\x09" + OPEN[8:], "Channel.OpenOk"),
    "frame_max 4096": (
        opening(1, frame_max=4096) + declare(Q, bits=EXCLUSIVE) + publish(Q, b"x" * 9000, cuts=(4088, 8176)) + get(Q),
        "Basic.GetOk",
    ),
    "frame_max 4096, a payload as large": (
        opening(1, frame_max=4096) + declare(Q, bits=EXCLUSIVE) + publish(Q, b"x" * 4096) + get(Q),
        "Basic.GetOk",
    ),
    "frame_max 4096, one more": (
        opening(1, frame_max=4096) + declare(Q, bits=EXCLUSIVE),
        "Queue.DeclareOk",
        publish(Q, b"x" * 4097),
        "Connection.Close",
    ),
    "frame_max without a limit": (opening(1, frame_max=0),),
    "channel_max 3, a higher number": (opening(1, 9, channel_max=3), "Channel.OpenOk", "Channel.OpenOk"),
    "channel_max 3, one channel more": (
        opening(1, 2, 3, channel_max=3),
        *["Channel.OpenOk"] * 3,
        amqp.method(4, commands.Channel.Open()),
        "Connection.Close",
    ),
    "heartbeat 1": (opening(1, heartbeat=1), "Channel.OpenOk"),
    "heartbeat 65535": (opening(1, heartbeat=65535), "Channel.OpenOk"),
    "update-secret": (OPEN + method(0, 10, 70, b"\x00\x00\x00\x05guest" + short(b"a reason")),),
    # bodies
    "bodies of all cuts": (
        READY + b"".join(publish(Q, b"0123456789", cuts=cuts) for cuts in ((), (1,), (5, 5), (0,), (1, 2, 3, 4))) + get(Q) * 5,
        *["Basic.GetOk"] * 5,
    ),
    "an empty body": (READY + publish(Q, b"") + get(Q), "Basic.GetOk"),
    "a body of many frames": (READY + publish(Q, b"x" * 300_000, cuts=(131_064, 262_128)) + get(Q), "Basic.GetOk"),
    "other channels and heartbeats in mid-content": (
        READY,
        "Queue.DeclareOk",
        METHOD + amqp.HEARTBEAT + publish(Q, b"other", channel=2) + HEADER + amqp.HEARTBEAT + get(Q, channel=2),
        "Basic.GetOk",
        BODY + get(Q),
        "Basic.GetOk",
    ),
    # methods
    "an unknown class on a channel": (OPEN, "Channel.OpenOk", "Channel.OpenOk", method(1, 99, 10, b"\x00"), "Connection.Close"),
    "an unknown method on a channel": (OPEN, "Channel.OpenOk", "Channel.OpenOk", method(1, 60, 99, b"\x00"), "Connection.Close"),
    "an unknown method on channel 0": (OPEN, "Channel.OpenOk", "Channel.OpenOk", method(0, 10, 99), "Connection.Close"),
    "a method of the broker's own": (OPEN + method(1, 60, 60, short(b"c") + bytes(9) + b"\x00\x00"), "Channel.OpenOk", "Channel.OpenOk"),
    "nowait everywhere": (
        OPEN
        + declare(Q, bits=EXCLUSIVE | NOWAIT)
        + SELECT_NOWAIT
        + method(1, 40, 10, b"\x00\x00" + short(b"passes-x") + short(b"topic") + bytes([0b10000 | 0b00100]) + bytes(4))
        + method(1, 50, 20, b"\x00\x00" + short(Q) + short(b"passes-x") + short(b"a.#") + b"\x01" + bytes(4))
        + method(1, 60, 20, b"\x00\x00" + short(Q) + short(b"tag") + bytes([0b1010]) + bytes(4))
        + publish(b"a.b", b"routed", exchange=b"passes-x"),
        "Basic.Deliver",
        "Basic.Ack",
        method(1, 60, 30, short(b"tag") + b"\x01")
        + method(1, 50, 30, b"\x00\x00" + short(Q) + b"\x01")
        + method(1, 40, 20, b"\x00\x00" + short(b"passes-x") + b"\x02")
        + get(Q),
        "Basic.GetEmpty",
    ),
    "immediate": (READY, "Queue.DeclareOk", publish(Q, b"now", bits=2), "Connection.Close"),
    "mandatory and unroutable": (OPEN + SELECT + publish(b"passes-nowhere", b"back", bits=1), "Basic.Ack"),
    "mandatory and unroutable, without confirms": (OPEN + publish(b"passes-nowhere", b"back", bits=1), "ContentBody"),
    "CC and BCC": (
        OPEN
        + b"".join(declare(name, bits=EXCLUSIVE) for name in (Q, b"passes-cc", b"passes-bcc"))
        + publish(Q, b"cc", props=CC_PROPS)
        + get(Q)
        + get(b"passes-cc")
        + get(b"passes-bcc"),
        *["Basic.GetOk"] * 3,
    ),
    "names of 255 bytes": (
        OPEN
        + declare(LONG, bits=EXCLUSIVE)
        + method(1, 40, 10, b"\x00\x00" + short(b"x" * 255) + short(b"direct") + b"\x04" + bytes(4))
        + method(1, 50, 20, b"\x00\x00" + short(LONG) + short(b"x" * 255) + short(b"r" * 255) + b"\x00" + bytes(4))
        + publish(b"r" * 255, b"long", exchange=b"x" * 255)
        + get(LONG),
        "Basic.GetOk",
    ),
    "names that are not UTF-8": (
        OPEN
        + declare(Q, bits=EXCLUSIVE)
        + method(1, 50, 20, b"\x00\x00" + short(Q) + short(b"amq.direct") + short(BYTES) + b"\x00" + bytes(4))
        + publish(BYTES, b"bytes", exchange=b"amq.direct")
        + amqp.HEARTBEAT
        + get(Q),
        "ContentBody",
    ),
    "user_id of somebody else": (READY + SELECT + publish(Q, b"me", props=FOREIGN_USER) + publish(Q, b"behind"), "Channel.Close"),
    "user_id of one's own": (READY + publish(Q, b"me", props=OWN_USER) + get(Q), "Basic.GetOk"),
    "no such exchange, with publishes behind, and the channel used again": (
        READY + SELECT + publish(Q, b"1"),
        "Basic.Ack",
        publish(Q, b"2", exchange=b"passes-none") + publish(Q, b"3"),
        "Channel.Close",
        amqp.method(1, commands.Channel.Open()) + SELECT + publish(Q, b"4"),
        "Basic.Ack",
    ),
    "confirm.select twice and with nowait": (
        READY + SELECT_NOWAIT + publish(Q, b"1"),
        "Basic.Ack",
        publish(Q, b"2"),
        "Basic.Ack",
        SELECT + publish(Q, b"3"),
        "Basic.Ack",
    ),
    "confirms on a transaction": (READY + amqp.method(1, commands.Tx.Select()) + SELECT,),
    "a transaction on confirms": (READY + SELECT + amqp.method(1, commands.Tx.Select()),),
    "a transaction rolled back and one committed": (
        READY
        + amqp.method(1, commands.Tx.Select())
        + publish(Q, b"1")
        + amqp.method(1, commands.Tx.Rollback())
        + publish(Q, b"2")
        + amqp.method(1, commands.Tx.Commit())
        + get(Q) * 2,
        "Basic.GetOk",
        "Basic.GetEmpty",
    ),
    "a channel opened twice": (OPEN, "Channel.OpenOk", "Channel.OpenOk", amqp.method(1, commands.Channel.Open()), "Connection.Close"),
    "a channel that was never opened": (OPEN, "Channel.OpenOk", "Channel.OpenOk", declare(Q, channel=7), "Connection.Close"),
    "closed and opened at once": (
        READY,
        "Queue.DeclareOk",
        (amqp.method(1, commands.Channel.Close(200, "", 0, 0)) + amqp.method(1, commands.Channel.Open())) * 3 + get(Q),
        "Basic.GetEmpty",
    ),
    # ends
    "the end in mid-content": (READY, "Queue.DeclareOk", METHOD + HEADER),
    "the end behind a flood": (READY, "Queue.DeclareOk", publish(Q, b"x" * 500) * 200),
    # errors
    "a method within a message": (READY, "Queue.DeclareOk", METHOD + HEADER + get(Q), "Connection.Close"),
    "a header without a method": (READY, "Queue.DeclareOk", HEADER, "Connection.Close"),
    "a body without a header": (READY, "Queue.DeclareOk", METHOD + BODY, "Connection.Close"),
    "a frame without its end": (opening(1), "Channel.OpenOk", METHOD[:-1] + b"\x00" + HEADER + BODY, "Connection.Close"),
    "a frame of unknown type": (READY, "Queue.DeclareOk", amqp.raw_frame(9, 1, b"x"), "Connection.Close"),
    "content on channel 0": (READY, "Queue.DeclareOk", amqp.raw_frame(3, 0, b"x"), "Connection.Close"),
    "names longer than their frame": (
        READY,
        "Queue.DeclareOk",
        method(1, 60, 40, b"\x00\x00\x00\xffabc\x00") + HEADER + BODY,
        "Connection.Close",
    ),
    "a heartbeat on channel 1": (READY, "Queue.DeclareOk", amqp.raw_frame(8, 1, b"") + get(Q), "Connection.Close"),
}
