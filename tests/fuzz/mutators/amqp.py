"""Mutations of AMQP that keep frames frames: methods, headers with tables, bodies; moved, doubled, interleaved, and wrong in one place.

An input is a byte of the target's own, then frames. What is no frame at the end stays as it is.
"""

from __future__ import annotations

import struct
from random import Random
from typing import NamedTuple

from fuzz.mutators.octets import below, mutate
from pamqp import commands

from support.amqp import frames

END = 0xCE
CHANNELS = (0, 1, 1, 1, 2, 2, 3, 2047, 65535)
SIZES = (0, 1, 7, 8, 4088, 8184, 131064, 2**31 - 1, 2**31, 2**32 - 1)
FRAME = struct.Struct(">BHI")


class Part(NamedTuple):
    """A frame. `size`: what it says of its payload; None: the truth."""

    kind: int
    channel: int
    payload: bytes
    size: int | None = None
    end: int = END

    def raw(self) -> bytes:
        size = len(self.payload) if self.size is None else self.size
        return FRAME.pack(self.kind, self.channel, size) + self.payload + bytes((self.end,))


def split(data: bytes) -> tuple[bytes, list[Part], bytes]:
    """The protocol header if there is one, the frames, and the rest."""
    head = data[:8] if data.startswith(b"AMQP") else b""
    at = len(head)
    parts = []
    while at + 8 <= len(data):
        kind, channel, size = FRAME.unpack_from(data, at)
        stop = at + 8 + size
        if stop > len(data):
            break
        parts.append(Part(kind, channel, data[at + 7 : stop - 1], None, data[stop - 1]))
        at = stop
    return head, parts, data[at:]


def parts_of(raw: bytes) -> list[Part]:
    return split(raw)[1]


# ---- what is put in ----------------------------------------------------------------------------------------------------


def short(luck: Random) -> bytes:
    text = (b"", b"x", b"r", b"d", b"orders", b"\xff\xfe", b"n" * 255, b"x" * 127)[below(luck, 8)]
    return bytes((len(text),)) + text


def value(luck: Random, depth: int) -> bytes:
    """A value of a field table, with its type; now and then of a type that there is not, or of a size that is not its own."""
    what = below(luck, 19)
    if what < 13:
        kind, size = (("t", 1), ("b", 1), ("B", 1), ("s", 2), ("u", 2), ("I", 4), ("i", 4), ("l", 8), ("L", 8), ("f",
        4), ("d", 8), ("D", 5),
                      ("T", 8))[what]  # fmt: skip
        return kind.encode() + luck.randbytes(size)
    if what == 13 or depth > 4:
        return b"V"
    if what < 16:
        text = luck.randbytes(below(luck, 12))
        return (b"S", b"x")[what & 1] + (len(text) + (below(luck, 40) == 0)).to_bytes(4, "big") + text
    if what == 16:
        inner = b"".join(value(luck, depth + 1) for _ in range(below(luck, 4)))
        return b"A" + (len(inner) + (below(luck, 40) == 0)).to_bytes(4, "big") + inner
    if what == 17:
        return b"F" + table(luck, depth + 1)
    return bytes((below(luck, 256),)) + luck.randbytes(below(luck, 6))


def table(luck: Random, depth: int = 0) -> bytes:
    """A field table with its length, which is wrong one time in forty."""
    names = (b"product", b"CC", b"BCC", b"x-death", b"capabilities", b"consumer_cancel_notify", b"LOGIN", b"PASSWORD", b"", b"k" * 128)
    inner = b""
    for _ in range(below(luck, 4)):
        name = names[below(luck, len(names))]
        inner += bytes((len(name),)) + name + value(luck, depth)
    wrong = (0, -1, 1, 2**31, 2**32 - 1)[below(luck, 5)] if below(luck, 40) == 0 else 0
    return (len(inner) + wrong & 2**32 - 1).to_bytes(4, "big") + inner


def publish(luck: Random) -> list[Part]:
    """A message: method, header with a table, bodies; its size is told wrong one time in ten."""
    channel = CHANNELS[below(luck, len(CHANNELS))]
    body = b"b" * (0, 1, 40, 300, 4000)[below(luck, 5)]
    told = len(body) + ((1, -1, 2**63, 5)[below(luck, 4)] if below(luck, 10) == 0 else 0)
    flags, properties = 0, b""
    if below(luck, 2):
        flags, properties = flags | 0x2000, table(luck)
    if below(luck, 3) == 0:
        flags, properties = flags | 0x8000, short(luck) + properties
    method = b"\x00\x3c\x00\x28\x00\x00" + short(luck) + short(luck) + bytes((below(luck, 8),))
    header = struct.pack(">HHQH", 60, 0, told & 2**64 - 1, flags) + properties
    cut = 1 + below(luck, len(body) + 1)
    bodies = [Part(3, channel, body[at : at + cut]) for at in range(0, len(body), cut)][:8]
    return [Part(1, channel, method), Part(2, channel, header), *bodies]


CLIENTS = [
    part
    for channel in (0, 1, 2)
    for command in (
        commands.Channel.Open(), commands.Channel.Close(200, "bye", 0, 0), commands.Channel.CloseOk(), commands.Channel.Flow(active=False),
        commands.Confirm.Select(), commands.Confirm.Select(nowait=True), commands.Tx.Select(), commands.Tx.Commit(), commands.Tx.Rollback(),
        commands.Basic.Consume(queue="q", consumer_tag="c"), commands.Basic.Consume(queue="q", no_ack=True, nowait=True),
        commands.Basic.Cancel("c"), commands.Basic.Get(queue="q"), commands.Basic.Ack(1), commands.Basic.Ack(0, multiple=True),
        commands.Basic.Reject(1), commands.Basic.Nack(2, multiple=True), commands.Basic.Recover(requeue=True), commands.Basic.Qos(0, 5),
        commands.Queue.Declare(queue="q", arguments={"x-max-length": 5}), commands.Queue.Bind(queue="q", exchange="e", routing_key="r"),
        commands.Exchange.Declare(exchange="e"), commands.Connection.Close(200, "bye", 0, 0), commands.Connection.CloseOk(),
        commands.Connection.UpdateSecret("s", "r"),
    )
    for part in parts_of(frames.method(channel, command))
]  # fmt: skip
BROKERS = [
    part
    for channel in (0, 1, 2)
    for raw in (
        frames.ack(channel, 1), frames.ack(channel, 3, multiple=True), frames.nack(channel, 2), frames.ack(channel, 0, multiple=True),
        frames.ack(channel, 2**63 - 1), frames.deliver(channel, b"d" * 30, cut=16), frames.deliver(channel, b"", tag=2**63 - 1),
        frames.method(channel, commands.Channel.OpenOk()), frames.method(channel, commands.Channel.CloseOk()),
        frames.method(channel, commands.Channel.Close(404, "NOT_FOUND", 60, 40)), frames.method(channel, commands.Confirm.SelectOk()),
        frames.method(channel, commands.Basic.ConsumeOk("c")), frames.method(channel, commands.Basic.Cancel("c")),
        frames.method(channel, commands.Basic.CancelOk("c")), frames.method(channel, commands.Basic.GetEmpty()),
        frames.method(channel, commands.Basic.GetOk(1, exchange="", routing_key="q", message_count=1)) + frames.content(channel, b"g"),
        frames.method(channel, commands.Basic.Return(312, "NO_ROUTE", "", "x")) + frames.content(channel, b"r"),
        frames.method(channel, commands.Connection.Blocked("memory")), frames.method(channel, commands.Connection.Unblocked()),
        frames.method(channel, commands.Connection.Close(320, "CONNECTION_FORCED", 0, 0)), frames.broker_opens(),
        frames.method(channel, commands.Queue.DeclareOk("q", 0, 0)),
    )
    for part in parts_of(raw)
]  # fmt: skip


# ---- the mutators ------------------------------------------------------------------------------------------------------


def injured(part: Part, luck: Random) -> Part:
    """The frame, wrong in one place."""
    what = below(luck, 8)
    if what == 0:
        return part._replace(size=SIZES[below(luck, len(SIZES))])
    if what == 1:
        return part._replace(size=max(0, len(part.payload) + (1, -1, 8, -8)[below(luck, 4)]))
    if what == 2:
        return part._replace(end=below(luck, 256))
    if what == 3:
        return part._replace(kind=(1, 2, 3, 4, 8, 0, 255)[below(luck, 7)])
    if what == 4:
        return part._replace(channel=CHANNELS[below(luck, len(CHANNELS))])
    if what == 5:
        return part._replace(payload=part.payload[: below(luck, len(part.payload) + 1)])
    return part._replace(payload=mutate(part.payload, luck))


def interleaved(parts: list[Part], luck: Random) -> list[Part]:
    """The same frames; their order among channels is another, that within each channel is not."""
    queues: dict[int, list[Part]] = {}
    for part in parts:
        queues.setdefault(part.channel, []).append(part)
    waiting = [queue[::-1] for queue in queues.values()]
    mixed = []
    while waiting:
        queue = waiting[below(luck, len(waiting))]
        mixed.append(queue.pop())
        if not queue:
            waiting.remove(queue)
    return mixed


def stream(data: bytes, luck: Random, known: list[Part]) -> bytes:
    """A stream of frames, of which one to four things are changed."""
    mode = data[:1] if below(luck, 8) else bytes((below(luck, 256),))
    head, parts, rest = split(data[1:])
    for _ in range(1 + below(luck, 4)):
        at = below(luck, len(parts) + 1)
        what = below(luck, 11)
        if what < 2:
            parts[at:at] = publish(luck)
        elif what < 4:
            parts.insert(at, known[below(luck, len(known))])
        elif what == 4:
            parts = interleaved(parts, luck)
        elif not parts:
            parts = publish(luck)
        elif what == 5:
            del parts[at : at + 1 + below(luck, 3)]
        elif what == 6:
            parts[at:at] = parts[at : at + 1 + below(luck, 4)]
        elif what == 7:
            channel = CHANNELS[below(luck, len(CHANNELS))]
            old = parts[at % len(parts)].channel
            parts = [part._replace(channel=channel) if part.channel == old else part for part in parts]
        elif what == 8:
            at %= len(parts)
            part = parts[at]
            cut = below(luck, len(part.payload) + 1)
            parts[at : at + 1] = [part._replace(payload=part.payload[:cut]), part._replace(payload=part.payload[cut:])]
        else:
            at %= len(parts)
            parts[at] = injured(parts[at], luck)
    if below(luck, 8) == 0:
        rest = mutate(rest, luck)
    return mode + head + b"".join([part.raw() for part in parts]) + rest


def client(data: bytes, luck: Random) -> bytes:
    return stream(data, luck, CLIENTS)


def broker(data: bytes, luck: Random) -> bytes:
    return stream(data, luck, BROKERS)


def handshake(data: bytes, luck: Random) -> bytes:
    """Arguments of a method of the handshake: made anew with tables, or injured."""
    what = below(luck, 6)
    if what == 0:
        mechanism = (b"\x05PLAIN", b"\x08AMQPLAIN", b"\x08EXTERNAL", short(luck))[below(luck, 4)]
        answer = (b"\0ann\0secret", table(luck)[4:], b"", luck.randbytes(9))[below(luck, 4)]
        return b"\x00" + table(luck) + mechanism + len(answer).to_bytes(4, "big") + answer + b"\x05en_US"
    if what == 1:
        return b"\x04" + table(luck)[4:]
    if what == 2:
        return b"\x01" + luck.randbytes(8)
    if what == 3:
        return b"\x02" + short(luck) + short(luck) + bytes((below(luck, 2),))
    return mutate(data, luck)
