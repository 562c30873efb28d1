"""The table `headers` of a publish's content header (specification 4.2.6.1): its entries, found where they lie.

What a client has written there is not trusted. Whatever does not fit has no entries: the broker says what it thinks of it.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from common.octets import begins, u16, u32

HEADERS_FLAG: Final = 0x2000  # bits of the property flags: the third property is the table
CONTENT_TYPE_FLAG: Final = 0x8000
CONTENT_ENCODING_FLAG: Final = 0x4000
MORE_FLAGS: Final = 0x0001  # another 16 flags follow; class basic has not so many properties
# Bytes of a value by the letter of its type, as RabbitMQ reads them; those of VARIABLE are preceded by their length, in 4 bytes.
FIXED: Final[dict[int, int]] = {
    ord(letter): size for letters, size in (("V", 0), ("tbB", 1), ("su", 2), ("Iif", 4), ("D", 5), ("lLdT", 8)) for letter in letters
}
VARIABLE: Final = frozenset(b"SxAF")


def find_entry(data: bytes, header: i64, stop: i64, name: bytes) -> i64:
    """Where the type of the first entry called `name` stands; 0: there is none. The header frame at `header` ends its payload at `stop`."""
    flags: i64 = u16(data, header + 19)
    if flags & HEADERS_FLAG == 0 or flags & MORE_FLAGS != 0:
        return 0
    place: i64 = header + 21
    for flag in (CONTENT_TYPE_FLAG, CONTENT_ENCODING_FLAG):
        if flags & flag != 0:
            if place >= stop:
                return 0
            place += 1 + data[place]
    if place + 4 > stop:
        return 0
    size: i64 = u32(data, place)
    place += 4
    if size > stop - place:
        return 0
    end: i64 = place + size
    wanted: i64 = len(name)
    while place < end:
        length: i64 = data[place]
        at: i64 = place + 1
        place = at + length
        if place >= end:
            return 0
        if length == wanted and begins(data, at, name):
            return place
        place = after_value(data, place, end)
        if place == 0:
            return 0
    return 0


def after_value(data: bytes, place: i64, end: i64) -> i64:
    """Where the value ends whose type stands at `place`; 0: not before `end`, or nobody knows."""
    kind = data[place]
    if kind in VARIABLE:
        if place + 5 > end:
            return 0
        length: i64 = u32(data, place + 1)
        return place + 5 + length if length <= end - place - 5 else 0
    fixed = FIXED.get(kind)
    if fixed is None:
        return 0
    after: i64 = place + 1 + fixed
    return after if after <= end else 0
