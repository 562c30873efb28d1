"""RocketMQ frames read slowly and plainly, with `json` and `struct`, written from `docs/design/rocketmq.md` 1 alone, to compare our
decoders with."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import Any, Final

NO_OPAQUE: Final = 2**31  # in the place of one that is not said: no 32-bit number


class Pairs(list[tuple[str, Any]]):
    """An object as it is spelled: its names and values in order."""


@dataclass
class Read:
    """One frame. `ext` holds text as the broker's map of strings does."""

    kind: int
    code: int = 0
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    language: object = None
    version: object = None
    ext: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


def read_frame(frame: bytes) -> Read:
    """Raises ValueError, KeyError or struct.error where `frame` is none of RocketMQ's, or spelled as no client spells it."""
    length, word = struct.unpack_from(">II", frame)
    if length != len(frame) - 4:
        raise ValueError(f"{length} bytes announced, {len(frame) - 4} there")
    size = word & 0xFFFFFF
    if size > length - 4:
        raise ValueError("the header is longer than the frame")
    read = read_header(word >> 24, frame[8 : 8 + size])
    read.body = frame[8 + size :]
    return read


def read_header(kind: int, header: bytes) -> Read:
    if kind == 0:
        return _json(header)
    if kind == 1:
        return _binary(header)
    raise ValueError(f"serialize type {kind}")


def _json(header: bytes) -> Read:
    members = json.loads(header.decode(), object_pairs_hook=Pairs)
    if not isinstance(members, Pairs):
        raise ValueError("not an object")
    found = dict(members)
    if len(found) < len(members):
        raise ValueError("a name is there twice")
    numbers: dict[str, Any] = {name: found.get(name) or 0 for name in ("code", "opaque", "flag")}
    for name, number in numbers.items():
        if type(number) is not int or not -(2**31) <= number < 2**31:
            raise ValueError(f"{name} is {number!r}")
    if found.get("opaque") is None:
        numbers["opaque"] = NO_OPAQUE
    extra = found.get("extFields")
    if not isinstance(extra, Pairs | None):
        raise ValueError("extFields is not an object")
    ext = {name: _text(value) for name, value in dict(extra or ()).items() if value is not None}  # the last one wins, as in a map
    return Read(0, **numbers, remark=found.get("remark"), language=found.get("language"), version=found.get("version"), ext=ext)


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    raise ValueError(f"{value!r} is no value of a header")


def _binary(header: bytes) -> Read:
    code, language, version, opaque, flag = struct.unpack_from(">hBhii", header)
    remark, at = _take(header, 13, ">I")
    entries, at = _take(header, at, ">I")
    if at != len(header):
        raise ValueError("bytes behind the header")
    ext: dict[str, str] = {}
    at = 0
    while at < len(entries):
        name, at = _take(entries, at, ">H")
        value, at = _take(entries, at, ">I")
        ext[name.decode(errors="replace")] = value.decode(errors="replace")  # the last one wins, as in a map
    return Read(1, code, opaque, flag, remark.decode(errors="replace") or None, language, version, ext)


def _take(data: bytes, at: int, size_format: str) -> tuple[bytes, int]:
    """Bytes behind their length, and where they end."""
    (size,) = struct.unpack_from(size_format, data, at)
    at += struct.calcsize(size_format)
    if size > len(data) - at:
        raise ValueError("longer than what it is in")
    return data[at : at + size], at + size
