"""Sends out of what a client has sent, to be sent again: with a property that says so.

Each is sent as a request of its own that wants an answer, with an opaque of the replay's. In a batch each message gets the property. A
signed request (ACL: `AccessKey` and `Signature`) is sent as it is, since the signature is of all its fields and its body: it has no mark.
Nor has a message whose properties are so long that the broker would refuse it with the mark.
"""

from __future__ import annotations

import json
from typing import Any, Final

from gateway.protocols.octets import u16, u32
from gateway.protocols.rocketmq.batches import FIXED, count_batch
from gateway.protocols.rocketmq.headers import JSON, ONE_WAY

AGAIN: Final = "x-sluice-replayed"
MARK: Final = f"{AGAIN}\x01true\x02"
PREFIX: Final = 8  # bytes before the header
BINARY_FIXED: Final = 21  # bytes of a binary header before its remark and extFields
PROPERTIES: Final = {10: "properties", 310: "i", 320: "i"}  # of SEND_MESSAGE, and of the short forms
MOST_PROPERTIES: Final = 32_767 - 512  # bytes: what the broker takes (Short.MAX_VALUE), and a few of its own that it adds (a guess)
BATCH: Final = ("batch", "m")
SIGNATURE: Final = "Signature"


class SendAgain:
    """One request: its frame as the client wrote it, but for its opaque."""

    __slots__ = ("body", "end", "file")

    def __init__(self, frame: bytes, file: str, end: int) -> None:
        self.body = frame
        self.file = file  # and in it:
        self.end = end  # where it ends

    def frame(self, opaque: int) -> bytes:
        """As it is sent again."""
        data = self.body
        word = u32(data, 4)
        body_at = PREFIX + (word & 0xFFFFFF)
        header, body = (again_json if word >> 24 == JSON else again_binary)(data[PREFIX:body_at], data[body_at:], opaque)
        kind = int(word) & 0xFF000000
        return (4 + len(header) + len(body)).to_bytes(4, "big") + (kind | len(header)).to_bytes(4, "big") + header + body

    def messages(self) -> int:
        """How many messages it has: one, unless it is a batch; one, too, where it cannot be read."""
        data = self.body
        word = u32(data, 4)
        body_at = PREFIX + (word & 0xFFFFFF)
        try:
            extra = (json.loads(data[PREFIX:body_at]).get("extFields") or {}) if word >> 24 == JSON else binary_extra(data[PREFIX:body_at])
            return int(count_batch(data, body_at, len(data))) if is_batch(extra) else 1
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError):
            return 1

    def __repr__(self) -> str:
        return f"<SendAgain {len(self.body)} bytes>"


class SendsAgain:
    """Takes records apart. Each has whole frames."""

    def begin(self) -> None:
        """A record begins."""

    def add(self, piece: bytes, file: str, at: int) -> list[SendAgain]:
        found: list[SendAgain] = []
        place = 0
        while place < len(piece):
            end = place + 4 + int(u32(piece, place))
            found.append(SendAgain(piece[place:end], file, at + end))
            place = end
        return found

    def __repr__(self) -> str:
        return "<SendsAgain>"


def again_json(header: bytes, body: bytes, opaque: int) -> tuple[bytes, bytes]:
    fields: dict[str, Any] = json.loads(header)
    fields["flag"] = int(fields.get("flag") or 0) & ~ONE_WAY
    fields["opaque"] = opaque
    extra = fields.get("extFields")
    if isinstance(extra, dict):
        body = marked(int(fields["code"]), extra, body)
    return json_bytes(fields), body


def json_bytes(fields: dict[str, Any]) -> bytes:
    """A header as clients write it, in UTF-8: escaped, each of its Chinese characters would have twice the bytes."""
    try:
        return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which only an escape can say
        return json.dumps(fields, separators=(",", ":")).encode()


def again_binary(header: bytes, body: bytes, opaque: int) -> tuple[bytes, bytes]:
    at = 17 + int(u32(header, 13))
    flag = int(u32(header, 9)) & ~ONE_WAY
    head = header[:5] + (opaque & 0xFFFF_FFFF).to_bytes(4, "big") + flag.to_bytes(4, "big") + header[13:at]
    extra = binary_extra(header)
    body = marked(int(u16(header, 0)), extra, body)
    entries: list[bytes] = []
    for name, value in extra.items():
        name_bytes, value_bytes = name.encode("utf-8", "surrogateescape"), str(value).encode("utf-8", "surrogateescape")
        entries += [len(name_bytes).to_bytes(2, "big"), name_bytes, len(value_bytes).to_bytes(4, "big"), value_bytes]
    packed = b"".join(entries)
    return head + len(packed).to_bytes(4, "big") + packed, body


def binary_extra(header: bytes) -> dict[str, Any]:
    """The extFields of a binary header."""
    extra: dict[str, Any] = {}
    place = BINARY_FIXED + int(u32(header, 13))
    while place < len(header):
        value_at = place + 6 + int(u16(header, place))
        end = value_at + int(u32(header, value_at - 4))
        name = header[place + 2 : value_at - 4].decode("utf-8", "surrogateescape")
        extra[name] = header[value_at:end].decode("utf-8", "surrogateescape")
        place = end
    return extra


def is_batch(extra: dict[str, Any]) -> bool:
    return any(extra.get(name) in ("true", True) for name in BATCH)


def marked(code: int, extra: dict[str, Any], body: bytes) -> bytes:
    """Put the mark into the fields of a request with that code, or into each message of a batch; the body."""
    if SIGNATURE in extra:
        return body
    if is_batch(extra):
        return marked_batch(body)
    name = PROPERTIES.get(code)
    if name is not None:
        extra[name] = with_mark(str(extra.get(name) or ""))
    return body


def with_mark(properties: str) -> str:
    """Properties with the mark; what has it, or no room for it, is left as it is."""
    if f"\x02{AGAIN}\x01" in f"\x02{properties}":
        return properties
    if len(properties.encode("utf-8", "surrogatepass")) + len(MARK) + 1 > MOST_PROPERTIES:
        return properties
    return properties + ("" if not properties or properties.endswith("\x02") else "\x02") + MARK


def marked_batch(body: bytes) -> bytes:
    """Each message of a batch (`batches.py`) with the mark; as it is where its chain is broken."""
    found: list[bytes] = []
    at, end = 0, len(body)
    while end - at >= FIXED:
        size = int(u32(body, at + 16))
        if size > end - at - FIXED:
            return body
        text_at = at + FIXED + size
        length = int(u16(body, text_at - 2))
        if length > end - text_at:
            return body
        text = body[text_at : text_at + length].decode("utf-8", "surrogateescape")
        properties = with_mark(text).encode("utf-8", "surrogateescape")
        total = int(u32(body, at)) + len(properties) - length
        found += [total.to_bytes(4, "big"), body[at + 4 : text_at - 2], len(properties).to_bytes(2, "big"), properties]
        at = text_at + length
    return b"".join(found) if at == end else body
