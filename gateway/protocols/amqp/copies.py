"""Copies: the routing keys that a publish names beside its own, in the headers `CC` and `BCC`.

RabbitMQ routes the message by each of them, too, and puts one message into each queue that it finds so. Headers that are no arrays it
refuses (406); of an array it looks at the long strings (measured with 4.0.5). What is no such header, or does not fit, names nothing here.

A search for `CC` comes first: most publishes have none, and that is all they cost (`publishes.py`). The walk is bounded by the frame.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from common.octets import u32
from gateway.protocols.amqp.header_tables import after_value, find_entry

HEADERS_OCTET: Final = 0x20  # HEADERS_FLAG, in the first octet of the property flags
MARK: Final = b"CC"  # in both names
NAMES: Final = (b"CC", b"BCC")
ARRAY: Final = 65  # A
LONG_STRING: Final = 83  # S
MAX_NAME_BYTES: Final = 255  # of a routing key; no queue, and no binding but `#`, has a longer one


def may_name_copies(data: bytes, header: i64, end: i64) -> bool:
    """Whether the content header at `header`, whole before `end`, may name copies: it has a table, and the mark stands behind it."""
    return data[header + 19] & HEADERS_OCTET != 0 and data.find(MARK, header + 21, end) >= 0


def copies_named(data: bytes, header: i64, stop: i64) -> list[bytes]:
    """The routing keys that the header frame at `header` names, each once; `stop`: where its payload ends."""
    found: dict[bytes, None] = {}
    for name in NAMES:
        place: i64 = find_entry(data, header, stop, name)
        if place == 0 or data[place] != ARRAY:
            continue
        end: i64 = after_value(data, place, stop)
        place += 5
        while 0 < place < end:
            if data[place] == LONG_STRING and place + 5 <= end:
                size: i64 = u32(data, place + 1)
                if size > end - place - 5:
                    break
                found[data[place + 5 : place + 5 + min(size, MAX_NAME_BYTES)]] = None
                place += 5 + size
            else:
                place = after_value(data, place, end)
    return list(found)
