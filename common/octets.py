"""Octets: integers out of bytes, and stretches of bytes compared, searched and hashed, fast when compiled.

`struct.unpack_from` costs 150 ns from compiled code because it boxes everything. mypyc's own run-time library reads with one instruction
and a check of the bounds. What looks at many octets is written a second time in C (`octets.c`), and that is what compiled code calls
(`deploy/packaging/native.py`): mypyc checks each read, so comparing eight octets took sixteen instructions, and the JSON header of a
RocketMQ send is some 350 octets. `tests/common/test_octets.py` holds both to the same.

The caller has checked that the bytes are there; where they are not: IndexError, ValueError for a negative index.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i16_be, read_i32_be, read_i64_be, read_i64_le
from mypy_extensions import i64

WORD: Final = 8  # octets
FACTOR: Final = 0x2C1B3C6D  # odd, and below 2**30, as the next: the product of it and 32 bits is a native integer
OTHER_FACTOR: Final = 0x1B873593
LOW_HALF: Final = 0xFFFF_FFFF  # of a word


def u16(data: bytes, at: i64) -> i64:
    return i64(read_i16_be(data, at)) & 0xFFFF


def u32(data: bytes, at: i64) -> i64:
    return i64(read_i32_be(data, at)) & 0xFFFF_FFFF


def u64(data: bytes, at: i64) -> i64:
    """Unsigned values of 2**63 and above come out negative: callers treat a negative size as too large."""
    return read_i64_be(data, at)


def begins(data: bytes, at: i64, text: bytes) -> bool:
    """Whether `text` stands at `at`."""
    return are_equal(data, at, text, 0, len(text))


# ---- also in C -------------------------------------------------------------------------------------------------------


def are_equal(one: bytes, at: i64, other: bytes, place: i64, size: i64) -> bool:
    """Whether `size` octets at `at` of `one` are those at `place` of `other`."""
    return one[at : at + size] == other[place : place + size]


def count_equal(data: bytes, one: i64, other: i64, size: i64) -> i64:
    """How many octets, of `size`, are the same at `one` and `other` before the first that differs."""
    at: i64 = 0
    if data[one : one + size] == data[other : other + size]:
        return size
    while data[one + at] == data[other + at]:
        at += 1
    return at


def find_quote(data: bytes, start: i64, end: i64) -> i64:
    """Where the first quote stands in `data[start:end]`, or -1."""
    return data.find(b'"', start, end)


def hash_octets(data: bytes, start: i64, end: i64) -> i64:
    """32 bits of which the last depend on all octets of `data[start:end]`."""
    found: i64 = end - start
    at: i64 = start
    last: i64 = end - WORD
    if at > last:
        while at < end:
            found = (found ^ data[at]) * FACTOR
            found = (found ^ found >> 32) & LOW_HALF
            at += 1
        return found ^ found >> 15
    while True:
        word: i64 = read_i64_le(data, at)
        found = (found ^ word & LOW_HALF) * FACTOR ^ (word >> 32 & LOW_HALF) * OTHER_FACTOR
        found = (found ^ found >> 32) & LOW_HALF
        if at == last:
            return found ^ found >> 15
        at = min(at + WORD, last)  # the last octets, some of them once more
