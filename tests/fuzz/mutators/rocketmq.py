"""Mutations of RocketMQ that keep frames frames: both codecs of headers, one turned into the other, batches, sizes that do not fit.

An input is a byte of the target's own, then frames; of `rocketmq_header` one that names the codec, then a header.
"""

from __future__ import annotations

import json
import struct
from random import Random
from typing import Any, NamedTuple

from fuzz.mutators.octets import below, mutate

from support.rocketmq import frames
from support.rocketmq.slow_headers import Read, read_header

CODES = (310, 10, 320, 325, 324, 36, 34, 11, 361, 200_050, 200_052, 200_054, 105, 106, 39, 40, 220, 221, 307, 309,
    326, 0, 1, 2, 19, 215, 65535,
         2**31 - 1, -1)  # fmt: skip
NUMBERS = (0, 1, 2, 3, 5, 7, 2**16, 2**24, 2**31 - 1, -(2**31), -1)
FIELDS = ("b", "a", "m", "topic", "producerGroup", "batch", "group", "consumerGroup", "queueId", "sysFlag",
    "suspendTimeoutMillis", "c", "i", "g",
          "pollTime", "invisibleTime", "maxMsgNums", "originTopic", "\u00e9", "")  # fmt: skip
TEXTS = (
    "r",
    "d",
    "free",
    "true",
    "false",
    "TRUE",
    "0",
    "1",
    "-1",
    "%RETRY%g",
    "",
    "x" * 255,
    "x" * 256,
    "\u00e9",
    "\x01\x02",
    "15000",
    "2",
    'a"b\\',
)
SIZES = (0, 1, 3, 4, 5, 2**24 - 1, 2**24, 2**31 - 1, 2**31, 2**32 - 1)


class Part(NamedTuple):
    """A frame. `size` and `header_size`: what it says of itself; None: the truth."""

    kind: int
    header: bytes
    body: bytes
    size: int | None = None
    header_size: int | None = None

    def raw(self) -> bytes:
        size = 4 + len(self.header) + len(self.body) if self.size is None else self.size
        header_size = len(self.header) if self.header_size is None else self.header_size
        return struct.pack(">II", size & 2**32 - 1, (self.kind & 255) << 24 | header_size & 0xFFFFFF) + self.header + self.body


def split(data: bytes) -> tuple[list[Part], bytes]:
    """The frames, and the rest."""
    at = 0
    parts = []
    while at + 8 <= len(data):
        size, word = struct.unpack_from(">II", data, at)
        stop = at + 4 + size
        middle = at + 8 + (word & 0xFFFFFF)
        if stop > len(data) or middle > stop:
            break
        parts.append(Part(word >> 24, data[at + 8 : middle], data[middle:stop]))
        at = stop
    return parts, data[at:]


# ---- headers -----------------------------------------------------------------------------------------------------------


def spelled(read: Read, luck: Random) -> bytes:
    """A header in JSON: as Java writes it, or in another order, with blanks, escapes, and a name twice."""
    names: list[tuple[str, Any]] = [
        ("code", read.code), ("extFields", read.ext), ("flag", read.flag), ("language", read.language or "JAVA"), ("opaque", read.opaque),
        ("serializeTypeCurrentRPC", "JSON"), ("version", read.version or 479),
    ]  # fmt: skip
    what = below(luck, 8)
    if what == 0:
        luck.shuffle(names)
    elif what == 1:
        names.insert(below(luck, len(names)), names[below(luck, len(names))])
    elif what == 2:
        names.append(("remark", TEXTS[below(luck, len(TEXTS))]))
    ascii_only = below(luck, 2) == 0
    joint, colon = ((",", ":"), (", ", ": "), (",\n\t", " : "), (",", ":"))[below(luck, 4)]
    words = [json.dumps(name) + colon + json.dumps(value, separators=(joint, colon), ensure_ascii=ascii_only) for name, value in names]
    return ("{" + joint.join(words) + "}").encode(errors="surrogatepass")


def packed(read: Read, luck: Random) -> bytes:
    """A header in the binary codec; one length in sixty is wrong."""

    def sized(text: str, form: str) -> bytes:
        raw = text.encode(errors="replace")
        wrong = (1, -1, 2**15, 2**31)[below(luck, 4)] if below(luck, 60) == 0 else 0
        return struct.pack(form, len(raw) + wrong & (0xFFFF if form == ">H" else 2**32 - 1)) + raw

    entries = b"".join(sized(name, ">H") + sized(value, ">I") for name, value in read.ext.items())
    language = read.language if isinstance(read.language, int) else 0
    fixed = struct.pack(">HBHII", read.code & 0xFFFF, language & 255, 479, read.opaque & 2**32 - 1, read.flag & 2**32 - 1)
    remark = read.remark if isinstance(read.remark, str) else ""
    return fixed + sized(remark, ">I") + struct.pack(">I", len(entries)) + entries


def rewritten(kind: int, text: bytes, luck: Random) -> tuple[int, bytes]:
    """The header with one thing changed, in either codec; by its octets where it cannot be read."""
    try:
        read = read_header(kind & 1, text)
    except (ValueError, RecursionError, struct.error, TypeError):
        return kind, mutate(text, luck)
    what = below(luck, 6)
    if what == 0:
        read.code = CODES[below(luck, len(CODES))]
    elif what == 1:
        read.opaque = NUMBERS[below(luck, len(NUMBERS))]
    elif what == 2:
        read.flag = NUMBERS[below(luck, len(NUMBERS))]
    elif what == 3:
        read.ext[FIELDS[below(luck, len(FIELDS))]] = TEXTS[below(luck, len(TEXTS))]
    elif what == 4 and read.ext:
        del read.ext[list(read.ext)[below(luck, len(read.ext))]]
    kind = below(luck, 2)
    return kind, packed(read, luck) if kind else spelled(read, luck)


# ---- bodies ------------------------------------------------------------------------------------------------------------


def batch(luck: Random) -> bytes:
    """A batch of messages; one in three has a size that is wrong."""
    body = bytearray(frames.batch_body(*[b"m" * below(luck, 30) for _ in range(below(luck, 6))]))
    if body and below(luck, 3) == 0:
        at = below(luck, max(len(body) - 4, 1))
        body[at : at + 4] = SIZES[below(luck, len(SIZES))].to_bytes(4, "big")
    return bytes(body)


def made(luck: Random) -> Part:
    """A new frame of a client's or a broker's."""
    opaque = below(luck, 8)
    topic = ("r", "free", "d", "b")[below(luck, 4)]
    what = below(luck, 7)
    binary = below(luck, 2) == 1
    if what == 0:
        raw = frames.send(topic, batch(luck), opaque=opaque, code=320, batch=True, binary=binary)
    elif what == 1:
        raw = frames.send_back(topic, opaque=opaque, binary=binary)
    elif what == 2:
        raw = frames.pull(below(luck, 4), topic, opaque=opaque, code=(11, 361, 200_050)[below(luck, 3)], binary=binary)
    elif what == 3:
        raw = frames.heartbeat(opaque=opaque)
    elif what == 4:
        raw = frames.response(opaque, CODES[below(luck, len(CODES))], batch(luck), (None, "busy")[below(luck, 2)])
    else:
        raw = frames.send(topic, b"x" * below(luck, 300), opaque=opaque, one_way=below(luck, 4) == 0, binary=binary)
    return split(raw)[0][0]


# ---- the mutators ------------------------------------------------------------------------------------------------------


def injured(part: Part, luck: Random) -> Part:
    """The frame, wrong in one place."""
    what = below(luck, 7)
    size = 4 + len(part.header) + len(part.body)
    if what == 0:
        return part._replace(size=SIZES[below(luck, len(SIZES))])
    if what == 1:
        return part._replace(size=size + (1, -1, 4, -4)[below(luck, 4)])
    if what == 2:
        return part._replace(header_size=(len(part.header) + 1, max(0, len(part.header) - 1), 0, 2**24 - 1, size)[below(luck, 5)])
    if what == 3:
        return part._replace(kind=(0, 1, 2, 255)[below(luck, 4)])
    if what == 4:
        return part._replace(body=batch(luck))
    if what == 5:
        return part._replace(body=mutate(part.body, luck))
    return part._replace(header=mutate(part.header, luck))


def stream(data: bytes, luck: Random) -> bytes:
    """A stream of frames, of which one to four things are changed."""
    mode = data[:1] if below(luck, 8) else bytes((below(luck, 256),))
    parts, rest = split(data[1:])
    for _ in range(1 + below(luck, 4)):
        at = below(luck, len(parts) + 1)
        what = below(luck, 8)
        if what < 2 or not parts:
            parts.insert(at, made(luck))
        elif what == 2:
            del parts[at : at + 1 + below(luck, 3)]
        elif what == 3:
            parts[at:at] = parts[at : at + 1 + below(luck, 4)]
        elif what == 4:
            luck.shuffle(parts)
        else:
            at %= len(parts)
            part = parts[at]
            if what < 7:
                kind, header = rewritten(part.kind, part.header, luck)
                parts[at] = part._replace(kind=kind, header=header)
            else:
                parts[at] = injured(part, luck)
    if below(luck, 8) == 0:
        rest = mutate(rest, luck)
    return mode + b"".join([part.raw() for part in parts]) + rest


client = broker = stream


def header(data: bytes, luck: Random) -> bytes:
    """One header behind the byte that names its codec."""
    kind, text = rewritten(data[0] & 1 if data else 0, data[1:], luck)
    return bytes((kind & 255,)) + (mutate(text, luck) if below(luck, 3) == 0 else text)
