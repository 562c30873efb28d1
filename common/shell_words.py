"""Words of the commands that are shown to people: each as a shell takes it, and no harder to read than it has to be."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from typing import Final

_SPECIAL: Final = re.compile(r"""[\s"'\\$`!*?\[\](){}<>|&;#~]|^$""")  # what a shell does not take as it is
_IN_DOUBLE_QUOTES: Final = re.compile(r"""["\\$`!]""")  # what it does not take as it is between double quotes either


def quoted(word: str) -> str:
    """A word as a shell takes it; letters of other alphabets need no quotes. One with an apostrophe is in double quotes, where these do."""
    if not _SPECIAL.search(word):
        return word
    return f'"{word}"' if "'" in word and not _IN_DOUBLE_QUOTES.search(word) else shlex.quote(word)


def joined(words: Iterable[str]) -> str:
    """Words as one types them, each quoted where a shell wants it."""
    return " ".join(map(quoted, words))
