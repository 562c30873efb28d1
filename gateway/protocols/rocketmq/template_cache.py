"""Template cache: a JSON header is matched with those read before, and parsed only where it matches none.

A connection's headers fit few templates (`header_templates.py`): one for each request code, group and client library on it, however many
topics it has. So the latest templates are kept and tried in turn. A header that matches none is parsed, and some of those parsed are
learned.

Learning one takes 60 µs (LEARN_EVERY bounds how often), and two or three headers until it is known what varies: more than all else of a
client that comes for ten messages. So what one connection has learned is `known` to all: another one takes it over with the first header
that matches it, or learns from the two what varies. A template says nothing of its connection, and the parser has agreed each time.

Bound: at most 64 KiB a connection, if a client wants to do harm, and 4 MiB of what is known; usually half a kB for each template, beside
what it shares.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from mypy_extensions import i64

from gateway.protocols.rocketmq.header_templates import (
    HeaderTemplate,
    find_varying_fields,
    key_of_topic,
    means_the_same,
    name_is_free,
    with_topic,
)
from gateway.protocols.rocketmq.headers import Header
from gateway.protocols.rocketmq.layouts import NAME, OPAQUE
from limiter.keys import Origin

MAX_TEMPLATES: Final = 8  # per connection; comparing with one in vain costs 40 ns, parsing 1,100. Groups and codes on one: a guess
MAX_VARYING_FIELDS: Final = 16  # of one template; a header with more is not learned; clients' requests vary in eight at most: a guess
LEARN_FIRST: Final = 32  # parsed headers all learned from: four for each template to show what varies in it
LEARN_EVERY: Final = 256  # parsed headers from one learned to the next, after that: 60 µs / 256 is a fifth of a parse
MAX_KNOWN: Final = 256  # meanings, topics aside, of which templates are known: groups times codes of a gateway's clients; a guess
MAX_ALIKE: Final = 2  # known templates of one meaning: two versions of a client; a guess
MAX_TEMPLATE_BYTES: Final = 8192  # of the headers all templates of a connection were made of; a longer one is always parsed: a guess

Meaning = tuple[int, bytes, bytes, int, bool, bool]  # of a header, but for its topic

known: Final[OrderedDict[Meaning, list[HeaderTemplate]]] = OrderedDict()  # of all connections; the meaning used last comes last


class TemplateCache:
    """The templates of one connection, the latest first."""

    __slots__ = ("learned", "matched", "opaque", "parsed", "templates")

    def __init__(self) -> None:
        self.templates: list[HeaderTemplate] = []
        self.opaque: i64 = 0  # of the header that matched last
        self.matched: HeaderTemplate | None = None  # which it matched
        self.parsed = 0  # headers since the last one learned
        self.learned = 0

    def match(self, data: bytes, start: i64, end: i64, origin: Origin | None = None) -> Header | None:
        """What the header `data[start:end]` says, `opaque` aside, or None: it must be parsed. Of noted keys, those of `origin` hold.

        Where `matched` has a `key`, the header's topic is that of the key, and all else is as here.
        """
        for template in self.templates:
            opaque: i64 = template.match(data, start, end, origin)
            if opaque >= 0:
                self.opaque = opaque
                self.matched = template
                return template.header
        return None

    def forget_keys(self) -> None:
        """Topics may have other keys now."""
        for template in self.templates:
            template.forget_keys()

    def learn(self, text: bytes, header: Header) -> None:
        """Remember `text`, which was parsed and means `header`; two of a kind show what varies."""
        self.parsed += 1
        if len(text) > MAX_TEMPLATE_BYTES:
            return
        if self.learned >= LEARN_FIRST and self.parsed < LEARN_EVERY:
            return
        self.parsed = 0
        self.learned += 1
        alike = _known_to_mean(header)
        template = _find_match(alike, text, header) or self._learn(text, header, alike)
        if template is not None:
            self.templates.insert(0, template)
            while len(self.templates) > MAX_TEMPLATES or sum([template.size for template in self.templates]) > MAX_TEMPLATE_BYTES:
                self.templates.pop()

    def _learn(self, text: bytes, header: Header, alike: list[HeaderTemplate]) -> HeaderTemplate | None:
        """A template of `text`, which serves what it takes the place of as well, here and among those `alike`; None: too much varies."""
        key_of_name = key_of_topic(header.code)
        fields = find_varying_fields(text, header.opaque, key_of_name)
        if fields is None:
            return None
        free = name_is_free(text, header, fields)
        if not free:
            key_of_name = b""
            fields = [field for field in fields if field.kind != NAME]
        cut = [field for field in fields if field.kind == OPAQUE]
        like: HeaderTemplate | None = None
        own = len(self.templates)
        for number, template in enumerate([*self.templates, *alike]):
            if not means_the_same(template.header, with_topic(header, template.name) if free else header):
                continue
            specimen, places = template.build_specimen()
            old = find_varying_fields(specimen, 0, key_of_name)
            if old is not None and [(one.key, one.kind) for one in old] == [(one.key, one.kind) for one in fields]:
                varying = {
                    one.key
                    for one, other in zip(fields, old, strict=True)
                    if other.start in places or text[one.start : one.end] != specimen[other.start : other.end]
                }
                found = [field for field in fields if field.key in varying or field.kind == OPAQUE]
                if len(found) <= MAX_VARYING_FIELDS:
                    cut = found
                    like = template
                    break
                if number < own:
                    return None  # another connection's may be made to differ
        if like is not None:
            for templates in (self.templates, alike):
                templates[:] = [one for one in templates if one.layout is not like.layout]
        learned = HeaderTemplate(text, header, cut)
        alike.insert(0, _copy(learned, header))
        del alike[MAX_ALIKE:]
        return learned


def _known_to_mean(header: Header) -> list[HeaderTemplate]:
    """The templates known of headers that mean what `header` does, topics aside; the latest first."""
    meaning = (header.code, header.group, header.user, header.flag, header.batch, header.source == b"")
    found = known.get(meaning)
    if found is None:
        found = known[meaning] = []
        if len(known) > MAX_KNOWN:
            known.popitem(last=False)
    else:
        known.move_to_end(meaning)
    return found


def _find_match(alike: list[HeaderTemplate], text: bytes, header: Header) -> HeaderTemplate | None:
    """A copy of that which the header `text` matches, which was parsed and means `header`."""
    for template in alike:
        if template.match(text, 0, len(text)) >= 0 and means_the_same(template.header, header):
            return _copy(template, header)
    return None


def _copy(template: HeaderTemplate, header: Header) -> HeaderTemplate:
    """The same template for another connection, which has met `header`: its keys and its last topic are its own."""
    copy = HeaderTemplate(b"", header, [])
    copy.size = template.size
    copy.layout = template.layout
    return copy
