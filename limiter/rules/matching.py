"""Matching: a rule's `match`, compiled. It is compared with a `Subject`."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from limiter.protocols import DEFAULT_EXCHANGE, PROTOCOL_NAMES, protocol_of_level
from limiter.rules.anchors import NETWORK, Anchor, anchors_of, network_text
from limiter.rules.match import MATCH_KEYS
from limiter.rules.patterns import (
    EXACT,
    Addresses,
    Pattern,
    client_network,
    name_pattern,
    plain_address,
    routing_key_pattern,
)
from limiter.rules.rows import NAME, WORDS
from limiter.rules.subject import encode

if TYPE_CHECKING:
    from limiter.rules.match import Match
    from limiter.rules.subject import Subject
    from limiter.topics import TopicName

# The match fields that a level's thing determines: a rule with no other field gives each thing one limit.
SETTLED_BY: Final[dict[str, tuple[str, ...]]] = {
    "topic": ("protocol", *(field for names in PROTOCOL_NAMES.values() for field in names.topic_fields)),
    "listener": ("protocol", "listener"),
    "client": ("client",),
    "user": ("user",),
    "connection": ("protocol", "listener", "client", "vhost"),  # not the user: a RocketMQ connection may have several
    "rule": (),
    **{per: ("protocol", *fields) for names in PROTOCOL_NAMES.values() for per, fields in names.levels.items()},
}


class Matcher:
    """One rule's match, compiled."""

    __slots__ = (
        "_client", "_fields", "_listeners", "_operations", "_patterns", "_protocol", "bare", "exact_thing", "exact_topic", "narrows",
    )  # fmt: skip

    def __init__(self, match: Match, per: str) -> None:
        self._protocol = protocol_of_level(per) or match.spoken()
        self._operations = match.operations()
        self._listeners = tuple([name_pattern(name) for name in match.listeners()])  # none: any
        self._client = None if match.client is None else Addresses(match.client)
        given = match.given()
        patterns = {
            MATCH_KEYS[name].subject: pattern_of(name, match.text_of(name)) for name in given if MATCH_KEYS[name].kind in {NAME, WORDS}
        }
        if match.queue is not None:
            patterns["exchange"] = name_pattern("")
        self._fields = intern_fields(tuple(patterns))  # of the subject, each of which must meet its pattern
        self._patterns = tuple(patterns.values())
        # Names only the protocol, the operation and (where that is not the level's own thing) the listener: the default of its level.
        self.bare = all(name in {"protocol", "operation"} or (name == "listener" and per != "listener") for name in given)
        # One thing can meet this rule or another of the same level, depending on the sender: the rule then has buckets of its own.
        self.narrows = any(name not in SETTLED_BY[per] for name in given)
        self.exact_topic = self._exact_topic()
        self.exact_thing = self._exact_thing(per)

    def _exact_topic(self) -> tuple[str, str, str, str] | None:
        """(protocol, vhost or "*", exchange, topic) where the rule names the key exactly; a virtual host left out is any."""
        protocol, topic, exchange, vhost = self._protocol, self.pattern("topic"), self.pattern("exchange"), self.pattern("vhost")
        if protocol is None or topic is None or topic.kind != EXACT:
            return None
        if len(PROTOCOL_NAMES[protocol].topic_parts) == 1:
            return protocol, "", "", topic.text
        if exchange is None or exchange.kind != EXACT:
            return None
        if vhost is None:
            return protocol, "*", exchange.text, topic.text
        return (protocol, vhost.text, exchange.text, topic.text) if vhost.kind == EXACT else None

    def _exact_thing(self, per: str) -> str | None:
        """The thing of its level that the rule names exactly (an exchange in any virtual host: `*/name`); None: none, or several."""
        if per == "topic":
            return None
        if per == "client":
            return plain_address(self._client.host()) if self._client is not None and self._client.single else None
        pattern = self.pattern(per)
        if per == "listener":
            pattern = self._listeners[0] if len(self._listeners) == 1 else None
        if pattern is None or pattern.kind != EXACT:
            return None
        if per == "exchange":
            vhost = self.pattern("vhost")
            if vhost is not None and vhost.kind != EXACT:
                return None
            return f"{'*' if vhost is None else encode(vhost.text)}/{encode(pattern.text or DEFAULT_EXCHANGE)}"
        return encode(pattern.text) if per == "vhost" else pattern.text

    def client_network(self, client: str, length: int) -> str:
        """The client that `client` counts as: its IPv6 network of that `length`, unless the rule names the address alone."""
        return client if self._client is not None and self._client.single else client_network(client, length)

    def cuts(self, length: int) -> bool:
        """Whether the rule is for a part of an IPv6 network of that `length`: others of its addresses meet another rule."""
        if self._client is None or self._client.single:
            return False
        version, own, _ = self._client.network()
        return version == 6 and own > length

    def pattern(self, field: str) -> Pattern | None:
        """What a field of the subject must meet; None: anything."""
        return self._patterns[self._fields.index(field)] if field in self._fields else None

    def fields(self) -> tuple[str, ...]:
        """The fields of the subject that must meet a pattern."""
        return self._fields

    def anchors(self) -> list[Anchor]:
        """The anchors that a subject must have to match. Not the listener: while it is unknown it meets every rule."""
        found: list[Anchor] = []
        if self._client is not None:
            version, length, bits = self._client.network()
            found.append(("client", NETWORK, network_text(version, length, bits)))
        for field, pattern in zip(self._fields, self._patterns, strict=True):
            found += anchors_of(field, pattern)
        return found

    def texts(self) -> dict[str, str | None]:
        """Each field's pattern as it is written; of a network its first address. They have all anchors of a match that covers this one."""
        found: dict[str, str | None] = {}
        if self._client is not None:
            found["client"] = self._client.host()
        for field, pattern in zip(self._fields, self._patterns, strict=True):
            found[field] = pattern.text
        return found

    def matches(self, subject: Subject) -> bool:
        """Whether the rule is for `subject`. A field unknown of it (None) meets only rules that do not name it, the listener excepted."""
        if self._protocol is not None and self._protocol != subject.name.protocol:
            return False
        if subject.operation not in self._operations:
            return False
        if subject.system and self.exact_topic is None:
            return False
        if self._listeners:
            listener = subject.sender.listener
            if listener is not None and not any_matches(self._listeners, listener):
                return False
        if self._client is not None and (subject.client is None or not self._client.matches(subject.client)):
            return False
        for at in range(len(self._fields)):
            name = subject.field(self._fields[at])
            if name is None or not self._patterns[at].matches(name):
                return False
        return True


@lru_cache(maxsize=256)
def intern_fields(fields: tuple[str, ...]) -> tuple[str, ...]:
    """`fields`, the very same for all rules that name these."""
    return fields


def pattern_of(name: str, text: str) -> Pattern:
    """The pattern that the key `name` of a match has as `text`."""
    if name == "exchange" and text == DEFAULT_EXCHANGE:
        return name_pattern("")
    return routing_key_pattern(text) if MATCH_KEYS[name].kind == WORDS else name_pattern(text)


def group_text(group: TopicName) -> str:
    """A group's name as text: its last word stays `#`, which no topic's text has (it would be %23)."""
    return group.text().removesuffix("%23") + "#"


def any_matches(patterns: tuple[Pattern, ...], name: str) -> bool:
    return any(pattern.matches(name) for pattern in patterns)
