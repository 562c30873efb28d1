"""Everything passes: what RabbitMQ answers to a script of bytes is the same directly and through the gateway, frame by frame.

No client library takes part: libraries never say most of this. Each script is played twice against the same broker; what the client is
told must be equal channel by channel, except that an error the gateway finds itself has its own words for the same reply code.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pamqp import commands, header

from support import amqp
from support.brokers.rabbitmq import RabbitMQ
from support.gateways import Gateway, amqp_listener
from support.queues import Queue
from support.raw_amqp import CLOSE, RawClient, Step, opening, play

pytestmark = pytest.mark.rabbitmq

GET = b"\x00\x3c\x00\x46\x00\x00"


@pytest.fixture(scope="module")
def gateway(rabbitmq: RabbitMQ, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("gateway"), [amqp_listener(f"127.0.0.1:{rabbitmq.port}")], []) as running:
        yield running


def method(channel: int, class_id: int, method_id: int, arguments: bytes = b"") -> bytes:
    return amqp.raw_frame(1, channel, class_id.to_bytes(2, "big") + method_id.to_bytes(2, "big") + arguments)


def short(text: bytes) -> bytes:
    return bytes([len(text)]) + text


def declare(name: bytes, *, channel: int = 1, bits: int = 0b01000) -> bytes:
    """queue.declare; auto-delete would go with a consumer only, so exclusive (0b00100) or nothing. Bits: nowait 16, auto-delete 8, exclusive 4."""
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
    frames = [amqp.raw_frame(3, channel, body[a:b]) for a, b in zip(places, places[1:], strict=False)] if body else []
    head = method(channel, 60, 40, b"\x00\x00" + short(exchange) + short(name) + bytes([bits]))
    return head + amqp.raw_frame(2, channel, b"\x00\x3c\x00\x00" + len(body).to_bytes(8, "big") + props) + b"".join(frames)


def get(name: bytes, *, channel: int = 1) -> bytes:
    return amqp.raw_frame(1, channel, GET + short(name) + b"\x01")


EXCLUSIVE = 0b00100
NOWAIT = 0b10000
Q = b"passes"
OPEN = opening(1, 2)
READY = OPEN + declare(Q, bits=EXCLUSIVE)
METHOD, HEADER, BODY = [frame.raw for frame in amqp.read(publish(Q, b"interleaved"))]
CC = {"headers": {"CC": ["passes-cc"], "BCC": ["passes-bcc"]}}
CC_PROPS = amqp.method(1, header.ContentHeader(body_size=2, properties=commands.Basic.Properties(**CC)))[7 + 12 : -1]
FOREIGN_USER = amqp.method(1, header.ContentHeader(body_size=2, properties=commands.Basic.Properties(user_id="somebody")))[7 + 12 : -1]
OWN_USER = amqp.method(1, header.ContentHeader(body_size=2, properties=commands.Basic.Properties(user_id="guest")))[7 + 12 : -1]
LONG = b"n" * 255
BYTES = b"caf\xe9.\xff\xfe"
AMQPLAIN = "\x05LOGINS\x00\x00\x00\x05guest\x08PASSWORDS\x00\x00\x00\x05guest"
SELECT = amqp.method(1, commands.Confirm.Select())
SELECT_NOWAIT = amqp.method(1, commands.Confirm.Select(nowait=True))

SCRIPTS: dict[str, tuple[Step, ...]] = {
    # handshakes
    "everything in one segment, a publish and its confirm": (READY + SELECT + publish(Q, b"all at once") + get(Q), "Basic.GetOk", "Basic.Ack"),
    "step by step": (
        amqp.PROTOCOL_HEADER, "Connection.Start", OPEN[8:].split(b"\xce\x01\x00\x00", 1)[0] + b"\xce", "Connection.Tune",
        b"\x01\x00\x00" + OPEN[8:].split(b"\xce\x01\x00\x00", 1)[1], "Channel.OpenOk",
    ),
    "AMQPLAIN": (opening(1, mechanism="AMQPLAIN", response=AMQPLAIN), "Channel.OpenOk"),
    "wrong password": (amqp.PROTOCOL_HEADER + OPEN[8:].replace(b"\0guest\0guest", b"\0guest\0wrong"),),
    "EXTERNAL without a certificate": (opening(1, mechanism="EXTERNAL", response=""),),
    "several rounds of SASL": (opening(1, mechanism="RABBIT-CR-DEMO", response="guest")[:8] + amqp.method(0, commands.Connection.StartOk({}, "RABBIT-CR-DEMO", "guest", "en_US")), "Connection.Secure",
        amqp.method(0, commands.Connection.SecureOk("My password is guest")), "Connection.Tune",
        amqp.method(0, commands.Connection.TuneOk(2047, 131072, 0)) + amqp.method(0, commands.Connection.Open("/")), "Connection.OpenOk"),
    "a virtual host that is not": (opening(1, vhost="nowhere"),),
    "AMQP 0-9": (b"AMQP\x01\x01\x00\x09", "Connection.Start"),
    "frame_max 4096": (opening(1, frame_max=4096) + declare(Q, bits=EXCLUSIVE) + publish(Q, b"x" * 9000, cuts=(4088, 8176)) + get(Q), "Basic.GetOk"),
    "frame_max 4096, a payload as large": (opening(1, frame_max=4096) + declare(Q, bits=EXCLUSIVE) + publish(Q, b"x" * 4096) + get(Q), "Basic.GetOk"),
    "frame_max 4096, one more": (opening(1, frame_max=4096) + declare(Q, bits=EXCLUSIVE), "Queue.DeclareOk", publish(Q, b"x" * 4097), "Connection.Close"),
    "frame_max without a limit": (opening(1, frame_max=0),),
    "channel_max 3, a higher number": (opening(1, 9, channel_max=3), "Channel.OpenOk", "Channel.OpenOk"),
    "channel_max 3, one channel more": (opening(1, 2, 3, 4, channel_max=3),),
    "heartbeat 1": (opening(1, heartbeat=1), "Channel.OpenOk"),
    "heartbeat 65535": (opening(1, heartbeat=65535), "Channel.OpenOk"),
    "update-secret": (OPEN + method(0, 10, 70, b"\x00\x00\x00\x05guest" + short(b"a reason")),),
    # bodies
    "bodies of all cuts": (READY + b"".join(publish(Q, b"0123456789", cuts=cuts) for cuts in ((), (1,), (5, 5), (0,), (1, 2, 3, 4))) + get(Q) * 5, *["Basic.GetOk"] * 5),
    "an empty body": (READY + publish(Q, b"") + get(Q), "Basic.GetOk"),
    "a body of many frames": (READY + publish(Q, b"x" * 300_000, cuts=(131_064, 262_128)) + get(Q), "Basic.GetOk"),
    "other channels and heartbeats in mid-content": (
        READY,
        "Queue.DeclareOk",
        METHOD + amqp.HEARTBEAT + publish(Q, b"other", channel=2) + HEADER + amqp.HEARTBEAT + get(Q, channel=2) + BODY + get(Q),
        "Basic.GetOk", "Basic.GetOk",
    ),
    # methods
    "an unknown class on a channel": (OPEN + method(1, 99, 10, b"\x00"), "Connection.Close"),
    "an unknown method on a channel": (OPEN + method(1, 60, 99, b"\x00"), "Connection.Close"),
    "an unknown method on channel 0": (OPEN + method(0, 10, 99), "Connection.Close"),
    "a method of the broker's own": (OPEN + method(1, 60, 60, short(b"c") + bytes(9) + b"\x00\x00"), "Channel.OpenOk", "Channel.OpenOk"),
    "nowait everywhere": (
        OPEN + declare(Q, bits=EXCLUSIVE | NOWAIT) + SELECT_NOWAIT
        + method(1, 40, 10, b"\x00\x00" + short(b"passes-x") + short(b"topic") + bytes([0b10000 | 0b00100]) + bytes(4))
        + method(1, 50, 20, b"\x00\x00" + short(Q) + short(b"passes-x") + short(b"a.#") + b"\x01" + bytes(4))
        + method(1, 60, 20, b"\x00\x00" + short(Q) + short(b"tag") + bytes([0b1010]) + bytes(4))
        + publish(b"a.b", b"routed", exchange=b"passes-x"), "Basic.Deliver", "Basic.Ack",
        method(1, 60, 30, short(b"tag") + b"\x01") + method(1, 50, 30, b"\x00\x00" + short(Q) + b"\x01")
        + method(1, 40, 20, b"\x00\x00" + short(b"passes-x") + b"\x02") + get(Q), "Basic.GetEmpty",
    ),
    "immediate": (READY, "Queue.DeclareOk", publish(Q, b"now", bits=2), "Connection.Close"),
    "mandatory and unroutable": (OPEN + SELECT + publish(b"passes-nowhere", b"back", bits=1), "Basic.Ack"),
    "mandatory and unroutable, without confirms": (OPEN + publish(b"passes-nowhere", b"back", bits=1), "ContentBody"),
    "CC and BCC": (
        OPEN + b"".join(declare(name, bits=EXCLUSIVE) for name in (Q, b"passes-cc", b"passes-bcc")) + publish(Q, b"cc", props=CC_PROPS)
        + get(Q) + get(b"passes-cc") + get(b"passes-bcc"), *["Basic.GetOk"] * 3,
    ),
    "names of 255 bytes": (
        OPEN + declare(LONG, bits=EXCLUSIVE) + method(1, 40, 10, b"\x00\x00" + short(b"x" * 255) + short(b"direct") + b"\x04" + bytes(4))
        + method(1, 50, 20, b"\x00\x00" + short(LONG) + short(b"x" * 255) + short(b"r" * 255) + b"\x00" + bytes(4))
        + publish(b"r" * 255, b"long", exchange=b"x" * 255) + get(LONG), "Basic.GetOk",
    ),
    "names that are not UTF-8": (OPEN + declare(Q, bits=EXCLUSIVE) + method(1, 50, 20, b"\x00\x00" + short(Q) + short(b"amq.direct") + short(BYTES) + b"\x00" + bytes(4))
        + publish(BYTES, b"bytes", exchange=b"amq.direct") + amqp.HEARTBEAT + get(Q), "ContentBody"),
    "user_id of somebody else": (READY + SELECT + publish(Q, b"me", props=FOREIGN_USER) + publish(Q, b"behind"), "Channel.Close"),
    "user_id of one's own": (READY + publish(Q, b"me", props=OWN_USER) + get(Q), "Basic.GetOk"),
    "no such exchange, with publishes behind, and the channel used again": (
        READY + SELECT + publish(Q, b"1") + publish(Q, b"2", exchange=b"passes-none") + publish(Q, b"3"), "Channel.Close",
        amqp.method(1, commands.Channel.Open()) + SELECT + publish(Q, b"4"), "Basic.Ack",
    ),
    "confirm.select twice and with nowait": (READY + SELECT_NOWAIT + publish(Q, b"1") * 3 + SELECT + publish(Q, b"2"), "Confirm.SelectOk"),
    "confirms on a transaction": (READY + amqp.method(1, commands.Tx.Select()) + SELECT,),
    "a transaction on confirms": (READY + SELECT + amqp.method(1, commands.Tx.Select()),),
    "a transaction rolled back and one committed": (
        READY + amqp.method(1, commands.Tx.Select()) + publish(Q, b"1") + amqp.method(1, commands.Tx.Rollback()) + publish(Q, b"2")
        + amqp.method(1, commands.Tx.Commit()) + get(Q) * 2, "Basic.GetOk", "Basic.GetEmpty",
    ),
    "a channel opened twice": (OPEN + amqp.method(1, commands.Channel.Open()), "Connection.Close"),
    "a channel that was never opened": (OPEN + declare(Q, channel=7), "Connection.Close"),
    "closed and opened at once": (
        READY + (amqp.method(1, commands.Channel.Close(200, "", 0, 0)) + amqp.method(1, commands.Channel.Open())) * 3 + get(Q), "Basic.GetEmpty",
    ),
    # ends
    "the end in mid-content": (READY + METHOD + HEADER + CLOSE,),
    "the end in mid-handshake": (amqp.PROTOCOL_HEADER, "Connection.Start", CLOSE),
    "the end behind a flood": (READY, "Queue.DeclareOk", publish(Q, b"x" * 500) * 200 + CLOSE),
    # errors
    "a method within a message": (READY, "Queue.DeclareOk", METHOD + HEADER + get(Q), "Connection.Close"),
    "a header without a method": (READY, "Queue.DeclareOk", HEADER, "Connection.Close"),
    "a body without a header": (READY, "Queue.DeclareOk", METHOD + BODY, "Connection.Close"),
    "a frame without its end": (opening(1), "Channel.OpenOk", METHOD[:-1] + b"\x00" + HEADER + BODY, "Connection.Close"),
    "a frame of unknown type": (READY, "Queue.DeclareOk", amqp.raw_frame(9, 1, b"x"), "Connection.Close"),
    "content on channel 0": (READY, "Queue.DeclareOk", amqp.raw_frame(3, 0, b"x"), "Connection.Close"),
    "names longer than their frame": (READY, "Queue.DeclareOk", method(1, 60, 40, b"\x00\x00\x00\xffabc\x00") + HEADER + BODY, "Connection.Close"),
    "a heartbeat on channel 1": (READY, "Queue.DeclareOk", amqp.raw_frame(8, 1, b"") + get(Q), "Connection.Close"),
}  # fmt: skip

AT_ONCE = ("wrong password", "EXTERNAL without a certificate", "frame_max without a limit")  # RabbitMQ takes 3 s to hang up then


def told_by_channel(frames: list[amqp.Frame]) -> dict[int, list[object]]:
    """What was told, channel by channel; of a connection.close the code only.

    An open connection that RabbitMQ ends without a word (a method it cannot decode crashes its reader) ends with a 320 behind the gateway.
    """
    channels: dict[int, list[object]] = {}
    for frame in frames:
        if frame.name == "Heartbeat":
            continue
        said: object = frame.raw
        if isinstance(frame.value, commands.Connection.Close):
            said = ("Connection.Close", frame.value.reply_code)
        channels.setdefault(frame.channel, []).append(said)
    names = [frame.name for frame in frames]
    if "Connection.OpenOk" in names and not {"Connection.Close", "Connection.CloseOk"} & set(names):
        channels[0].append(("Connection.Close", 320))
    return channels


@pytest.fixture(scope="module", autouse=True)
def demonstrated_mechanism(rabbitmq: RabbitMQ) -> Iterator[None]:
    """RabbitMQ's own example of a mechanism with several rounds, switched on for these tests."""
    rabbitmq.control("eval", "application:set_env(rabbit, auth_mechanisms, ['PLAIN', 'AMQPLAIN', 'RABBIT-CR-DEMO']).")
    yield
    rabbitmq.control("eval", "application:set_env(rabbit, auth_mechanisms, ['PLAIN', 'AMQPLAIN']).")


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_same_is_told_directly_and_through_the_gateway(rabbitmq: RabbitMQ, gateway: Gateway, name: str) -> None:
    script = SCRIPTS[name]
    if name in AT_ONCE:
        with ThreadPoolExecutor(2) as pool:
            direct, through = pool.map(lambda port: play(port, *script), (rabbitmq.port, gateway.port("rabbit")))
    else:
        direct, through = (play(port, *script) for port in (rabbitmq.port, gateway.port("rabbit")))
    assert told_by_channel(through) == told_by_channel(direct)
    assert direct, "nothing was told"


def test_an_exclusive_queue_is_its_connections_alone_and_goes_with_it(rabbitmq: RabbitMQ, gateway: Gateway) -> None:
    """One upstream connection for each client: with a shared one, as pooling proxies have, the second client would get the first one's queue."""
    port = gateway.port("rabbit")
    first, second = RawClient(port), RawClient(port)
    first.say(OPEN + declare(b"passes-own", bits=EXCLUSIVE))
    while not first.count("Queue.DeclareOk"):
        assert first.read()
    second.say(OPEN + declare(b"passes-own", bits=EXCLUSIVE))
    while not second.count("Channel.Close"):
        assert second.read()
    [locked] = [frame.value for frame in second.told if isinstance(frame.value, commands.Channel.Close)]
    assert locked.reply_code == 405
    first.finish()
    second.say(amqp.method(1, commands.Channel.Open()) + declare(b"passes-own", bits=EXCLUSIVE))
    while not second.count("Queue.DeclareOk"):
        assert second.read()
    second.finish()


@pytest.mark.parametrize("how", ["rst", "fin"])
def test_a_client_cut_at_any_byte_of_a_publish_leaves_no_message(rabbitmq: RabbitMQ, gateway: Gateway, how: str, tmp_path: Path) -> None:
    """F06: every offset of a three-frame publish, for real. Nothing partial, nothing extra, and the next publish is whole."""
    port = gateway.port("rabbit")
    name = f"passes-cut-{how}"
    said = publish(name.encode(), b"whole or not at all", bits=1)
    with Queue(rabbitmq.url, name) as queue:
        for offset in range(len(said)):
            client = RawClient(port)
            client.say(opening(1) + said[:offset])
            while not client.count("Channel.OpenOk"):
                assert client.read()
            if how == "rst":
                client.reset()
            else:
                client.socket.shutdown(1)
                while client.read():
                    pass
                client.socket.close()
        assert queue.depth() == 0
        told = play(port, opening(1) + SELECT + said, "Basic.Ack")
        assert [frame.name for frame in told].count("Basic.Ack") == 1
        assert [body for _, body in queue.messages()] == [b"whole or not at all"]
