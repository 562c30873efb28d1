"""Files that outlive their process: what waits of a sender that is never told what has arrived (`durable: true`).

::

    file     magic 8 | position 8 | crc32 4 of the position | bytes of the origin 4 | crc32 4 of the origin | origin | batch ...

Numbers are big-endian. Whatever stands before `position` has been handed on. It is written in place and not synced, so after a power cut
it may be an older one, or damaged; then more is repeated, and nothing is lost. `origin` is JSON: whose messages these are, and in `queue`
the first file of its queue, so files of one queue are known by it and stand in the order of their numbers; in `clock` what the time of
day (ns since 1970) was ahead of the process's clock, in which records say until when they are of use. The batches are those of
`records.py`. What was given up of a file stands in another one beside it (`removals.py`).
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from typing import Final

from gateway.spool.records import DamagedError

SUFFIX: Final = ".durable"
CLOCK: Final = "clock"
MAGIC: Final = b"SLUICED1"
POSITION_AT: Final = len(MAGIC)
POSITION: Final = struct.Struct(">QI")
ORIGIN: Final = struct.Struct(">II")
HEAD_BYTES: Final = POSITION_AT + POSITION.size + ORIGIN.size
MAX_ORIGIN_BYTES: Final = 4096  # bytes; four names of up to 255 bytes, escaped as JSON does: a file with more is not ours


def is_durable(name: str) -> bool:
    """Whether a file of this name is one."""
    return name.endswith(SUFFIX) and name[: -len(SUFFIX)].isdecimal()


def serial_of(name: str) -> int:
    """The number that gives the files of a queue their order."""
    return int(name[: -len(SUFFIX)])


def head_of(origin: dict[str, str]) -> bytes:
    """The beginning of a file."""
    text = json.dumps(origin, ensure_ascii=False).encode()
    first = MAGIC + position_of(HEAD_BYTES + len(text))
    return first + ORIGIN.pack(len(text), zlib.crc32(text)) + text


def position_of(position: int) -> bytes:
    """A position as it is written at POSITION_AT."""
    return POSITION.pack(position, zlib.crc32(position.to_bytes(8, "big")))


def read_head(descriptor: int) -> tuple[dict[str, str], int, int]:
    """The origin of a file, where its batches begin, and its position. Raises DamagedError, OSError."""
    head = os.pread(descriptor, HEAD_BYTES + MAX_ORIGIN_BYTES, 0)
    if len(head) < HEAD_BYTES or head[: len(MAGIC)] != MAGIC:
        raise DamagedError("it does not begin as a file of the spool")
    length, checksum = ORIGIN.unpack_from(head, POSITION_AT + POSITION.size)
    text = head[HEAD_BYTES : HEAD_BYTES + length]
    if len(text) != length or zlib.crc32(text) != checksum:
        raise DamagedError("it does not say whose messages it has")
    first = HEAD_BYTES + int(length)
    position, checksum = POSITION.unpack_from(head, POSITION_AT)
    if zlib.crc32(head[POSITION_AT : POSITION_AT + 8]) != checksum:
        position = first
    origin = json.loads(text)
    if not isinstance(origin, dict):
        raise DamagedError("it does not say whose messages it has")
    return {str(name): str(value) for name, value in origin.items()}, first, max(int(position), first)
