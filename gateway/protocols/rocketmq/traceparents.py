"""The trace context of sends: the property `traceparent` of a message. A client sends all properties as one string, in the field
`properties` of the request's header, `i` in the short form: ``name 01 value 02 name 01 value 02 ...``.

A search for the name comes first: most messages have none, and that is all they cost. Where the name is found the header is read again,
for this field alone. A batch has the properties of its messages in its body, which is not looked into: it has a trace context where the
request itself carries one. A send-back has no properties.
"""

from __future__ import annotations

from typing import Final

import msgspec
from mypy_extensions import i64

from common.octets import u16, u32
from gateway.pipeline.trace_context import MAX_VALUE_BYTES, TRACEPARENT
from gateway.protocols.rocketmq.headers import JSON, LONG_NAMES, SHORT_NAMES, decode_any
from gateway.protocols.rocketmq.size_checks import PREFIX

BEFORE_REMARK: Final = 13  # bytes of a binary header before the length of its remark
ENTRY: Final = TRACEPARENT + b"\x01"
END_OF_VALUE: Final = b"\x02"


def traceparents(data: bytes, start: int, end: int, most: int) -> list[bytes]:
    """What the first `most` sends of `data[start:end]` call their traceparent; b"" for those that have none."""
    found: list[bytes] = []
    at: i64 = start
    stop: i64 = end
    for _ in range(most):
        if at + PREFIX > stop:
            break
        found.append(traceparent_of(data, at, stop))
        at += 4 + u32(data, at)
    return found


def traceparent_of(data: bytes, at: i64, end: i64) -> bytes:
    """That of the send whose frame is at `at`. Its header lies whole before `end`."""
    word: i64 = u32(data, at + 4)
    header: i64 = at + PREFIX
    stop: i64 = header + (word & 0xFFFFFF)
    if stop > end or data.find(TRACEPARENT, header, stop) < 0:
        return b""
    properties = _of_json(data[header:stop]) if word >> 24 == JSON else _of_binary(data, header, stop)
    return _value(properties)


def _value(properties: bytes) -> bytes:
    if properties.startswith(ENTRY):
        start = len(ENTRY)
    else:
        before = properties.find(END_OF_VALUE + ENTRY)
        if before < 0:
            return b""
        start = before + 1 + len(ENTRY)
    stop = properties.find(END_OF_VALUE, start)
    if stop < 0:
        stop = len(properties)
    return properties[start:stop] if stop - start <= MAX_VALUE_BYTES else b""


def _field(code: object) -> str:
    """The field with the properties in a request of that code; "" where there is none."""
    if not isinstance(code, int):
        return ""
    return "i" if code in SHORT_NAMES else "properties" if code in LONG_NAMES else ""


def _of_json(text: bytes) -> bytes:
    try:
        header = decode_any(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return b""
    extra = header.get("extFields") if isinstance(header, dict) else None
    if not isinstance(extra, dict):
        return b""
    properties = extra.get(_field(header.get("code")))
    return properties.encode() if isinstance(properties, str) else b""


def _of_binary(data: bytes, header: i64, stop: i64) -> bytes:
    """Out of the ROCKETMQ encoding (`docs/design/rocketmq.md` 1.3)."""
    if stop - header < BEFORE_REMARK + 8:
        return b""
    field = _field(u16(data, header)).encode()
    remark: i64 = u32(data, header + BEFORE_REMARK)
    if not field or remark > stop - header - BEFORE_REMARK - 8:
        return b""
    place: i64 = header + BEFORE_REMARK + 8 + remark
    while stop - place >= 6:
        name: i64 = u16(data, place)
        place += 2
        if name > stop - place - 4:
            return b""
        value: i64 = place + name + 4
        size: i64 = u32(data, value - 4)
        if size > stop - value:
            return b""
        if name == len(field) and data[place : place + name] == field:
            return data[value : value + size]
        place = value + size
    return b""
