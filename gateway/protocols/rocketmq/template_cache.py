"""Likeness: reading a JSON header by recognising that it is like one that was read before.

A connection's headers are of few shapes (`header_templates.py`): one for each request code, group and client library on it, however many
topics it has. So we keep the last shapes and try them in turn; a header that fits none is parsed, and some of those parsed are learned.

Bound: at most 64 KiB a connection, if a client wants to do harm; half a kB for each shape usually, beside what it shares. A lesson takes
60 µs (LEARN_EVERY bounds how often).
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from gateway.protocols.rocketmq.header_templates import NAME, Shape, find_stretches, key_of_topic, means_the_same, name_is_free, named
from gateway.protocols.rocketmq.headers import Header

REMEMBERED: Final = 8  # shapes per connection; comparing with one in vain costs 40 ns, parsing 1,100. Groups and codes on one: a guess
MOST_VARYING: Final = 16  # stretches of one shape; honest clients' requests vary in eight at most. With more it is not learned: a guess
LEARN_FIRST: Final = 32  # lessons taken at once: four for each shape to show what varies in it
LEARN_EVERY: Final = 256  # parsed headers between lessons after that: 60 µs / 256 is a fifth of a parse
LONGEST: Final = 8192  # bytes of all the headers a connection's shapes were made of; a longer one is parsed each time: a guess


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
        key_of_name = key_of_topic(header.code)
        stretches = find_stretches(text, header.opaque, key_of_name)
        if stretches is None:
            return
        free = name_is_free(text, header, stretches)
        if not free:
            key_of_name = b""
            stretches = [stretch for stretch in stretches if stretch.kind != NAME]
        varying = {b"opaque"}
        like: Shape | None = None
        for shape in self.shapes:
            if not means_the_same(shape.header, named(header, shape.name) if free else header):
                continue
            specimen, places = shape.specimen()
            old = find_stretches(specimen, 0, key_of_name)
            if old is not None and [(one.key, one.kind) for one in old] == [(one.key, one.kind) for one in stretches]:
                varying |= {
                    one.key
                    for one, other in zip(stretches, old, strict=True)
                    if other.start in places or text[one.start : one.end] != specimen[other.start : other.end]
                }
                like = shape
                break
        cut = [stretch for stretch in stretches if stretch.key in varying]
        if len(cut) > MOST_VARYING:
            return
        if like is not None:
            self.shapes.remove(like)
        self.shapes.insert(0, Shape(text, header, cut))
        while len(self.shapes) > REMEMBERED or sum([shape.size for shape in self.shapes]) > LONGEST:
            self.shapes.pop()
