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
from typing import Any, Final

import msgspec
from mypy_extensions import i64

from gateway.pipeline.errors import ProtocolError

NAMES: Final = frozenset(("code", "extFields", "flag", "language", "opaque", "remark", "serializeTypeCurrentRPC", "version"))
MAX_UNKNOWN_FIELDS: Final = 16  # names in a header that are not the protocol's; no client has any: a guess
MAX_UNKNOWN_CHARACTERS: Final = 64  # of each: a guess

MAX_SPELLED_BYTES: Final = 8192  # of a header whose names are spelled with escapes; no client spells them so: a guess

decode_raw: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

FNV_BASIS: Final = 0xCBF29CE484222325  # of the 64-bit FNV-1a hash, which both fastjson use
FNV_PRIME: Final = 0x100000001B3


def unreadable(why: str) -> ProtocolError:
    return ProtocolError(f"unreadable request header: {why}", cause="bad_header")


def is_plain(text: bytes) -> bool:
    """Whether the header `text`, known to be a JSON object, says each field once, spelled without blanks and escapes.

    Taken apart and put together again it must be as long as it was: a field said twice is there once then, an escape is longer.
    """
    size: i64 = 1  # the braces, less the comma that the last field has not
    members: dict[str, Any] = decode_raw(text)
    for name, value in members.items():
        size += len(name) + len(value) + 4  # two quotes, colon, comma
    there: i64 = len(text)
    if text.endswith(b"\n"):  # C++ clients
        there -= 1
    return size == there


def refuse_ambiguous(text: bytes) -> None:
    """Raise ProtocolError where a field of the header `text`, known to be an object, is said twice or might be taken for another."""
    if not is_plain(text) and not is_plain(msgspec.json.format(text, indent=-1)):
        _refuse_repeated(text)
    unknown = 0
    for name in decode_raw(text):
        if name not in NAMES:
            unknown += 1
            if unknown > MAX_UNKNOWN_FIELDS or len(name) > MAX_UNKNOWN_CHARACTERS or could_be_taken(name):
                raise unreadable(f"field {name[:MAX_UNKNOWN_CHARACTERS]!r} is almost one of the protocol's")


def _refuse_repeated(text: bytes) -> None:
    """The same where one is said twice, of a header whose names are spelled with escapes, if none is."""
    if len(text) > MAX_SPELLED_BYTES:
        raise unreadable(f"a field is said twice, or spelled with escapes in more than {MAX_SPELLED_BYTES} bytes")
    try:
        members: Any = json.loads(text, object_pairs_hook=list)
    except (ValueError, RecursionError):
        raise unreadable("nested too deep, or not JSON") from None
    seen: set[str] = set()
    for name, _ in members:
        if name in seen:
            raise unreadable(f"field {name[:MAX_UNKNOWN_CHARACTERS]!r} is said twice")
        seen.add(name)


def could_be_taken(name: str) -> bool:
    """Whether a parser that is not strict might take the unknown field `name` for one of the protocol's."""
    letters = "".join([letter for letter in name if letter.isascii() and letter.isalpha()]).lower()
    if letters in ROUGHLY:
        return True
    lower = name.lower()
    return fnv_1a(name) in HASHES or fnv_1a(lower) in HASHES or fnv_1a(lower.replace("_", "").replace("-", "")) in HASHES


def fnv_1a(text: str) -> int:
    """The 64-bit FNV-1a hash of the text's characters."""
    found = FNV_BASIS
    for letter in text:
        found = ((found ^ ord(letter)) * FNV_PRIME) & 0xFFFF_FFFF_FFFF_FFFF
    return found


ROUGHLY: Final = frozenset([name.lower() for name in NAMES])
HASHES: Final = frozenset([fnv_1a(name) for name in NAMES] + [fnv_1a(name.lower()) for name in NAMES])
