"""The trace context of publishes: the entry `traceparent` of the table `headers` in their content headers (specification 4.2.6.1).

A search for the name comes first: most messages have none, and that is all they cost. Where the name is found, in a value perhaps or in a
table within the table, the entries of the outer table are walked to the one that is called so. What a client has written there is not
trusted: whatever does not fit has no trace context.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from gateway.pipeline.trace_context import MAX_VALUE_BYTES, TRACEPARENT
from gateway.protocols.amqp.frames import HEADER, OVERHEAD
from gateway.protocols.amqp.refusals import publish_end
from gateway.protocols.octets import u16, u32

HEADERS_FLAG: Final = 0x2000  # bits of the property flags: the third property is the table
CONTENT_TYPE_FLAG: Final = 0x8000
CONTENT_ENCODING_FLAG: Final = 0x4000
MORE_FLAGS: Final = 0x0001  # another 16 flags follow; class basic has not so many properties
LONG_STRING: Final = 83  # S
# Bytes of a value by the letter of its type, as RabbitMQ reads them; those of VARIABLE are preceded by their length, in 4 bytes.
FIXED: Final[dict[int, int]] = {
    ord(letter): size for letters, size in (("V", 0), ("tbB", 1), ("su", 2), ("Iif", 4), ("D", 5), ("lLdT", 8)) for letter in letters
}
VARIABLE: Final = frozenset(b"SxAF")


def traceparents(data: bytes, start: int, end: int, most: int) -> list[bytes]:
    """What the first `most` publishes of `data[start:end]` call their traceparent; b"" for those that have none."""
    found: list[bytes] = []
    at: i64 = start
    stop: i64 = end
    for _ in range(most):
        if at >= stop:
            break
        found.append(traceparent_of(data, at, stop))
        if len(found) < most:
            at = publish_end(data, at, stop)
    return found


def traceparent_of(data: bytes, at: i64, end: i64) -> bytes:
    """That of the publish whose method frame is at `at`. Its content header follows, and lies whole before `end`."""
    header: i64 = at + u32(data, at + 3) + OVERHEAD
    if header + 22 > end or data[header] != HEADER:
        return b""
    stop: i64 = header + 7 + u32(data, header + 3)  # where its payload ends
    if stop > end or data.find(TRACEPARENT, header + 21, stop) < 0:
        return b""
    flags: i64 = u16(data, header + 19)
    if flags & HEADERS_FLAG == 0 or flags & MORE_FLAGS != 0:
        return b""
    place: i64 = header + 21
    for flag in (CONTENT_TYPE_FLAG, CONTENT_ENCODING_FLAG):
        if flags & flag != 0:
            if place >= stop:
                return b""
            place += 1 + data[place]
    if place + 4 > stop:
        return b""
    size: i64 = u32(data, place)
    place += 4
    if size > stop - place:
        return b""
    return _entry(data, place, place + size)


def _entry(data: bytes, place: i64, stop: i64) -> bytes:
    """The string called traceparent in the table `data[place:stop]`."""
    while place < stop:
        size: i64 = data[place]
        name: i64 = place + 1
        place = name + size
        if place >= stop:
            return b""
        kind = data[place]
        place += 1
        if kind in VARIABLE:
            if place + 4 > stop:
                return b""
            length: i64 = u32(data, place)
            place += 4
            if length > stop - place:
                return b""
            if size == 11 and data[name : name + size] == TRACEPARENT:
                return data[place : place + length] if kind == LONG_STRING and length <= MAX_VALUE_BYTES else b""
            place += length
        else:
            fixed = FIXED.get(kind)
            if fixed is None:
                return b""
            place += fixed
    return b""
