"""Loose texts: strings of a JSON header that are no JSON, and which every broker takes nevertheless.

All versions read half a surrogate pair, control characters as they are, `\\x41` and a few more escapes in the same way, and store them
(measured 2026-11, `vectors/headers.json`). Headers that are compared with templates are not looked at so closely, so what a client is
answered would depend on what it has sent before. Here such texts are **tightened**: written as JSON that means the same, to be read. The
broker gets the header as it came.

Brokers up to 4.9 also take what is not UTF-8. Some parsers skip as many bytes as the first of a character announces, so none may stand
where a quote could be skipped.

The naive way, a regular expression for each spelling, took 400 ns for a control character, a thousand times what its sender pays. So the
header is gone through once, byte by byte.
"""

from __future__ import annotations

import re
from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

DIGITLESS: Final = re.compile(rb'\\u(?![0-9a-fA-F]{4})[^"\\]{4}')
UNREADABLE: Final = "\ufffd"
MAX_CONTROLS: Final = 256  # control characters of one header that are written; a name by which a topic is known has no more bytes
MASK: Final = 127  # instead of each further one, in a sixth of the bytes: no broker takes a topic with either
MOST_SWALLOWED: Final = 5  # bytes behind the first of a character that some parser may skip with it
SHORT_RUN: Final = 16  # bytes that are copied one by one, which is faster for so few: a guess
HEXADECIMAL: Final = b"0123456789abcdef"

QUOTE: Final = 34
BACKSLASH: Final = 92
KEPT: Final = frozenset(b'"\\/bfnrt')  # what stands behind the backslash in JSON, `u` aside


def tighten(text: bytes) -> bytes:
    """The header `text` as JSON, where its texts alone are none; else something that is none either. Raises UnicodeDecodeError.

    Half a surrogate pair becomes a question mark, as Java writes it in UTF-8; what is not UTF-8 U+FFFD, as Java reads it, but fewer of
    many; and so does a `\\u` without four digits behind it, which brokers from 5.4 on take for some character.
    """
    if not is_utf8(text):
        said = text.decode(errors="strict" if may_swallow_quote(text) else "replace")
        text = said.replace(16 * UNREADABLE, UNREADABLE).encode()
    out = BytesWriter()
    controls: i64 = 0
    within = False  # a text
    copied: i64 = 0  # text[:copied] is in `out`
    at: i64 = 0
    end: i64 = len(text)
    while at < end:
        octet: i64 = text[at]
        if octet == QUOTE:
            within = not within
            at += 1
            continue
        if not within or (octet >= 32 and octet != BACKSLASH):
            at += 1
            continue
        size: i64 = 1  # bytes that are replaced
        means: i64 = octet  # the character that they mean
        if octet == BACKSLASH:
            letter: i64 = text[at + 1] if at + 1 < end else 0
            if letter == 117:  # u
                size, means = _read_unicode(text, at, end)
                if size < 0:  # a pair, or any other character, as it stands
                    at -= size
                    continue
                if size == 0:
                    return text
            elif letter == 120:  # x
                means = _number(text, at + 2, at + 4, end)
                if means < 0:
                    return text
                size = 4
            elif 48 <= letter <= 55:  # 0 to 7
                means = letter - 48
                size = 2
            elif letter == 39:  # '
                means = letter
                size = 2
            elif letter == 118:  # v
                means = 11
                size = 2
            elif letter == 70:  # F
                means = 12
                size = 2
            elif letter in KEPT:
                at += 2
                continue
            else:
                return text  # nobody takes it
        _copy(text, copied, at, out)
        at += size
        copied = at
        if means < 32:
            controls += 1
            if controls > MAX_CONTROLS:
                out.append(MASK)
            else:
                _write_escape(means, out)
        elif means == QUOTE or means == BACKSLASH:  # noqa: PLR1714, SIM109  -- compiled to two comparisons of machine words
            _write_escape(means, out)
        elif means < 128:
            out.append(means)
        elif means < 256:
            out.append(0xC0 | means >> 6)
            out.append(0x80 | means & 0x3F)
        else:
            out.append(0xEF)  # UNREADABLE
            out.append(0xBF)
            out.append(0xBD)
    if copied == 0:
        return text
    _copy(text, copied, end, out)
    return out.getvalue()


def _read_unicode(text: bytes, at: i64, end: i64) -> tuple[i64, i64]:
    r"""Of the `\u` at `at`: how many bytes are replaced, and by which character; or minus the bytes that stay; 0: nobody takes it."""
    number: i64 = _number(text, at + 2, at + 6, end)
    if number < 0:
        place: i64 = at + 2
        units: i64 = 0  # of UTF-16: Java reads four
        while units < 4:
            octet: i64 = text[place] if place < end else 0
            if octet < 32 or octet == QUOTE or octet == BACKSLASH:  # noqa: PLR1714, SIM109  -- compiled to machine words
                return 0, 0
            place += 1 if octet < 0x80 else 2 if octet < 0xE0 else 3 if octet < 0xF0 else 4
            units += 1 if octet < 0xF0 else 2
        return (place - at, 0xFFFD) if units == 4 else (0, 0)
    if number & 0xF800 != 0xD800:
        return -6, 0
    if number < 0xDC00 and end - at >= 12 and text[at + 6] == BACKSLASH and text[at + 7] == 117:
        other: i64 = _number(text, at + 8, at + 12, end)
        if other & 0xFC00 == 0xDC00:
            return -12, 0
    return 6, 63  # a question mark


def _number(text: bytes, start: i64, stop: i64, end: i64) -> i64:
    """The number that is spelled in hexadecimal digits in `text[start:stop]`; -1 where it is not, or ends behind `end`."""
    if stop > end:
        return -1
    number: i64 = 0
    for at in range(start, stop):
        digit: i64 = text[at]
        if 48 <= digit <= 57:
            digit -= 48
        else:
            digit |= 32
            if digit < 97 or digit > 102:
                return -1
            digit -= 87
        number = number << 4 | digit
    return number


def _copy(text: bytes, start: i64, end: i64, out: BytesWriter) -> None:
    if end - start > SHORT_RUN:
        out.write(text[start:end])
        return
    for at in range(start, end):
        out.append(text[at])


def _write_escape(means: i64, out: BytesWriter) -> None:
    r"""A character below 128 as `\u00..`."""
    out.write(b"\\u00")
    out.append(HEXADECIMAL[means >> 4])
    out.append(HEXADECIMAL[means & 15])


def may_swallow_quote(text: bytes) -> bool:
    """Whether a byte of 0x80 and above stands where a quote may be read together with it."""
    high: i64 = -MOST_SWALLOWED - 1  # where the last such byte stands
    at: i64 = 0
    end: i64 = len(text)
    while at < end:
        octet: i64 = text[at]
        if octet == QUOTE:
            if at - high <= MOST_SWALLOWED:
                return True
        elif octet >= 128:
            high = at
        at += 1
    return False


def is_plain_text(text: bytes) -> bool:
    """Whether each character of the texts in the header `text` is the same to every broker."""
    return is_utf8(text) and DIGITLESS.search(text) is None


def is_utf8(text: bytes) -> bool:
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
