"""Fills: how full a bucket is for messages and for bytes, as one integer of 64 bits. So packed buckets and files keep it.

In units of 1 / UNIT of the burst, rounded down. A debt is a fill below 0.
"""

from __future__ import annotations

from typing import Final

UNIT: Final = 1 << 24  # of a fill: 1.0, a full burst
MIN_FILL: Final = -(1 << 31)  # a debt of 128 bursts; a deeper one cannot be packed


def pack(messages: int, size: int) -> int:
    """Two fills in units of 1 / UNIT, each at least MIN_FILL, as one integer of 64 bits."""
    return (messages << 32) + size - MIN_FILL


def messages_of(fills: int) -> int:
    return fills >> 32


def bytes_of(fills: int) -> int:
    return (fills & 0xFFFFFFFF) + MIN_FILL


def fills_at(fills: int, at: int, full_at: int, to: int) -> int:
    """`fills`, true at `at`, of a bucket that is full at `full_at`, as they are at `to`. The one that is full first counts as no faster."""
    messages, size = messages_of(fills), bytes_of(fills)
    gone, whole = to - at, full_at - at
    return pack(messages + (UNIT - messages) * gone // whole, size + (UNIT - size) * gone // whole)
