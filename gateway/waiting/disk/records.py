"""How held parts are written to disk: a batch of records with one checksum.

::

    batch    magic 4 | crc32 4 of all that follows | bytes that follow 4 | records 4 | record ...
    record   kind 1 | flags 1 | count 4 | messages 4 | size 8 | deadline 8 | paged at 8 | bytes of data 4 | data

Numbers are big-endian. A batch holds whole frames only, so reading it back never leaves the broker within a frame. The key of a record is
not written: the protocol reads it from the data, as it did when the bytes came in, so a record needs no place in memory.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Final

from gateway.pipeline.parts import REQUEST, Part
from limiter.keys import Key

MAGIC: Final = 0x53_4C_53_31  # "SLS1"
BATCH: Final = struct.Struct(">IIII")
RECORD: Final = struct.Struct(">BBIIQQQI")
COMPLETE: Final = 1  # flags
PAID: Final = 2
PREPAID: Final = 4
AGAIN: Final = 8
UNANSWERED: Final = 16


class DamagedError(Exception):
    """What was read is not what was written; the message says how that shows."""


def encode(parts: list[Part]) -> bytes:
    """A batch of `parts`, whose messages the judge has been asked for at least once."""
    pieces: list[bytes] = []
    for part in parts:
        flags = (COMPLETE if part.complete else 0) | (PAID if part.paid else 0) | (PREPAID if part.prepaid else 0)
        flags |= (AGAIN if part.again else 0) | (UNANSWERED if part.unanswered else 0)
        length = part.end - part.start
        pieces.append(RECORD.pack(part.kind, flags, part.count, part.messages, part.size, part.deadline, part.find_paged_at(), length))
        pieces.append(part.data if length == len(part.data) else part.data[part.start : part.end])
    body = b"".join(pieces)
    count = len(parts)
    head = struct.pack(">II", len(body), count)
    return BATCH.pack(MAGIC, zlib.crc32(body, zlib.crc32(head)), len(body), count) + body


def decode(batch: bytes, ordering_key: int, key_of: Callable[[bytes], Key | None]) -> list[Part]:
    """The parts of a batch. `key_of` names a request's key by its data. Raises DamagedError."""
    if len(batch) < BATCH.size:
        raise DamagedError(f"{len(batch)} bytes are left where a batch begins")
    magic, checksum, length, count = BATCH.unpack_from(batch)
    if magic != MAGIC:
        raise DamagedError(f"no batch begins here: {batch[:4].hex()}")
    if BATCH.size + length != len(batch):
        raise DamagedError(f"a batch of {length} bytes has {len(batch) - BATCH.size}")
    if zlib.crc32(memoryview(batch)[BATCH.size :], zlib.crc32(batch[8:16])) != checksum:
        raise DamagedError("its checksum does not fit")
    parts: list[Part] = []
    at = BATCH.size
    for _ in range(count):
        kind, flags, requests, messages, size, deadline, paged_at, data_length = RECORD.unpack_from(batch, at)
        at += RECORD.size
        data = batch[at : at + data_length]
        at += data_length
        key = key_of(data) if kind == REQUEST else None
        part = Part(kind, ordering_key, data, 0, data_length, key, requests, messages, size, flags & COMPLETE != 0)
        part.paid = flags & PAID != 0
        part.passed = requests if part.paid else 0
        part.prepaid = flags & PREPAID != 0
        part.again = flags & AGAIN != 0
        part.unanswered = flags & UNANSWERED != 0
        part.deadline = deadline
        part.begin_hold().paged_at = paged_at
        parts.append(part)
    return parts
