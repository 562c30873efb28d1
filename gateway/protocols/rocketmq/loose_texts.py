"""Loose texts: strings of a JSON header that are no JSON, and which every broker takes nevertheless.

All versions read half a surrogate pair, control characters as they are, `\\x41` and a few more escapes in the same way, and store them
(measured 2026-11, `vectors/headers.json`). Headers that are compared with templates are not looked at so closely, so what a client is
answered would depend on what it has sent before. Here such texts are **tightened**: written as JSON that means the same, to be read. The
broker gets the header as it came.

Brokers up to 4.9 also take what is not UTF-8. Some parsers skip as many bytes as the first of a character announces, so none may stand
where a quote could be skipped.
"""

from __future__ import annotations

import re
from typing import Final

SWALLOWS: Final = re.compile(rb'[\x80-\xff][^"]{0,4}"')  # a byte that may be read together with a quote behind it
UNREADABLE: Final = "\ufffd".encode()
CONTROL: Final = re.compile(rb"[\x00-\x1f]")
TEXTS: Final = re.compile(rb'"(?:[^"\\]|\\[^\x00-\x1f])*+"')
HALVES: Final = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
HEXADECIMAL: Final = re.compile(rb"\\x([0-9a-fA-F]{2})")
DIGITLESS: Final = re.compile(rb'\\u(?![0-9a-fA-F]{4})[^"\\]{4}')
OCTAL: Final = re.compile(rb"\\([0-7])")


def tighten(text: bytes) -> bytes:
    """The header `text` as JSON, where its texts alone are none; else something that is none either. Raises UnicodeDecodeError.

    Half a surrogate pair becomes a question mark, as Java writes it in UTF-8; what is not UTF-8 U+FFFD, as Java reads it, and so does a
    `\\u` without four digits behind it, which brokers from 5.4 on take for some character.
    """
    if not is_utf8(text):
        text = text.decode(errors="replace" if SWALLOWS.search(text) is None else "strict").encode()
    if CONTROL.search(text) is not None:
        text = TEXTS.sub(_escape_controls, text)
    if b"\\" not in text:
        return text
    text = text.replace(b"\\\\", b"\\u005c")  # from here on each backslash begins an escape
    text = HALVES.sub(b"?", text)
    text = DIGITLESS.sub(UNREADABLE, text)
    text = HEXADECIMAL.sub(rb"\\u00\1", text)
    text = OCTAL.sub(rb"\\u000\1", text)
    return text.replace(b"\\'", b"'").replace(b"\\v", b"\\u000b").replace(b"\\F", b"\\f")


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


def _escape_controls(quoted: re.Match[bytes]) -> bytes:
    return CONTROL.sub(_escape, quoted.group())


def _escape(control: re.Match[bytes]) -> bytes:
    return b"\\u%04x" % control.group()[0]
