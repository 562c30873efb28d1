"""Likeness: reading a JSON header by recognising that it is like one that was read before.

The naive way parses each header: 0.75 µs for the 343 bytes a Java producer sends (msgspec, 2026-11, 2 cores, Python 3.11), most of it
spent on stepping over values nobody wants. But a producer's headers differ from one another only in `opaque` and in the text of a few
fields: queue, time of birth, properties. So we keep the last headers that were parsed, cut into what stays and what varies, and compare::

    {"code":310,"extFields":{"a":"g","b":"orders",…,"e":" 2 ","f":"0","g":" 1795247411000 ","h":"0","i":" … "},…,"opaque": 7 ,"version":479}
    └──────────────────── same ────────────────────────┘ └┘ └── same ──┘ └───────────┘ └── same ──┘ └┘ └─ same ──────────┘ └┘ └── same ────┘

This must never find a likeness where the broker would read another topic. The argument: a varying stretch is a row of digits, or the
inside of a JSON string, that is the value of a key without meaning for us. Digits vary into digits. Text varies into text without a quote
and, in the last five bytes before the closing quote, without a backslash or a byte of 0x80 and above: no escape (`\\"`, `\\uXXXX`, `\\xXX`)
and no multi-byte character can then swallow that quote, in any parser, however forgiving. So the new header has the tokens of the old one,
in the same order, with other values in places that do not matter; all that matters is compared byte by byte. Whatever is not provably
alike is parsed.

What it costs: a quarter of the parsing when compiled; some 1.5 kB for each of at most REMEMBERED shapes on a connection, LONGEST
twice over if a client wants to do harm; a lesson takes 60 µs (LEARN_EVERY bounds how often).
"""

from __future__ import annotations

import re
from typing import Final

from mypy_extensions import i64

from gateway.protocols.rocketmq.headers import Header

REMEMBERED: Final = 8  # shapes per connection; comparing with one in vain costs 40 ns, parsing 1,100. More topics than that: a guess
LEARN_FIRST: Final = 32  # lessons taken at once: four for each shape to show what varies in it
LEARN_EVERY: Final = 256  # parsed headers between lessons after that: 60 µs / 256 is a fifth of a parse
TAIL: Final = 5  # bytes; the longest escape that can swallow a quote is `\\uXXX"`: backslash, u, three digits
LONGEST: Final = 8192  # bytes; a longer header is parsed each time, or a client could have megabytes kept for it: a guess
SHORT: Final = 16  # bytes; numbers, times and flags are shorter
LARGEST_OPAQUE: Final = 0x7FFF_FFFF  # a Java int
QUOTE: Final = 34
BACKSLASH: Final = 92

MEANINGFUL: Final = frozenset(
    (b"a", b"b", b"m", b"topic", b"producerGroup", b"batch", b"group", b"consumerGroup", b"AccessKey", b"code", b"flag", b"extFields")
)
MEMBER: Final = re.compile(rb'(?<=[{,])"([A-Za-z_]+)":(?:"((?:[^"\\]|\\.)*+)"|([0-9]+)(?=[,}]))')

TEXT: Final = 0  # kinds of what varies
DIGITS: Final = 1
OPAQUE: Final = 2


class Stretch:
    """A value that may vary: where it stands in the header it was found in."""

    __slots__ = ("end", "key", "kind", "start")

    def __init__(self, key: bytes, kind: int, start: int, end: int) -> None:
        self.key = key
        self.kind = kind
        self.start = start
        self.end = end


def find_stretches(text: bytes, opaque: int) -> list[Stretch] | None:
    """All that may vary in the header `text`, in order; None where its opaque cannot be found again. `text` is known to be JSON."""
    found: list[Stretch] = []
    opaques = 0
    for member in MEMBER.finditer(text):
        key = member.group(1)
        digits = member.group(3)
        if key == b"opaque":
            if digits != b"%d" % opaque:
                return None
            opaques += 1
            found.append(Stretch(key, OPAQUE, *member.span(3)))
        elif key not in MEANINGFUL:
            found.append(Stretch(key, DIGITS, *member.span(3)) if digits is not None else Stretch(key, TEXT, *member.span(2)))
    return found if opaques == 1 else None


class Shape:
    """One header taken apart: `same[0] varying[0] same[1] varying[1] … same[n]`."""

    __slots__ = ("header", "kinds", "same", "text", "varying", "widths")

    def __init__(self, text: bytes, header: Header, varying: list[Stretch]) -> None:
        self.text = text
        self.header = header
        self.varying = varying
        self.kinds = [stretch.kind for stretch in varying]
        self.widths = [stretch.end - stretch.start for stretch in varying]  # of the texts that matched last
        self.same: list[bytes] = []
        at = 0
        for stretch in varying:
            self.same.append(text[at : stretch.start])
            at = stretch.end
        self.same.append(text[at:])

    def match(self, data: bytes, start: i64, end: i64) -> i64:
        """The opaque of the header `data[start:end]` if it is like this one, else -1."""
        at: i64 = start
        opaque: i64 = -1
        index: i64 = 0
        same = self.same
        last: i64 = len(same) - 1
        while True:
            segment = same[index]
            after: i64 = at + len(segment)
            if after > end or data[at:after] != segment:
                return -1
            if index == last:
                return opaque if after == end else -1
            kind: i64 = self.kinds[index]
            if kind == TEXT:
                at = self._end_of_text(data, after, end, index)
                if at < 0:
                    return -1
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
                if at == after:
                    return -1
                if kind == OPAQUE:
                    first: i64 = data[after]
                    if number > LARGEST_OPAQUE or (first == 48 and at - after > 1):
                        return -1
                    opaque = number
            index += 1

    def _end_of_text(self, data: bytes, start: i64, end: i64, index: i64) -> i64:
        """Where the quote stands that closes the text beginning at `start`, or -1 where that is not beyond doubt.

        `bytes.find` costs as much as comparing three segments, so a short text is searched byte by byte, and a long one is first
        supposed to be as long as the last at this place.
        """
        at: i64 = start
        near: i64 = start + SHORT
        near = min(near, end)
        while at < near:
            octet: i64 = data[at]
            if octet == QUOTE:
                return at
            if octet == BACKSLASH or octet >= 128:
                break
            at += 1
        width: i64 = self.widths[index]
        at = start + width
        found: i64 = 0
        if at < end:
            found = data[at]
        if found != QUOTE or QUOTE in data[start:at]:
            at = data.find(b'"', start, end)
            if at < 0:
                return -1
            self.widths[index] = at - start
        tail: i64 = at - TAIL
        tail = max(tail, start)
        while tail < at:
            octet = data[tail]
            if octet == BACKSLASH or octet >= 128:
                return -1
            tail += 1
        return at

    def __repr__(self) -> str:
        return f"<Shape {self.header} varies={[self.text[stretch.start : stretch.end] for stretch in self.varying]}>"


class Likenesses:
    """The shapes one connection's headers have had lately; the latest first."""

    __slots__ = ("lessons", "opaque", "parsed", "shapes")

    def __init__(self) -> None:
        self.shapes: list[Shape] = []
        self.opaque: i64 = 0  # of the header that was recognised last
        self.parsed = 0  # headers since the last lesson
        self.lessons = 0

    def recognise(self, data: bytes, start: i64, end: i64) -> Header | None:
        """What the header `data[start:end]` says, `opaque` aside, or None: it must be parsed."""
        for shape in self.shapes:
            opaque: i64 = shape.match(data, start, end)
            if opaque >= 0:
                self.opaque = opaque
                return shape.header
        return None

    def learn(self, text: bytes, header: Header) -> None:
        """Remember `text`, which was parsed and means `header`; from two of a kind it shows what varies."""
        self.parsed += 1
        if len(text) > LONGEST:
            return
        if self.lessons >= LEARN_FIRST and self.parsed < LEARN_EVERY:
            return
        self.parsed = 0
        self.lessons += 1
        stretches = find_stretches(text, header.opaque)
        if stretches is None:
            return
        varying = {b"opaque"}
        for shape in self.shapes:
            if means_the_same(shape.header, header):
                old = find_stretches(shape.text, shape.header.opaque)
                if old is not None and [(one.key, one.kind) for one in old] == [(one.key, one.kind) for one in stretches]:
                    varying |= {stretch.key for stretch in shape.varying}
                    varying |= {
                        one.key
                        for one, other in zip(stretches, old, strict=True)
                        if text[one.start : one.end] != shape.text[other.start : other.end]
                    }
                    self.shapes.remove(shape)
                    break
        self.shapes.insert(0, Shape(text, header, [stretch for stretch in stretches if stretch.key in varying]))
        del self.shapes[REMEMBERED:]


def means_the_same(one: Header, other: Header) -> bool:
    return (
        one.topic == other.topic
        and one.source == other.source
        and one.code == other.code
        and one.group == other.group
        and one.user == other.user
        and one.flag == other.flag
        and one.batch == other.batch
    )
