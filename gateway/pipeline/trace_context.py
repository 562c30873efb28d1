"""Trace context of a message: the header `traceparent` of W3C Trace Context, and whether a message with it is traced.

    00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
    │  │                                │                └ flags; bit 0: the client's own span is sampled
    │  │                                └ parent id, 8 bytes in hexadecimal: the client's span
    │  └ trace id, 16 bytes in hexadecimal
    └ version

What clients write is not trusted: whatever the specification does not allow counts as no trace context. `tracestate` is not read.
"""

from __future__ import annotations

from typing import Final

TRACEPARENT: Final = b"traceparent"
TRACEPARENT_BYTES: Final = 55  # of version 00, and the least of a later one
MAX_VALUE_BYTES: Final = 512  # of a later version, beyond which it is not taken for one: a guess
SAMPLED: Final = 1  # bit of the flags
TRACE_IDS: Final = 1 << 64  # values of a trace id's last 8 bytes, by which OpenTelemetry's TraceIdRatioBased decides
HEX: Final = frozenset(b"0123456789abcdef")  # lower case only, says the specification
NO_TRACE: Final = b"0" * 32
NO_PARENT: Final = b"0" * 16


def bound_of(thousandths: int) -> int:
    """Trace ids below it are sampled at a ratio of so many thousandths: TraceIdRatioBased's number, so that all take the same traces."""
    return round(thousandths / 1000 * TRACE_IDS)


def valid_traceparent(value: bytes) -> bytes:
    """The first 55 bytes of a `traceparent`, which a later version may follow by more; b"" where it is not one."""
    size = len(value)
    if size < TRACEPARENT_BYTES or value[2] != 45 or value[35] != 45 or value[52] != 45:  # hyphens
        return b""
    if size > TRACEPARENT_BYTES:
        if value[:2] == b"00" or value[TRACEPARENT_BYTES] != 45:
            return b""
        value = value[:TRACEPARENT_BYTES]
    if value[:2] == b"ff" or value[3:35] == NO_TRACE or value[36:52] == NO_PARENT:
        return b""
    for at in range(TRACEPARENT_BYTES):
        if value[at] not in HEX and at not in (2, 35, 52):
            return b""
    return value


def is_sampled(traceparent: bytes, bound: int) -> bool:
    """Whether the client has sampled its trace, and the ratio (`bound_of`) takes it. `traceparent` is valid."""
    return int(traceparent[53:55], 16) & SAMPLED != 0 and int(traceparent[19:35], 16) < bound
