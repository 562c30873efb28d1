"""Copies of sends that wait in a spool, for people and for an ordinary client: JSON Lines, one message a line.

::

    {"listener": "broker-a", "topic": "orders", "group": "producers", "queue": 3, "flag": 0, "sys_flag": 0, "born": 1764230400000,
     "properties": {"UNIQ_KEY": "7F00...", "TAGS": "new"}, "accepted": false, "body": "text"}

`accepted`: the gateway has answered its sender (`answer: accepted_by_gateway`). `born`: ms since 1970, by the client's clock. `queue` is
the broker's that the client has chosen. A body that is not UTF-8 stands as `body_base64` instead. One that the client has compressed with
zlib, as clients do with long ones, stands as it was before, and its bits are taken out of `sys_flag`. A batch is told as the messages it
has. What is no send of an ordinary message (a consumer's send-back, or what the broker would not take either) stands as its `code`, its
`fields`, and its body.

Runs on a thread.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from mypy_extensions import i64

from gateway.pipeline.errors import ProtocolError
from gateway.pipeline.spool_orders import OnLoop, SpoolOrder
from gateway.protocols.octets import u16, u32
from gateway.protocols.rocketmq.batches import FIXED
from gateway.protocols.rocketmq.headers import JSON, decode_any
from gateway.protocols.rocketmq.limit_requests import as_text, read_binary_fields
from gateway.spool.queue import SpoolQueue
from gateway.spool.queue_copy import QueueCopy, WaitingPart
from gateway.spool.records import DamagedError

PREFIX: Final = 8  # bytes before the header
LONG: Final = ("topic", "producerGroup", "queueId", "sysFlag", "bornTimestamp", "flag", "properties", "batch")  # of SEND_MESSAGE
SHORT: Final = ("b", "a", "e", "f", "g", "h", "i", "m")  # of SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE
NAMES: Final = {10: LONG, 310: SHORT, 320: SHORT}
COMPRESSED: Final = 1  # bits of sysFlag (MessageSysFlag): the body is compressed,
COMPRESSION: Final = 0x700  # with that; 0 is zlib, too
ZLIB: Final = 0x300
MAX_BODY_BYTES: Final = 64 << 20  # of bodies of one request that are not compressed any more; what is longer stays as it came: a guess


class SendsCopy(QueueCopy):
    """What waits of one topic and producer group on one connection."""

    def __init__(self, order: SpoolOrder, held: list[WaitingPart], queue: SpoolQueue, listener: str) -> None:
        super().__init__(order, held, queue)
        self.listener = listener

    def is_ours(self, data: bytes, on_loop: OnLoop) -> bool:
        return True

    def scan(self, on_loop: OnLoop) -> None:
        for part in self._sends(on_loop):
            self._count(part)

    def lines(self, on_loop: OnLoop) -> Iterator[bytes]:
        for part in self._sends(on_loop):
            self._count(part)
            at = 0
            for _ in range(part.count):
                end = at + 4 + int(u32(part.data, at))
                for message in messages_of(part.data, at, end):
                    told = {"listener": self.listener, **message, "accepted": not part.unanswered}
                    told.update({name: told.pop(name) for name in ("body", "body_base64") if name in told})  # the longest comes last
                    yield json.dumps(told, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
                at = end

    def _sends(self, on_loop: OnLoop) -> Iterator[WaitingPart]:
        for part in self.parts(on_loop):
            if part.ours:
                self.note(part)
                yield part

    def _count(self, part: WaitingPart) -> None:
        self.messages += part.count * part.messages
        self.bytes += len(part.data)


def messages_of(data: bytes, at: i64, end: i64) -> list[dict[str, Any]]:
    """The messages of the request whose frame is `data[at:end]`, as lines have them. Raises DamagedError."""
    word: i64 = u32(data, at + 4)
    header: i64 = at + PREFIX
    body_at: i64 = header + (word & 0xFFFFFF)
    code, fields = header_of(data, header, body_at, word >> 24 == JSON)
    body = data[body_at:end]
    names = NAMES.get(code)
    if names is None:
        return [{"code": code, "fields": fields, **body_of(body)}]
    topic, group, queue, sys_flag, born, flag, properties, batch = [fields.get(name, "") for name in names]
    told = {"topic": topic, "group": group, "queue": whole(queue)}
    if batch == "true":
        entries = entries_of(body, whole(sys_flag), whole(born))
        return [{**told, **each} for each in entries] or [{"code": code, "fields": fields, **body_of(body)}]
    return [{**told, **message_of(body, whole(flag), whole(sys_flag), whole(born), properties)}]


def header_of(data: bytes, start: i64, end: i64, is_json: bool) -> tuple[int, dict[str, str]]:  # noqa: FBT001
    """The code of the request whose header is `data[start:end]`, and its extFields. Raises DamagedError."""
    try:
        if not is_json:
            return int(u16(data, start)), read_binary_fields(data, start, end)
        found = decode_any(data[start:end])
    except (ProtocolError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedError(f"the header of a send cannot be read: {error}") from None
    extra = found.get("extFields") if isinstance(found, dict) else None
    fields = {str(name): as_text(value) for name, value in extra.items() if value is not None} if isinstance(extra, dict) else {}
    return int(found["code"]) if isinstance(found, dict) else 0, fields


def entries_of(body: bytes, sys_flag: int, born: int) -> list[dict[str, Any]]:
    """The messages of a batch (`batches.py`); none where its chain is broken."""
    found: list[dict[str, Any]] = []
    room = MAX_BODY_BYTES
    at: i64 = 0
    end: i64 = len(body)
    while end - at >= FIXED:
        flag: i64 = u32(body, at + 12)
        size: i64 = u32(body, at + 16)
        if size > end - at - FIXED:
            break
        text_at: i64 = at + 22 + size
        length: i64 = u16(body, text_at - 2)
        if length > end - text_at:
            break
        text = body[text_at : text_at + length].decode(errors="replace")
        told = message_of(body[at + 20 : at + 20 + size], int(flag), sys_flag, born, text, room)
        if told["sys_flag"] != sys_flag:
            room -= len(told.get("body") or told.get("body_base64") or "")
        found.append(told)
        at = text_at + length
    return found if at == end else []


def message_of(body: bytes, flag: int, sys_flag: int, born: int, properties: str, room: int = MAX_BODY_BYTES) -> dict[str, Any]:
    """`room`: bytes that the body may have once it is not compressed any more."""
    if room > 0 and sys_flag & COMPRESSED and sys_flag & COMPRESSION in (0, ZLIB):
        plain = inflated(body, room)
        if plain is not None:
            body = plain
            sys_flag &= ~(COMPRESSED | COMPRESSION)
    pairs = [pair.split("\x01", 1) for pair in properties.split("\x02") if "\x01" in pair]
    return {"flag": flag, "sys_flag": sys_flag, "born": born, "properties": dict(pairs), **body_of(body)}


def inflated(body: bytes, most: int) -> bytes | None:
    """The body before it was compressed; None where it was not, or is longer than `most`."""
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(body, most)
    except zlib.error:
        return None
    return plain if inflater.eof else None


def body_of(body: bytes) -> dict[str, str]:
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode()}


def whole(text: str) -> int:
    """A field's whole number; 0 where it is none."""
    return int(text) if text.lstrip("-").isascii() and text.lstrip("-").isdecimal() and len(text) < 20 and text.count("-") <= 1 else 0
