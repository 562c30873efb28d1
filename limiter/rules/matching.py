"""Matching: a rule's `match`, compiled. It is compared with a `Subject`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from limiter.protocols import DEFAULT_EXCHANGE, PROTOCOL_NAMES, protocol_of_level
from limiter.rules.anchors import NETWORK, Anchor, anchors_of, network_text
from limiter.rules.patterns import (
    EXACT,
    Addresses,
    Pattern,
    client_network,
    name_pattern,
    plain_address,
    routing_key_pattern,
)
from limiter.rules.subject import Subject, encoded

if TYPE_CHECKING:
    from limiter.rules.rule import Match
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
        "_client", "_exchange", "_group", "_listeners", "_namespace", "_operation", "_protocol", "_topic", "_user", "_vhost", "bare",
        "exact_thing", "exact_topic", "narrows",
    )  # fmt: skip

    def __init__(self, match: Match, per: str) -> None:
        self._protocol = protocol_of_level(per) or match.spoken()
        self._operation = match.operation or "produce"
        self._listeners = [name_pattern(name) for name in match.listeners()]  # none: any
        self._vhost = optional_pattern(match.vhost)
        self._exchange = optional_pattern("" if match.queue is not None or match.exchange == DEFAULT_EXCHANGE else match.exchange)
        self._group = optional_pattern(match.group)
        self._namespace = optional_pattern(match.namespace)
        self._user = optional_pattern(match.user)
        self._client = None if match.client is None else Addresses(match.client)
        self._topic = optional_pattern(match.topic if match.queue is None else match.queue)
        if match.routing_key is not None:
            self._topic = routing_key_pattern(match.routing_key)
        given = match.given()
        # Names only the protocol, the operation and (where that is not the level's own thing) the listener: the default of its level.
        self.bare = all(name in {"protocol", "operation"} or (name == "listener" and per != "listener") for name in given)
        # One thing can meet this rule or another of the same level, depending on the sender: the rule then has buckets of its own.
        self.narrows = any(name not in SETTLED_BY[per] for name in given)
        self.exact_topic = self._exact_topic()
        self.exact_thing = self._exact_thing(per)

    def _exact_topic(self) -> tuple[str, str, str, str] | None:
        """(protocol, vhost or "*", exchange, topic) where the rule names the key exactly; a virtual host left out is any."""
        protocol = self._protocol
        if protocol is None or self._topic is None or self._topic.kind != EXACT:
            return None
        if len(PROTOCOL_NAMES[protocol].topic_parts) == 1:
            return protocol, "", "", self._topic.text
        if self._exchange is None or self._exchange.kind != EXACT:
            return None
        if self._vhost is None:
            return protocol, "*", self._exchange.text, self._topic.text
        return (protocol, self._vhost.text, self._exchange.text, self._topic.text) if self._vhost.kind == EXACT else None

    def _exact_thing(self, per: str) -> str | None:
        """The thing of its level that the rule names exactly (an exchange in any virtual host: `*/name`); None: none, or several."""
        if per == "client":
            return plain_address(self._client.host()) if self._client is not None and self._client.single else None
        if per == "exchange":
            if self._exchange is None or self._exchange.kind != EXACT or (self._vhost is not None and self._vhost.kind != EXACT):
                return None
            return f"{'*' if self._vhost is None else encoded(self._vhost.text)}/{encoded(self._exchange.text or DEFAULT_EXCHANGE)}"
        listener = self._listeners[0] if len(self._listeners) == 1 else None
        named = {"listener": listener, "user": self._user, "vhost": self._vhost, "group": self._group, "namespace": self._namespace}
        pattern = named.get(per)
        if pattern is None or pattern.kind != EXACT:
            return None
        return encoded(pattern.text) if per == "vhost" else pattern.text

    def client_network(self, client: str, length: int) -> str:
        """The client that `client` counts as: its IPv6 network of that `length`, unless the rule names the address alone."""
        return client if self._client is not None and self._client.single else client_network(client, length)

    def cuts(self, length: int) -> bool:
        """Whether the rule is for a part of an IPv6 network of that `length`: others of its addresses meet another rule."""
        if self._client is None or self._client.single:
            return False
        version, own, _ = self._client.network()
        return version == 6 and own > length

    def topic_pattern(self) -> Pattern | None:
        return self._topic

    def looks_at_group(self) -> bool:
        return self._group is not None

    def looks_at_exchange(self) -> bool:
        return self._exchange is not None

    def looks_at_namespace(self) -> bool:
        return self._namespace is not None

    def anchors(self) -> list[Anchor]:
        """The anchors that a subject must have to match. Not the listener: while it is unknown it meets every rule."""
        found: list[Anchor] = []
        if self._client is not None:
            version, length, bits = self._client.network()
            found.append(("client", NETWORK, network_text(version, length, bits)))
        for field, pattern in (
            ("topic", self._topic),
            ("exchange", self._exchange),
            ("vhost", self._vhost),
            ("group", self._group),
            ("namespace", self._namespace),
            ("user", self._user),
        ):
            if pattern is not None:
                found += anchors_of(field, pattern)
        return found

    def matches(self, subject: Subject) -> bool:
        """Whether the rule is for `subject`. A field unknown of it (None) meets only rules that do not name it, the listener excepted."""
        if self._protocol is not None and self._protocol != subject.name.protocol:
            return False
        if self._operation != subject.operation:
            return False
        if subject.system and self.exact_topic is None:
            return False
        if self._listeners and subject.listener is not None and not any_matches(self._listeners, subject.listener):
            return False
        if self._client is not None and (subject.client is None or not self._client.matches(subject.client)):
            return False
        return (
            fits(self._vhost, subject.vhost)
            and fits(self._exchange, subject.exchange)
            and fits(self._topic, subject.topic)
            and fits(self._group, subject.group)
            and fits(self._namespace, subject.namespace)
            and fits(self._user, subject.user)
        )


def group_text(group: TopicName) -> str:
    """A group's name as text: its last word stays `#`, which no topic's text has (it would be %23)."""
    return group.text().removesuffix("%23") + "#"


def optional_pattern(text: str | None) -> Pattern | None:
    return None if text is None else name_pattern(text)


def any_matches(patterns: list[Pattern], name: str) -> bool:
    return any(pattern.matches(name) for pattern in patterns)


def fits(pattern: Pattern | None, name: str | None) -> bool:
    if pattern is None:
        return True
    return name is not None and pattern.matches(name)
