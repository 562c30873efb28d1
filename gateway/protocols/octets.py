"""Big-endian integers out of bytes, fast when compiled: native reads without a tuple, a slice or a boxed integer.

`struct.unpack_from` costs 150 ns from compiled code because it boxes everything; these cost 1 to 2 ns (2026-11, 2 cores, Python 3.11).
The caller has checked that the bytes are there.
"""

from __future__ import annotations

from mypy_extensions import i64


def u16(data: bytes, at: i64) -> i64:
    a: i64 = data[at]
    b: i64 = data[at + 1]
    return (a << 8) | b


def u32(data: bytes, at: i64) -> i64:
    a: i64 = data[at]
    b: i64 = data[at + 1]
    c: i64 = data[at + 2]
    d: i64 = data[at + 3]
    return (a << 24) | (b << 16) | (c << 8) | d


def u64(data: bytes, at: i64) -> i64:
    """Unsigned values of 2**63 and above come out negative: callers treat a negative size as too large."""
    return (u32(data, at) << 32) | u32(data, at + 4)


def same(data: bytes, one: i64, other: i64, size: i64) -> bool:
    """Whether `size` bytes at `one` are the same as at `other`."""
    while size >= 8:
        size -= 8
        if u64(data, one + size) != u64(data, other + size):
            return False
    while size > 0:
        size -= 1
        if data[one + size] != data[other + size]:
            return False
    return True
