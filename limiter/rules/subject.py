"""The subject: everything that a rule's match is compared with. It is built once per key and never per message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from limiter.operations import OF_TOPICS
from limiter.protocols import DEFAULT_EXCHANGE, PROTOCOL_NAMES
from limiter.rules.namespaces import namespace_of
from limiter.rules.patterns import name_text, plain_address, split_words
from limiter.rules.sender import ANYBODY, Sender
from limiter.rules.system_topics import is_system_topic

if TYPE_CHECKING:
    from limiter.topics import TopicName

NAMESPACED: Final = frozenset(names.name for names in PROTOCOL_NAMES.values() if "namespace" in names.match_fields)


class Subject:
    """A message's topic, sender and operation."""

    __slots__ = (
        "client", "connection", "exchange", "group", "grouped", "name", "namespace", "operation", "sender", "system", "text", "topic",
        "vhost",
    )  # fmt: skip

    def __init__(
        self,
        name: TopicName,
        text: str,
        sender: Sender = ANYBODY,
        group: bytes | None = None,
        operation: str = "produce",
        connection: int = 0,
        *,
        grouped: bool = False,
    ) -> None:
        self.name = name
        self.grouped = grouped  # it stands for several topics, of which `name` is one: what names that one alone is not for it
        self.text = text  # of the topic, docs/design/contract.md 4
        self.sender = sender
        client = sender.client
        self.client = None if client is None else plain_address(client)
        self.group = None if group is None else name_text(group)
        self.operation = operation
        self.connection = connection  # its number; 0: not known
        self.vhost = name_text(name.vhost)
        self.exchange = name_text(name.exchange)
        topic = name_text(name.topic)
        self.topic = text if topic == text else topic  # once in memory
        self.namespace = namespace_of(self.topic) if name.protocol in NAMESPACED else None
        self.system = operation in OF_TOPICS and is_system_topic(name.protocol, self.topic)  # else it is only asked about

    def thing(self, per: str) -> str:
        """The thing that a level keeps a bucket for, as text: the topic, the exchange, the client ... Messages without a user share one
        bucket; so do messages without a group or a namespace.
        """
        if per == "topic":
            return self.text
        if per == "exchange":
            return f"{encode(self.vhost)}/{encode(self.exchange or DEFAULT_EXCHANGE)}"
        if per == "vhost":
            return encode(self.vhost)
        if per == "connection":
            return str(self.connection) if self.connection else ""
        return "" if per == "rule" else self.field(per) or ""

    def field(self, name: str) -> str | None:
        """The text that a key of a match is compared with (`MatchKey.subject`), or None where unknown."""
        if name == "topic":  # which is also the routing key and the queue
            return self.topic
        if name == "exchange":
            return self.exchange
        if name == "vhost":
            return self.vhost
        if name == "group":
            return self.group
        if name == "namespace":
            return self.namespace
        if name == "client":
            return self.client
        found: str | None = getattr(self.sender, name)
        return found

    def group_of_topics(self, words: int) -> TopicName | None:
        """The name of all topics with the same exchange and first `words` words of the routing key: those words, and a last word `#`.

        A shorter key is in no group (None). A key whose own last word is `#` may have the name of its group.
        """
        first = split_words(self.topic)
        if len(first) < words:
            return None
        return self.name._replace(topic=".".join([*first[:words], "#"]).encode("utf-8", "surrogateescape"))

    def __repr__(self) -> str:
        return f"<Subject {self.operation} {self.text} {self.sender}>"


def encode(text: str) -> str:
    return quote(text, safe="", errors="surrogateescape")
