"""What is fuzzed of AMQP: both sides' streams, talks of both, the handshake's tables.

The first byte of an input says how the rest is cut and, where it matters, what came before.
"""

from __future__ import annotations

import re
from contextlib import suppress

from fuzz.scripts import LETTERS, Script, check_memory, cut, spool_disk
from pamqp import commands

from gateway.pipeline.errors import ProtocolError
from limiter.limits import Limit, Rate
from limiter.rules.match import Match
from limiter.rules.rule import Rule
from support.amqp import frames as amqp
from support.wires.conversations import Talk, rule, say_close

SECOND = 1_000_000_000
CLIENT_SAID = amqp.greeting(channels=(1, 2), confirms=(1,), frame_max=8192, heartbeat=0)
BROKER_OPENS = amqp.broker_opens()
REFUSED = b"".join(amqp.publish(1, key) for key in "xrrxrx") + amqp.publish(2, "x")

RULES = {
    action: Rule(
        name=action,
        match=Match(protocol="amqp", routing_key=letter),
        limit=Limit(messages=Rate(1), messages_burst=1),
        action=action,
        open_for_ns=0,
        max_delay_ns=SECOND,
    )
    for action, letter in LETTERS.items()
}  # all other routing keys pass
KEYS = ("x", *LETTERS.values())
CLOSES = (b"\x00\x14\x00\x28", b"\x00\x0a\x00\x32")  # channel.close, connection.close
TAKES = tuple(
    b"\x00\x3c\x00%c" % method for method in (20, 30, 70, 100, 110, 120)
)  # basic.consume, cancel, get, recover-async, recover, nack
TAG = re.compile(rb"\x1famq\.ctag-[\w-]{22}")  # that the gateway makes


def whole_frames(data: bytes) -> list[bytes]:
    """The whole frames at the beginning of `data`, behind a protocol header."""
    frames = []
    at = 8 if data.startswith(b"AMQP") else 0
    while at + 8 <= len(data):
        stop = at + 8 + int.from_bytes(data[at + 3 : at + 7], "big")
        if stop > len(data):
            break
        frames.append(untagged(data[at:stop]))
        at = stop
    return frames


def untagged(frame: bytes) -> bytes:
    """`frame` as the gateway writes a basic.consume anew: with 0 for the reserved number, and with a table of arguments where it has none.
    Without the tag that a consumer has from the gateway, where its client has named none.
    """
    if frame[7:11] != b"\x00\x3c\x00\x14":
        return frame
    body = TAG.sub(b"\x00", frame)[7:-1]
    body = body[:4] + b"\x00\x00" + body[6:]
    with suppress(IndexError):
        queue_ends = 7 + body[6]
        if len(body) == queue_ends + 1 + body[queue_ends] + 1:  # it ends with its bits
            body += bytes(4)
    return frame[:3] + len(body).to_bytes(4, "big") + body + frame[-1:]


def by_channel(data: bytes) -> dict[bytes, list[bytes]]:
    channels: dict[bytes, list[bytes]] = {}
    for frame in whole_frames(data):
        channels.setdefault(frame[1:3], []).append(frame)
    return channels


def check_selection(forwarded: bytes, said: bytes) -> None:
    """On every channel, what was forwarded is some of what was said, in its order."""
    spoken = by_channel(said)
    for channel, frames in by_channel(forwarded).items():
        rest = iter(spoken.get(channel, []))
        for frame in frames:
            assert frame in rest, f"forwarded on channel {channel!r}, but not said there, or out of order: {frame!r}"


def without_close(told: bytes) -> bytes:
    """What the client was told, without the gateway's own connection.close at its end."""
    at = told.rfind(b"\x00\x0a\x00\x32")
    return told[: at - 7] if at >= 7 and told[at - 7 : at - 4] == b"\x01\x00\x00" else told


def name_of(error: ProtocolError) -> str:
    """Whose fault, what it is counted as, and the reply code in the last words; the text may tell how much had come."""
    said = amqp.read(error.last_frames)[-1].value if error.last_frames and not error.last_frames.startswith(b"AMQP") else None
    code = said.reply_code if isinstance(said, commands.Connection.Close) else 0
    return f"{error.whose}: {error.cause} {code}"


def without_takes(forwarded: bytes, said: bytes) -> bytes:
    """`forwarded` without what a client that closes in `said` needs no more: how much of it has gone by then depends on the cut."""
    if not any(frame[7:11] in CLOSES for frame in whole_frames(said)):
        return forwarded
    frames = whole_frames(forwarded)
    return b"".join(frame for frame in frames if frame[0] != 1 or not (frame[7:9] == b"\x00\x32" or frame[7:11] in TAKES))


def amqp_client(data: bytes) -> None:
    """The client's bytes: from the first on, or behind an open connection. Limits on some routing keys. Publishes go mixed and apart."""
    if not data:
        return
    start = CLIENT_SAID if data[0] & 1 else b""
    said = data[1:] + amqp.HEARTBEAT  # or whether the last 7 bytes are looked at would depend on the cut
    outcomes = []
    for how in (0, 1, 2 + data[0]):
        talk = Talk("amqp", RULES["reject"], RULES["delay"], mixes=how != 1)  # byte by byte none are
        if start:
            talk.client(start)
            talk.broker(BROKER_OPENS)
        error = None
        try:
            talk.client(said, cut(said, how))
        except ProtocolError as raised:
            error = name_of(raised)
        assert error is None or error.startswith("client: "), error
        check_selection(talk.to_broker, start + said)
        outcomes.append((error, without_takes(TAG.sub(b"", talk.to_broker), start + said), talk.to_client, talk.requests))
        check_memory(talk, len(said))
    whole, *others = outcomes
    for other in others:
        assert other[0] == whole[0], f"cut differently, the error is another: {whole[0]} / {other[0]}"
        if whole[0] is None:
            assert other == whole, "cut differently, the outcome is another"
        else:  # nothing of the read with the bad byte goes on
            check_selection(whole[1], other[1])


def amqp_broker(data: bytes) -> None:
    """The broker's bytes, behind an open connection on which publishes were refused, or from the first on."""
    if not data:
        return
    said = data[1:] + amqp.HEARTBEAT  # or whether the last 7 bytes are looked at would depend on the cut
    told: list[bytes] = []
    errors: list[str | None] = []
    for how in (0, 1, 2 + data[0]):
        talk = Talk("amqp", RULES["reject"])
        talk.client(CLIENT_SAID)
        if data[0] & 1:
            talk.broker(BROKER_OPENS)
            talk.client(REFUSED)
        talk.to_client = b""
        error = None
        try:
            talk.broker(said, cut(said, how))
            told.append(talk.to_client)
        except ProtocolError as raised:
            error = f"{raised.whose}: {raised.cause}"  # without a code: within a frame nothing can be said, and that depends on the cut
            told.append(without_close(talk.to_client + raised.last_frames))
        assert error is None or error.startswith("broker: "), error
        errors.append(error)
        check_memory(talk, len(said))
    for error, words in zip(errors[1:], told[1:], strict=True):
        assert error == errors[0], f"cut differently, the error is another: {errors[0]} / {error}"
        if error is None:
            assert words == told[0], "cut differently, the client is told something else"
        else:
            assert words.startswith(told[0]) or told[0].startswith(words)


def _client_says(script: Script, choice: int) -> bytes:
    channel = 1 + choice % 3
    what = script.byte()
    if what < 128:
        size = (0, 5, 5, 40, 5000, 9000, 300, 1)[what & 7]
        cut_at = (8184, 4000, 3, 1)[what >> 3 & 3] if size < 1000 else 4000
        key = KEYS[script.byte() % len(KEYS)]
        message = amqp.publish(channel, key, b"\xce" * size, mandatory=what & 32 != 0, cut=cut_at)
        return message[: script.byte() * len(message) // 256] if what & 64 else message
    if what < 144:
        return amqp.method(channel, commands.Confirm.Select(nowait=what & 1 == 1))
    if what < 160:
        return amqp.method(channel, commands.Channel.Open())
    if what < 176:
        return amqp.method(channel, commands.Channel.Close(200, "bye", 0, 0))
    if what < 192:
        return amqp.method(channel, commands.Channel.CloseOk())
    if what < 200:
        return amqp.method(channel, commands.Tx.Select())
    if what < 208:
        return amqp.method(0, commands.Connection.Close(200, "bye", 0, 0))
    if what < 212:
        return amqp.method(0, commands.Connection.CloseOk())
    if what < 224:
        return amqp.ack(channel, what)
    if what < 232:
        return amqp.method(channel, commands.Basic.Consume(queue="q", consumer_tag="c", nowait=what & 1 == 1))
    return amqp.HEARTBEAT if what < 240 else script.take(what - 240)


def _broker_says(script: Script, choice: int) -> bytes:
    channel = 1 + choice % 3
    what = script.byte()
    if what < 64:
        return amqp.ack(channel, what & 15, multiple=what & 16 != 0)
    if what < 96:
        return amqp.nack(channel, what & 15, multiple=what & 16 != 0)
    if what < 128:
        message = amqp.deliver(channel, b"d" * (what & 15) * 7, cut=16)
        return message[: script.byte() * len(message) // 256] if what & 16 else message
    if what < 144:
        return amqp.method(channel, commands.Channel.Close(404, "NOT_FOUND", 60, 40))
    if what < 160:
        return amqp.method(channel, commands.Channel.CloseOk())
    if what < 168:
        return amqp.method(channel, commands.Channel.OpenOk())
    if what < 176:
        return amqp.method(channel, commands.Confirm.SelectOk())
    if what < 184:
        return amqp.method(0, commands.Connection.Close(320, "CONNECTION_FORCED", 0, 0))
    if what < 188:
        return amqp.method(0, commands.Connection.CloseOk())
    if what < 196:
        return amqp.method(0, commands.Connection.Blocked("memory") if what & 1 else commands.Connection.Unblocked())
    if what < 212:
        return amqp.method(channel, commands.Basic.Return(312, "NO_ROUTE", "", "x")) + amqp.content(channel, b"r" * (what & 7))
    if what < 220:
        return amqp.method(channel, commands.Basic.ConsumeOk("c"))
    return amqp.HEARTBEAT if what < 240 else script.take(what - 240)


def amqp_talk(data: bytes) -> None:
    """Both sides of a conversation, act by act, with every action's limits: nothing but ProtocolError, and nobody is left with a crash."""
    check_memory(talk_of(data), len(data))


def talk_of(data: bytes) -> Talk:
    script = Script(data)
    consume = Rule("consume", Match(protocol="amqp", operation="consume"), limit=rule(messages=2, burst=2).limit, open_for_ns=0)
    talk = Talk("amqp", *RULES.values(), consume, disk=spool_disk())
    with suppress(ProtocolError):
        talk.client(CLIENT_SAID)
        if script.byte() & 1:
            talk.broker(BROKER_OPENS)
        for _ in range(200):
            if script.at >= len(data):
                break
            choice = script.byte()
            if choice < 120:
                talk.client(_client_says(script, choice))
            elif choice < 220:
                talk.broker(_broker_says(script, choice))
            elif choice < 240:
                talk.wait(choice * 10_000_000)
                talk.work()
            elif choice < 248:
                talk.tick()
            else:
                talk.broker(BROKER_OPENS)
        talk.conversation.heartbeat()
        talk.conversation.describe()
        repr(talk.conversation)
        if script.byte() & 1:
            say_close(talk.conversation, "the fuzzer stops")
    return talk


def amqp_handshake(data: bytes) -> None:
    """The arguments of start-ok, tune-ok and open: field tables above all."""
    if not data:
        return
    number = (b"\x00\x0b", b"\x00\x1f", b"\x00\x28", b"\x00\x15")[data[0] & 3]
    arguments = data[1:]
    if data[0] & 4:  # a table of noise in front of what follows it in earnest
        arguments = (
            len(arguments).to_bytes(4, "big") + arguments + b"\x08AMQPLAIN" + len(arguments).to_bytes(4, "big") + arguments + b"\x05en_US"
        )
    talk = Talk("amqp")
    with suppress(ProtocolError):
        talk.client(amqp.PROTOCOL_HEADER + amqp.raw_frame(1, 0, b"\x00\x0a" + number + arguments))
    talk.conversation.describe()
    check_memory(talk, len(data))
