"""The property `expiration` of publishes: how long a message is of use, in milliseconds, as a text of digits.

It stands in the content header behind the properties of higher bits, which are walked. What a client has written there is not trusted:
whatever does not fit has none, and the broker says what it thinks of it (RabbitMQ closes the channel: 406). Looked at only where a rule
says `drop_expired`, of messages that have to wait.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from common.octets import u16, u32
from gateway.protocols.amqp.frames import HEADER, OVERHEAD
from limiter.limits import NEVER

SHORT_STRING: Final = 0  # of property: preceded by its length, in a byte
TABLE: Final = 1  # preceded by its length, in 4 bytes
OCTET: Final = 2
BEFORE: Final = (  # flag, and kind, of the properties before it (specification 1.8, class basic)
    (0x8000, SHORT_STRING), (0x4000, SHORT_STRING), (0x2000, TABLE), (0x1000, OCTET), (0x0800, OCTET), (0x0400, SHORT_STRING),
    (0x0200, SHORT_STRING),
)  # fmt: skip
EXPIRATION_FLAG: Final = 0x0100
MORE_FLAGS: Final = 0x0001  # another 16 flags follow; class basic has not so many properties
MAX_DIGITS: Final = 10  # RabbitMQ takes up to 4294967295, which is 49 days
MILLISECOND: Final = 1_000_000  # ns


def expiration_of(data: bytes, at: i64, end: i64) -> int:
    """That of the publish whose method frame is at `at`, in ns, at least one millisecond; NEVER: it has none. Its content header follows,
    and lies whole before `end`."""
    header: i64 = at + u32(data, at + 3) + OVERHEAD
    if header + 22 > end or data[header] != HEADER:
        return NEVER
    stop: i64 = header + 7 + u32(data, header + 3)  # where its payload ends
    flags: i64 = u16(data, header + 19)
    if stop > end or flags & EXPIRATION_FLAG == 0 or flags & MORE_FLAGS != 0:
        return NEVER
    place: i64 = header + 21
    for flag, kind in BEFORE:
        if flags & flag == 0:
            continue
        if place >= stop or (kind == TABLE and place + 4 > stop):
            return NEVER
        if kind == OCTET:
            place += 1
        elif kind == TABLE:
            place += 4 + u32(data, place)
        else:
            place += 1 + data[place]
    if place >= stop:
        return NEVER
    size: i64 = data[place]
    text = data[place + 1 : place + 1 + size]
    if place + 1 + size > stop or not 0 < size <= MAX_DIGITS or not text.isdigit():
        return NEVER
    return max(int(text), 1) * MILLISECOND
