"""The trace context of publishes: the entry `traceparent` of the table `headers` in their content headers (specification 4.2.6.1).

A search for the name comes first: most messages have none, and that is all they cost. Where the name is found, in a value perhaps or in a
table within the table, the entries of the outer table are walked to the one that is called so (`header_tables.py`).
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from common.octets import u32
from gateway.pipeline.trace_context import MAX_VALUE_BYTES, TRACEPARENT
from gateway.protocols.amqp.frames import HEADER, OVERHEAD
from gateway.protocols.amqp.header_tables import after_value, find_entry
from gateway.protocols.amqp.refusals import publish_end

LONG_STRING: Final = 83  # S


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
    place: i64 = find_entry(data, header, stop, TRACEPARENT)
    if place == 0 or data[place] != LONG_STRING:
        return b""
    after: i64 = after_value(data, place, stop)
    return data[place + 5 : after] if 0 < after - place - 5 <= MAX_VALUE_BYTES else b""
