"""Header templates: a JSON header taken apart into what stays and what varies, so that others like it need no parser.

The naive way parses each header: 0.75 µs for the 343 bytes a Java producer sends (msgspec, 2026-11, 2 cores, Python 3.11), most of it
spent on stepping over values nobody wants. But a producer's headers differ from one another only in `opaque` and in the text of a few
fields: queue, time of birth, properties, and topic, where it writes to several. So we keep a header that was parsed, cut into what
stays and what varies, and compare::

    {"code":310,"extFields":{"a":"g","b":"orders",…,"e":" 2 ","f":"0","g":" 1795247411000 ","h":"0","i":" … "},…,"opaque": 7 ,"version":479}
    └──────────────────── same ────────────────────────┘ └┘ └── same ──┘ └───────────┘ └── same ──┘ └┘ └─ same ──────────┘ └┘ └── same ────┘

A template must never match a header in which the broker would read another topic. The argument: a varying field is a row of digits, or the
inside of a JSON string, that is the value of a key without meaning for us. Digits vary into digits. Text varies into text without a quote
and, in the last five bytes before the closing quote, without a backslash or a byte of 0x80 and above: no escape (`\\"`, `\\uXXXX`, `\\xXX`)
and no multi-byte character can then swallow that quote, in any parser, however forgiving. So the new header has the tokens of the old one,
in the same order, with other values in places that do not matter; all that matters is compared byte by byte. A header that is not
provably alike is parsed.

The topic matters, but may vary too: once a second one is met, the template of the first serves both, and any other. Its text then is
cut out and put into a copy of the template's meaning. It must be the only value with its key, and the parser must have agreed:
with another text put in its place, the header must mean that topic and be otherwise the same (`name_is_free`). So the field is where
the topic is read from, whatever nested or doubled members are around it. Only printable ASCII without quote and backslash is taken for a
topic: every parser reads these as they stand.

A header costs an eighth of its parsing when compiled. A topic that is not the last one's adds a look into a table of keys
(`limiter.recent_keys`); where it is not there, a look at each of its octets and a new Header.
"""

from __future__ import annotations

import re
from typing import Final

from mypy_extensions import i64

from common.octets import begins
from gateway.pipeline.errors import ProtocolError
from gateway.protocols.rocketmq.headers import CONSUMES, LONG_NAMES, MAX_NAME_BYTES, RETRY, SHORT_NAMES, Header, read_json
from gateway.protocols.rocketmq.layouts import (
    DIGITS,
    END,
    LENGTH_SHIFT,
    MAX_OPAQUE,
    NAME,
    OPAQUE,
    PLACE,
    PLACE_SHIFT,
    TEXT,
    find_layout,
    match_layout,
)
from limiter.keys import Key, Origin
from limiter.recent_keys import RecentKeys, recent_of_group

QUOTE: Final = 34
BACKSLASH: Final = 92

MEANINGFUL: Final = frozenset(
    (b"a", b"b", b"m", b"topic", b"producerGroup", b"batch", b"group", b"consumerGroup", b"AccessKey", b"code", b"flag", b"extFields")
)
MEMBER: Final = re.compile(rb'(?<=[{,])"([A-Za-z_]+)":(?:"((?:[^"\\]|\\.)*+)"|([0-9]+)(?=[,}]))')

PROBE: Final = b"probe-0"  # a topic to ask the parser with; it refuses some headers that have "-0" anywhere


class VaryingField:
    """A value that may vary: where it stands in the header it was found in."""

    __slots__ = ("end", "key", "kind", "start")

    def __init__(self, key: bytes, kind: int, start: int, end: int) -> None:
        self.key = key
        self.kind = kind
        self.start = start
        self.end = end


def key_of_topic(code: int) -> bytes:
    """The key by which a request names the topic it writes to or reads from; b"" where no topic may vary."""
    if code in SHORT_NAMES:
        return b"b"
    return b"topic" if code in LONG_NAMES or code in CONSUMES else b""


def find_varying_fields(text: bytes, opaque: int, key_of_name: bytes) -> list[VaryingField] | None:
    """All that may vary in the header `text`, in order; None where its opaque cannot be found again. `text` is known to be JSON."""
    found: list[VaryingField] = []
    opaques = 0
    for member in MEMBER.finditer(text):
        key = member.group(1)
        digits = member.group(3)
        if key == b"opaque":
            if digits != b"%d" % opaque:
                return None
            opaques += 1
            found.append(VaryingField(key, OPAQUE, *member.span(3)))
        elif key == key_of_name and digits is None:
            found.append(VaryingField(key, NAME, *member.span(2)))
        elif key not in MEANINGFUL:
            found.append(VaryingField(key, DIGITS, *member.span(3)) if digits is not None else VaryingField(key, TEXT, *member.span(2)))
    return found if opaques == 1 else None


def name_is_free(text: bytes, header: Header, fields: list[VaryingField]) -> bool:
    """Whether another topic may stand in the header `text`: the parser must read it from there, and all else as before."""
    names = [field for field in fields if field.kind == NAME]
    if len(names) != 1:
        return False
    name = names[0]
    if b"\\" in text[name.start : name.end]:
        return False  # a name is compared as it means, and would match octets that mean another
    try:
        probed = read_json(text[: name.start] + PROBE + text[name.end :])
    except ProtocolError:
        return False
    return means_the_same(probed, with_topic(header, PROBE)) and probed.opaque == header.opaque


def with_topic(header: Header, name: bytes) -> Header:
    """What `header` would mean with another topic."""
    if header.source:
        return Header(header.flag, header.opaque, b"", header.group, header.batch, header.code, header.user, name)
    return Header(header.flag, header.opaque, name, header.group, header.batch, header.code, header.user)


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


class HeaderTemplate:
    """One header taken apart.

    `header` is what it means; where the topic varies, what the header that matched last means. The header itself is not kept:
    `build_specimen` is one like it.
    """

    __slots__ = ("_keys", "_origin", "_own_key", "_renamed", "header", "key", "layout", "name", "size")

    def __init__(self, text: bytes, header: Header, varying: list[VaryingField]) -> None:
        self.size = len(text)
        self.header = header
        self.name = header.source or header.topic
        self.key: Key | None = None  # of the topic that the last header named, where it was noted; then `header` may name another
        self._origin: Origin | None = None  # whose keys are noted
        self._own_key: Key | None = None  # of `name`
        self._keys: RecentKeys | None = None  # of the topics of its origin, operation and group, once there are several
        self._renamed = False  # there have been
        starts = [0, *[field.end for field in varying]]
        ends = [*[field.start for field in varying], len(text)]
        segments = tuple([text[start:end] for start, end in zip(starts, ends, strict=True)])
        self.layout = find_layout(segments, bytes([field.kind for field in varying]))

    def build_specimen(self) -> tuple[bytes, set[int]]:
        """A header like this one, with opaque 0, and where in it the varying fields begin."""
        text = b""
        places: set[int] = set()
        for segment, kind in self.layout.segments():
            text += segment
            if kind != END:
                places.add(len(text))
                text += self.name if kind == NAME else b"" if kind == TEXT else b"0"
        return text, places

    def note(self, key: Key) -> None:
        """The topic of `header`, which has just matched, has `key` for all who send such headers."""
        if key.origin is not self._origin:
            self._origin = key.origin
            self._keys = None
        self._own_key = key
        if self._keys is None and self._renamed:
            self._keys = recent_of_group(key)
        name = self.name
        if self._keys is not None and key.name.topic == name and find_end_of_name(name + b'"', 0, len(name) + 1) >= 0:
            self._keys.note(name, key)

    def recent_keys(self, origin: Origin) -> RecentKeys | None:
        """The keys of the topics that vary in such headers, where they are noted for `origin`."""
        return self._keys if origin is self._origin else None

    def forget_keys(self) -> None:
        """Topics may have other keys now."""
        self.key = self._own_key = self._keys = self._origin = None

    def match(self, data: bytes, start: i64, end: i64, origin: Origin | None = None) -> i64:
        """The opaque of the header `data[start:end]` if it is like this one, else -1. `origin`: whose keys are good for `key`."""
        layout = self.layout
        found: i64 = match_layout(layout.plan, layout.text, data, start, end)
        if found < 0:
            return -1
        opaque: i64 = found & MAX_OPAQUE
        keyed = origin is not None and origin is self._origin
        if found > MAX_OPAQUE:
            name_at: i64 = start + (found >> PLACE_SHIFT & PLACE)
            name_end: i64 = name_at + (found >> LENGTH_SHIFT)
            keys = self._keys if keyed else None
            if keys is not None:
                self.key = keys.find(data, name_at, name_end)
                if self.key is not None:
                    return opaque
            name = self.name
            if name_end - name_at != len(name) or not begins(data, name_at, name):
                self.key = None
                plain = find_end_of_name(data, name_at, end) == name_end
                return opaque if plain and self._rename(data[name_at:name_end]) else -1
        self.key = self._own_key if keyed else None
        return opaque

    def _rename(self, name: bytes) -> bool:
        """From now on mean the topic `name`; False where more than the topic would change by it."""
        if name.startswith(RETRY) and not self.header.source:
            return False
        self.header = with_topic(self.header, name)
        self.name = name
        self._own_key = None
        self._renamed = True
        return True

    def __repr__(self) -> str:
        return f"<HeaderTemplate {self.header} like={self.build_specimen()[0]!r}>"


def find_end_of_name(data: bytes, start: i64, end: i64) -> i64:
    """Where the quote stands that closes the topic beginning at `start`, or -1 where it is not one that every parser reads alike."""
    at: i64 = start
    furthest: i64 = start + MAX_NAME_BYTES + 1
    furthest = min(furthest, end)
    while at < furthest:
        octet: i64 = data[at]
        if octet == QUOTE:
            return at if at > start else -1
        if octet == BACKSLASH or octet < 32 or octet >= 127:
            return -1
        at += 1
    return -1
