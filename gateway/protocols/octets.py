"""Integers out of bytes, and stretches of bytes compared, fast when compiled: native reads without a tuple, a slice or a boxed integer.

`struct.unpack_from` costs 150 ns from compiled code because it boxes everything. mypyc's own run-time library reads with one instruction
and a check of the bounds: of what an AMQP publish costs in a stream, byte by byte took a third (counted with callgrind, 2026-11).
The caller has checked that the bytes are there; where they are not: IndexError, ValueError for a negative index.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i16_be, read_i32_be, read_i64_be, read_i64_le
from mypy_extensions import i64

from gateway.build import build

# Beyond so many octets the C library compares and searches faster, though it needs a slice for it: 190 instructions. Not compiled, always.
LONG: Final[i64] = 96 if build().kind == "compiled" else -1
# Seven octets are looked at together. The eighth would need a sign, which only compiled code would lose in an overflow.
SEVEN: Final = 0x00FF_FFFF_FFFF_FFFF
LOW_BITS: Final = 0x007F_7F7F_7F7F_7F7F
HIGH_BITS: Final = 0x0080_8080_8080_8080
FIRST_THREE: Final = 0x0080_8080
QUOTES: Final = 0x0022_2222_2222_2222


def u16(data: bytes, at: i64) -> i64:
    return i64(read_i16_be(data, at)) & 0xFFFF


def u32(data: bytes, at: i64) -> i64:
    return i64(read_i32_be(data, at)) & 0xFFFF_FFFF


def u64(data: bytes, at: i64) -> i64:
    """Unsigned values of 2**63 and above come out negative: callers treat a negative size as too large."""
    return read_i64_be(data, at)


def count_equal_bytes(data: bytes, one: i64, other: i64, size: i64) -> i64:
    """How many bytes, of `size` at least 8, are the same at `one` and `other` before the first that differs."""
    if size > LONG and data[one : one + size] == data[other : other + size]:
        return size
    at: i64 = 0
    last: i64 = size - 8
    while at < last and read_i64_le(data, one + at) == read_i64_le(data, other + at):
        at += 8
    if at >= last:
        if read_i64_le(data, one + last) == read_i64_le(data, other + last):
            return size
        at = last
    while data[one + at] == data[other + at]:
        at += 1
    return at


def begins(data: bytes, at: i64, text: bytes) -> bool:
    """Whether `text` stands at `at`, where at least as many bytes are."""
    size: i64 = len(text)
    if size > LONG:
        return data[at : at + size] == text
    last: i64 = size - 8
    place: i64 = 0
    if last < 0:
        while place < size:
            if data[at + place] != text[place]:
                return False
            place += 1
        return True
    while place < last:
        if read_i64_le(data, at + place) != read_i64_le(text, place):
            return False
        place += 8
    return read_i64_le(data, at + last) == read_i64_le(text, last)


def find_quote(data: bytes, start: i64, end: i64) -> i64:
    """Where the first quote stands in `data[start:end]`, or -1.

    Seven octets at a time: an octet's difference is zero where it is alike, and only then does adding LOW_BITS not reach its high bit.
    """
    at: i64 = start
    last: i64 = min(end - 8, start + LONG)
    while at <= last:
        differs: i64 = (read_i64_le(data, at) & SEVEN) ^ QUOTES
        alike: i64 = (((differs & LOW_BITS) + LOW_BITS | differs) & HIGH_BITS) ^ HIGH_BITS
        if alike != 0:
            if alike & FIRST_THREE == 0:
                alike >>= 24
                at += 3
            while alike & 0x80 == 0:
                alike >>= 8
                at += 1
            return at
        at += 7
    found: int = data.find(b'"', at, end)
    return found


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
