"""Layouts: what stays in headers that are alike, and what may vary between; why that proves anything: `header_templates`.

`match_layout` is written a second time in C (`layouts.c`), and that is what compiled code calls (`deploy/packaging/native.py`): it looks at
each octet of each header, 350 of a send of the Java client, in 650 instructions where mypyc's took 1,040. This one is the meaning of it:
`tests/gateway/protocols/rocketmq/test_layouts.py` holds both to the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from librt.strings import read_i64_le
from mypy_extensions import i64

from common.octets import are_equal, find_quote, u32

TAIL: Final = 0xFF_FFFF_FFFF  # five bytes; the longest escape that can swallow a quote is `\\uXXX"`: backslash, u, three digits
BACKSLASHES: Final = 0x5C_5C5C_5C5C
LOW_BITS: Final = 0x7F_7F7F_7F7F
HIGH_BITS: Final = 0x80_8080_8080
MAX_OPAQUE: Final = 0x7FFF_FFFF  # a Java int
ZERO: Final = 48
WORD: Final = 8  # octets

TEXT: Final = 0  # kinds of what varies
DIGITS: Final = 1
OPAQUE: Final = 2
NAME: Final = 3  # of the topic
END: Final = 4  # nothing: the header is over
KIND: Final = 7
SIZE_SHIFT: Final = 3  # of a step of the plan, which has the kind below
STEP: Final = 4  # octets

PLACE_SHIFT: Final = 31  # of what `match_layout` finds: opaque, and above it the place of the name
PLACE: Final = 0x3_FFFF
LENGTH_SHIFT: Final = 49
MAX_LENGTH: Final = 0x3FFF

MAX_SHARED_LAYOUTS: Final = 256  # by all connections; what many clients of one kind send is kept once: a guess
MAX_SHARED_BYTES: Final = 1024  # of the octets of one that is shared: a guess
shared: Final[dict[tuple[bytes, ...], Layout]] = {}


class Layout:
    """Headers that are alike: `segment varying segment varying … segment`. It never changes."""

    __slots__ = ("kinds", "plan", "text")

    def __init__(self, segments: tuple[bytes, ...], kinds: bytes) -> None:
        self.text = b"".join(segments)
        self.kinds = kinds  # of the varying values
        steps = zip(segments, (*kinds, END), strict=True)
        self.plan = b"".join([(len(segment) << SIZE_SHIFT | kind).to_bytes(STEP, "big") for segment, kind in steps])

    def segments(self) -> Iterator[tuple[bytes, int]]:
        """Each segment, and the kind of what follows it."""
        start = 0
        for at in range(0, len(self.plan), STEP):
            step = int.from_bytes(self.plan[at : at + STEP], "big")
            end = start + (step >> SIZE_SHIFT)
            yield self.text[start:end], step & KIND
            start = end

    def __repr__(self) -> str:
        return f"<Layout {list(self.segments())}>"


def find_layout(segments: tuple[bytes, ...], kinds: bytes) -> Layout:
    """The layout of these, or the very object another template has: less memory, and what all compare with stays in the cache."""
    if sum(map(len, segments)) > MAX_SHARED_BYTES:
        return Layout(segments, kinds)
    place = (kinds, *segments)
    found = shared.get(place)
    if found is None:
        if len(shared) >= MAX_SHARED_LAYOUTS:
            shared.clear()  # templates keep theirs
        found = shared[place] = Layout(segments, kinds)
    return found


def find_end_of_text(data: bytes, start: i64, end: i64) -> i64:
    """Where the quote stands that closes the text beginning at `start`, or -1 where that is not beyond doubt."""
    at: i64 = find_quote(data, start, end)
    # Where the text is shorter than its tail, what is before it was compared and has none of these either.
    if at < WORD:  # there is none; or never in a frame
        return -1
    tail: i64 = read_i64_le(data, at - WORD) >> 24 & TAIL
    if tail & HIGH_BITS or ((tail ^ BACKSLASHES) + LOW_BITS) & HIGH_BITS != HIGH_BITS:
        return -1
    return at


# ---- also in C -------------------------------------------------------------------------------------------------------


def match_layout(plan: bytes, text: bytes, data: bytes, start: i64, end: i64) -> i64:
    """The opaque of the header `data[start:end]` if it fits a layout's plan and text, else -1.

    Where the topic varies: beside it its place from `start` on (PLACE_SHIFT) and its length (LENGTH_SHIFT).
    """
    at: i64 = start
    opaque: i64 = -1
    step: i64 = 0
    place: i64 = 0  # of the segment in `text`
    name: i64 = 0
    if start < 0 or end > len(data):
        return -1
    while True:
        kind: i64 = u32(plan, step)
        size: i64 = kind >> SIZE_SHIFT
        after: i64 = at + size
        if after > end or not are_equal(data, at, text, place, size):
            return -1
        place += size
        step += STEP
        kind &= KIND
        if kind == END:
            return opaque | name if after == end and opaque >= 0 else -1
        if kind == TEXT:
            at = find_end_of_text(data, after, end)
            if at < 0:
                return -1
        elif kind == NAME:
            at = find_quote(data, after, end)
            if at < 0 or after - start > PLACE or at - after > MAX_LENGTH:
                return -1
            name = after - start << PLACE_SHIFT | at - after << LENGTH_SHIFT
        else:
            number: i64 = 0
            at = after
            while at < end:
                digit: i64 = data[at]
                if digit < 48 or digit > 57:
                    break
                number = number * 10 + digit - 48
                at += 1
                if at - after > 18:
                    return -1
            if at == after or (data[after] == ZERO and at - after > 1):  # a parser would refuse it
                return -1
            if kind == OPAQUE:
                if number > MAX_OPAQUE:
                    return -1
                opaque = number
