"""Anchors: the literal parts of patterns, by which the rule index files them (`limiter.rules.index`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from limiter.rules.patterns import Pattern

Anchor = tuple[str, str, str]  # field of the subject, kind, literal text

EXACT: Final = "exact"
PREFIX: Final = "prefix"
SUFFIX: Final = "suffix"
WORD: Final = "word"
GRAM: Final = "gram"
NETWORK: Final = "network"
GRAM_LENGTH: Final = 3  # characters; a name of 255 has 253 grams: few look-ups, and few names share a gram by chance


def anchors_of(field: str, pattern: Pattern) -> list[Anchor]:
    """All anchors that a name must have to match `pattern`."""
    exact = pattern.exact()
    if exact is not None:
        return [(field, EXACT, exact)]
    found = [(field, kind, literal) for kind, literal in ((PREFIX, pattern.prefix()), (SUFFIX, pattern.suffix())) if literal]
    found += [(field, WORD, word) for word in pattern.literal_words()]
    for chunk in pattern.chunks():
        found += [(field, GRAM, gram) for gram in grams(chunk)]
    return found


def grams(text: str) -> list[str]:
    return [text[at : at + GRAM_LENGTH] for at in range(len(text) - GRAM_LENGTH + 1)]


def network_text(version: int, length: int, bits: int) -> str:
    """A network as an anchor: the first `length` of an address's `bits`."""
    return f"{version}/{length}/{bits >> ((32 if version == 4 else 128) - length)}"
