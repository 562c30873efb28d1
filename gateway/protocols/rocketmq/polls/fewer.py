"""A poll for fewer messages than its client asks for: as many as its limit lets pass in a second.

What a broker gives is with the client at once, so a poll for 32 messages at 1/s would bring half a minute's, and the group's other clients
would wait for as long. Clients take any number up to what they have asked for.

A request that is signed stays as it is, because its signature is over this number, too; so does one in which the number is not found once.
"""

from __future__ import annotations

import re
from typing import Final

from mypy_extensions import i64

from common.octets import u16, u32
from gateway.protocols.rocketmq.headers import JSON
from gateway.protocols.rocketmq.polls.terms import POP_LITE_MESSAGE

PREFIX: Final = 8  # bytes of a frame before its header
REMARK: Final = 13  # where in a binary header the length of its remark is
NAME: Final = b"maxMsgNums"
NAME_OF_LITE: Final = b"maxMsgNum"
SIGNATURE: Final = b"Signature"
NUMBERS: Final = {name: re.compile(rb'(?<!\\)"%b"\s*:\s*"?(-?\d+)(?=["\s,}])' % name) for name in (NAME, NAME_OF_LITE)}


def rewrite_for_fewer(data: bytes, start: i64, end: i64, code: int, most: int) -> bytes:
    """The request `data[start:end]` for `most` messages instead; b"" where it stays as it is."""
    word: i64 = u32(data, start + 4)
    header_end: i64 = start + PREFIX + (word & 0xFFFFFF)
    header = data[start + PREFIX : header_end]
    if SIGNATURE in header:
        return b""
    name = NAME_OF_LITE if code == POP_LITE_MESSAGE else NAME
    kind: int = word >> 24
    header = json_for(header, name, most) if kind == JSON else binary_for(header, name, most)
    if not header:
        return b""
    body = data[header_end:end]
    length = len(header) | kind << 24
    return (4 + len(header) + len(body)).to_bytes(4, "big") + length.to_bytes(4, "big") + header + body


def json_for(header: bytes, name: bytes, most: int) -> bytes:
    found = NUMBERS[name].findall(header)
    if len(found) != 1:
        return b""
    place = NUMBERS[name].search(header)
    assert place is not None
    return b"%b%d%b" % (header[: place.start(1)], most, header[place.end(1) :])


def binary_for(header: bytes, name: bytes, most: int) -> bytes:
    place: i64 = REMARK + 4 + u32(header, REMARK)  # of the fields' length
    at: i64 = place + 4
    end: i64 = len(header)
    found: i64 = -1
    while at + 6 <= end:
        value: i64 = at + 2 + u16(header, at) + 4
        if value > end:
            return b""
        if header[at + 2 : value - 4] == name:
            if found >= 0:
                return b""
            found = value
        at = value + u32(header, value - 4)
    if found < 0:
        return b""
    number = str(most).encode()
    stop: i64 = found + u32(header, found - 4)
    fields = b"%b%b%b%b" % (header[place + 4 : found - 4], len(number).to_bytes(4, "big"), number, header[stop:])
    return header[:place] + len(fields).to_bytes(4, "big") + fields
