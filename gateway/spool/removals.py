"""Messages of a durable file that were given up before their turn was marked off: what an operator has discarded or drained, and what was
too old. They stand in a file beside it, `N.removed` of `N.durable`, and are not replayed.

::

    removal  magic 4 | ranges 4 | crc32 4 of all but itself | (first byte 8 | byte behind the last 8) ...

Numbers are big-endian; the bytes are the durable file's. Removals stand one behind the other (`removal_writer.py`), are committed as what
is spooled is, and never changed. What is torn or damaged removes nothing: its messages come twice rather than never. They go with their
durable file.

A removal is of whole messages, of which the last one's body may stand in later records, also of later files: whoever reads the beginning
of a message that is removed leaves out the rest of it.
"""

from __future__ import annotations

import os
import struct
import zlib
from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from gateway.spool.durable import SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

REMOVED: Final = ".removed"
MAGIC: Final = b"SLR1"
HEAD: Final = struct.Struct(">4sII")
RANGE: Final = struct.Struct(">QQ")
PLACE_BITS: Final = 40  # of a place: the byte in its file; what is above it is the file's number

Range = tuple[int, int]  # the first byte, and the byte behind the last


def place_of(serial: int, offset: int) -> int:
    """A byte of a durable file as one number; above 0."""
    return (serial << PLACE_BITS) + offset


def removed_name(durable: str) -> str:
    """The file beside a durable one."""
    return durable.removesuffix(SUFFIX) + REMOVED


def is_removed(name: str) -> bool:
    """Whether a file of this name is one."""
    return name.endswith(REMOVED) and name.removesuffix(REMOVED).isdecimal()


def by_file(places: Iterable[Range]) -> dict[int, list[Range]]:
    """Ranges of places as ranges of bytes, by the number of their file."""
    found: dict[int, list[Range]] = {}
    for first, end in places:
        serial = first >> PLACE_BITS
        start = serial << PLACE_BITS
        found.setdefault(serial, []).append((first - start, end - start))
    return found


def encode_removal(ranges: list[Range]) -> bytes:
    """One removal."""
    body = b"".join([RANGE.pack(first, end) for first, end in ranges])
    return HEAD.pack(MAGIC, len(ranges), zlib.crc32(body, len(ranges))) + body


def decode_removals(data: bytes) -> list[Range]:
    """The ranges of all removals that are whole."""
    found: list[Range] = []
    at = data.find(MAGIC)
    while at >= 0 and at + HEAD.size <= len(data):
        _, count, checksum = HEAD.unpack_from(data, at)
        end = at + HEAD.size + int(count) * RANGE.size
        body = data[at + HEAD.size : end]
        if end > len(data) or zlib.crc32(body, count) != checksum:
            at = data.find(MAGIC, at + 1)
            continue
        found += [(int(first), int(last)) for first, last in RANGE.iter_unpack(body)]
        at = data.find(MAGIC, end)
    return found


class Removed:
    """What is removed of one durable file."""

    def __init__(self, ranges: list[Range]) -> None:
        self.ranges: list[Range] = []  # in order, none touches the next
        for first, end in sorted(ranges):
            if self.ranges and first <= self.ranges[-1][1]:
                self.ranges[-1] = (self.ranges[-1][0], max(end, self.ranges[-1][1]))
            else:
                self.ranges.append((first, end))

    def rest(self, first: int, end: int) -> list[Range]:
        """What is left of these bytes."""
        left: list[Range] = []
        index = max(bisect_right(self.ranges, (first, 1 << 62)) - 1, 0)
        for gone_first, gone_end in self.ranges[index:]:
            if gone_first >= end:
                break
            if gone_first > first:
                left.append((first, gone_first))
            first = max(first, gone_end)
        if first < end:
            left.append((first, end))
        return left

    def __repr__(self) -> str:
        return f"<Removed {len(self.ranges)} ranges>"


def removed_of(directory: Path, durable: str) -> Removed:
    """What is removed of a durable file. Raises OSError."""
    try:
        descriptor = os.open(directory / removed_name(durable), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return Removed([])
    with os.fdopen(descriptor, "rb") as file:
        return Removed(decode_removals(file.read()))
