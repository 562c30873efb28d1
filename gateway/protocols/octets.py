"""Big-endian integers out of bytes, fast when compiled: native reads without a tuple, a slice or a boxed integer.

`struct.unpack_from` costs 150 ns from compiled code because it boxes everything. mypyc's own run-time library reads with one instruction
and a check of the bounds: of what an AMQP publish costs in a stream, byte by byte took a third (counted with callgrind, 2026-11).
The caller has checked that the bytes are there; where they are not: IndexError.
"""

from __future__ import annotations

from librt.strings import read_i16_be, read_i32_be, read_i64_be
from mypy_extensions import i64


def u16(data: bytes, at: i64) -> i64:
    return i64(read_i16_be(data, at)) & 0xFFFF


def u32(data: bytes, at: i64) -> i64:
    return i64(read_i32_be(data, at)) & 0xFFFF_FFFF


def u64(data: bytes, at: i64) -> i64:
    """Unsigned values of 2**63 and above come out negative: callers treat a negative size as too large."""
    return read_i64_be(data, at)


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
