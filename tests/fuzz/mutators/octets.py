"""Mutations of octets that know of no structure, in plain Python, quick enough for a million a minute."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

NUMBERS = [
    number.to_bytes(size, order)
    for size in (1, 2, 4, 8)
    for number in sorted(
        {0, 1, 127 % 2 ** (8 * size), 2 ** (8 * size - 1) - 1, 2 ** (8 * size - 1), 2 ** (8 * size) - 1, 2 ** (8 * size) - 2}
    )
    for order in ("big", "little")
]


def below(luck: Random, most: int) -> int:
    """A number from 0 up to `most`, exclusive; quicker than randrange."""
    return int(luck.random() * most)


def mutate(data: bytes, luck: Random, words: Sequence[bytes] = ()) -> bytes:
    """`data` with one to five injuries; `words` may be put in."""
    out = bytearray(data)
    for _ in range(1 + int(luck.random() ** 3 * 5)):
        size = len(out)
        at = int(luck.random() * (size + 1))
        end = at + 1 + int(luck.random() ** 4 * 60)
        what = int(luck.random() * 10)
        if what == 0 and size:
            out[at % size] ^= 1 << int(luck.random() * 8)
        elif what == 1 and size:
            out[at % size] = int(luck.random() * 256)
        elif what == 2:
            del out[at:end]
        elif what == 3:
            out[at:at] = out[at:end]
        elif what == 4:
            out[at:at] = luck.randbytes(1 + int(luck.random() ** 3 * 20))
        elif what == 5:
            word = NUMBERS[int(luck.random() * len(NUMBERS))]
            out[at : at + len(word)] = word
        elif what == 6 and words:
            out[at:at] = words[int(luck.random() * len(words))]
        elif what == 7 and words:
            out[at:end] = words[int(luck.random() * len(words))]
        elif what == 8:
            to = int(luck.random() * (size + 1))
            out[to:to] = out[at:end]
        elif size:
            at %= size
            out[at] = out[at] + int(luck.random() * 33) - 16 & 255
    return bytes(out)


def splice(one: bytes, other: bytes, luck: Random) -> bytes:
    """The beginning of one and the end of the other."""
    return one[: below(luck, len(one) + 1)] + other[below(luck, len(other) + 1) :]
