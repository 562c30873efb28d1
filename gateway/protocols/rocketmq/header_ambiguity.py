"""Header ambiguity: JSON headers that are one request to us and might be another to the broker.

A header in which a field is said twice has no meaning of its own. fastjson 1 (brokers up to 5.3) takes the first or the last, which one
depends on where the fields stand: of ``{"extFields":{…},"code":310,"code":34}`` it takes 310, with the fields in its own order 34.
fastjson2 (5.4) takes the last. And both know names by hashes: fastjson 1 matches `Code` and `ext_fields`, fastjson2 takes
``"code\\u0000"`` for `code` (all measured 2026-11, `vectors/headers.json`). A client could be charged for one thing and do the other. No
client writes such headers, so they are refused.

The check runs for every header that is parsed, so it asks first, as fast as parsing is, whether there is anything to look at (`is_plain`).
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import msgspec
from mypy_extensions import i64

from gateway.pipeline.errors import ProtocolError

NAMES: Final = frozenset(("code", "extFields", "flag", "language", "opaque", "remark", "serializeTypeCurrentRPC", "version"))
MAX_UNKNOWN_FIELDS: Final = 16  # names in a header that are not the protocol's; no client has any: a guess
MAX_UNKNOWN_CHARACTERS: Final = 64  # of each: a guess
MAX_SEARCHED_BYTES: Final = 8192  # of a refused header, in which the name that is said twice is looked for: a guess
MAX_HARMLESS: Final = 1024  # unknown names that no parser takes for another, of all connections; asking takes 1 µs each: a guess
PUT_FOR_OTHERS: Final = re.compile("[\x00-\x1f\x7f?\ufffd]")  # control characters that are masked, halves of pairs, what is no UTF-8
PACKED_CHARACTERS: Final = 8  # of a name that fastjson2 knows by a number of 64 bits
SPELLED_QUOTE: Final = b"\\u0022"
NO_LETTERS: Final = bytes([octet for octet in range(256) if not chr(octet).isascii() or not chr(octet).isalpha()])

decode_raw: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

harmless: Final[set[str]] = set()

FNV_BASIS: Final = 0xCBF29CE484222325  # of the 64-bit FNV-1a hash, which both fastjson use


def unreadable(why: str) -> ProtocolError:
    return ProtocolError(f"unreadable request header: {why}", cause="bad_header")


def is_plain(text: bytes, members: dict[str, Any]) -> bool:
    """Whether the header `text`, an object of `members`, says each field once, spelled without blanks and escapes.

    Taken apart and put together again it must be as long as it was: a field said twice is there once then, an escape is longer.
    """
    size: i64 = 1  # the braces, less the comma that the last field has not
    for name, value in members.items():
        size += len(name) + len(value) + 4  # two quotes, colon, comma
    there: i64 = len(text)
    if text.endswith(b"\n"):  # C++ clients
        there -= 1
    return size == there


def refuse_ambiguous(text: bytes, members: dict[str, Any]) -> None:
    """Raise ProtocolError where a field of the header `text`, which has `members`, is said twice or might be taken for another."""
    if not said_once(text, members):
        raise unreadable(f"field {_find_repeated(text)!r} is said twice")
    unknown = 0
    for name in members:
        if name not in NAMES:
            unknown += 1
            if unknown > MAX_UNKNOWN_FIELDS or (name not in harmless and (len(name) > MAX_UNKNOWN_CHARACTERS or could_be_taken(name))):
                raise unreadable(f"field {name[:MAX_UNKNOWN_CHARACTERS]!r} is almost one of the protocol's")
            if len(harmless) >= MAX_HARMLESS:
                harmless.clear()
            harmless.add(name)


def said_once(text: bytes, members: dict[str, Any]) -> bool:
    """Whether the header `text` says each of its `members` once, however it is spelled: one said twice has two quotes more."""
    spelled = SPELLED_QUOTE in text
    quotes: i64 = count_quotes(text, spelled)
    for name, value in members.items():
        quotes -= count_quotes(bytes(value), spelled) + name.count('"') + 2
    return quotes == 0


def count_quotes(text: bytes, spelled: bool) -> int:  # noqa: FBT001  -- positional for speed
    """Of JSON, with those that are spelled in digits where there may be any."""
    if spelled:
        text = text.replace(rb"\\", b"").replace(SPELLED_QUOTE, b'"')
    return text.count(b'"')


def _find_repeated(text: bytes) -> str:
    """The name, as far as it can be shown, of the field that is said twice; "" where the header is too long to look for it."""
    if len(text) > MAX_SEARCHED_BYTES:
        return ""
    try:
        pairs: Any = json.loads(text, object_pairs_hook=list)
    except (ValueError, RecursionError):
        return ""
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            return str(name[:MAX_UNKNOWN_CHARACTERS])
        seen.add(name)
    return ""


def could_be_taken(name: str) -> bool:
    """Whether a parser that is not strict might take the unknown field `name` for one of the protocol's.

    A name that holds what `tighten` puts for something else is not known as brokers read it, and could have the hash of `code` there.
    """
    if PUT_FOR_OTHERS.search(name) is not None:
        return True
    letters = name.encode("ascii", "ignore").translate(None, NO_LETTERS).lower()
    if letters in ROUGHLY:
        return True
    lower = name.lower()
    return any(value in HASHES for form in {name, lower, lower.replace("_", "").replace("-", "")} for value in hashes_of(form))


def hashes_of(name: str) -> list[int]:
    """What parsers may know `name` by: its hash, or, where it is short, its letters as one number, as fastjson2 has them."""
    found = [fnv_1a(name)]
    if len(name) <= PACKED_CHARACTERS:
        letters = name.encode("latin-1", "ignore")
        found += [int.from_bytes(letters, "little"), int.from_bytes(letters, "big")]
    return found


def fnv_1a(text: str) -> int:
    """The 64-bit FNV-1a hash of the text's characters, as Java has them; in two halves, which stay machine words."""
    units = text.encode("utf-16-le", "surrogatepass")
    high: i64 = FNV_BASIS >> 32
    low: i64 = FNV_BASIS & 0xFFFF_FFFF
    at: i64 = 0
    end: i64 = len(units)
    while at < end:
        unit: i64 = units[at]
        upper: i64 = units[at + 1]
        low ^= unit | upper << 8
        high = high * 0x1B3 + (low << 8)  # times 2**40 + 0x1B3
        low *= 0x1B3
        high = high + (low >> 32) & 0xFFFF_FFFF
        low &= 0xFFFF_FFFF
        at += 2
    return int(high) << 32 | int(low)


ROUGHLY: Final = frozenset([name.lower().encode() for name in NAMES])
HASHES: Final = frozenset([value for name in NAMES for form in (name, name.lower()) for value in hashes_of(form)])
