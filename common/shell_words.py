"""Words of the commands that are shown to people: each as a shell takes it, and no harder to read than it has to be."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from typing import Final

from common.unsafe_characters import UNSAFE

_SPECIAL: Final = re.compile(r"""[\s"'\\$`!*?\[\](){}<>|&;#~]|^$""")  # what a shell does not take as it is
_IN_DOUBLE_QUOTES: Final = re.compile(r"""["\\$`!]""")  # what it does not take as it is between double quotes either


def quote_word(word: str) -> str:
    """A word as a shell takes it; letters of other alphabets need no quotes. One with an apostrophe is in double quotes, where these do.

    Characters that would do something where they are shown are escapes, as bash and zsh read them: what is shown can then be cleaned of
    escape sequences, and none has taken a quote with it.
    """
    if UNSAFE.search(word):
        plain = word.replace("\\", "\\\\").replace("'", "\\'")
        return f"$'{UNSAFE.sub(_escape, plain)}'"
    if not _SPECIAL.search(word):
        return word
    return f'"{word}"' if "'" in word and not _IN_DOUBLE_QUOTES.search(word) else shlex.quote(word)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    byte = code < 0x80 or 0xDC80 <= code < 0xDD00  # the latter: of a name that is no UTF-8
    return f"\\x{code & 0xFF:02x}" if byte else f"\\u{code:04x}"


def join_words(words: Iterable[str]) -> str:
    """Words as one types them, each quoted where a shell wants it."""
    return " ".join(map(quote_word, words))


def command(verb: str, key: Iterable[str], options: str = "") -> str:
    """`sluice VERB KEY OPTIONS`; where a word of the key would be taken for an option, these come first."""
    words = [*key]
    dashed = any(word.startswith("-") for word in words)
    parts = [options, "--", join_words(words)] if dashed else [join_words(words), options]
    return " ".join([f"sluice {verb}", *filter(None, parts)])
