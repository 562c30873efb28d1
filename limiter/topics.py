"""Topics: the name of a topic, as bytes on the wire and as text."""

from __future__ import annotations

import re
import string
from typing import Final, NamedTuple
from urllib.parse import quote, quote_from_bytes, unquote_to_bytes

from limiter.protocols import AMQP, DEFAULT_EXCHANGE, PROTOCOL_NAMES, ROCKETMQ

DOTS: Final = re.compile(rb"~*\.\.?")
UNRESERVED: Final = (string.ascii_letters + string.digits + "_.-~").encode()  # octets that stand for themselves in a path


def path_segment(part: bytes) -> str:
    """`part` as a segment of a path: percent-encoded, and `~` before `.` and `..`.

    Clients take segments of dots out of a path, percent-encoded ones too, and would ask for another resource.
    """
    if not part.translate(None, UNRESERVED) and not part.startswith((b".", b"~")):
        return part.decode()
    segment = quote_from_bytes(part, safe="")
    return f"~{segment}" if DOTS.fullmatch(part) else segment


def part_of(segment: bytes) -> bytes:
    """The part of a decoded segment: the inverse of `path_segment`, but for the percent-encoding."""
    return segment[1:] if segment.startswith(b"~") and DOTS.fullmatch(segment) else segment


def parts_of_path(path: str) -> list[bytes]:
    """The parts whose segments are joined in `path`."""
    return [part_of(unquote_to_bytes(segment)) for segment in path.split("/")]


class TopicName(NamedTuple):
    """The name of a topic, as bytes on the wire: RocketMQ uses `topic` only; AMQP's `topic` is the routing key (`limiter.protocols`)."""

    protocol: str
    vhost: bytes
    exchange: bytes
    topic: bytes

    def text(self) -> str:
        """The topic as text (`docs/design/contract.md` 4): `orders`; `%2F/orders/order.created`; bytes that are not UTF-8
        percent-encoded."""
        if self.protocol in SEVERAL_PARTS:
            return "/".join(self.encoded_parts())
        try:
            return self.topic.decode()
        except UnicodeDecodeError:
            return quote_from_bytes(self.topic, safe="%/")

    def encoded_parts(self) -> list[str]:
        """Each part that the protocol uses, as in a path."""
        parts = (self.vhost, self.exchange, self.topic)
        return [path_segment(parts[at] or empty) for at, empty in TOPIC_PARTS[self.protocol]]


# The parts of each protocol's topics: which of `vhost`, `exchange` and `topic`, and how an empty one is written.
TOPIC_PARTS: Final[dict[str, list[tuple[int, bytes]]]] = {
    names.name: [(("vhost", "exchange", "topic").index(part.field), (part.empty or "").encode()) for part in names.topic_parts]
    for names in PROTOCOL_NAMES.values()
}
SEVERAL_PARTS: Final = frozenset(name for name, parts in TOPIC_PARTS.items() if len(parts) > 1)  # `text` joins them
WRITTEN_DEFAULT_EXCHANGE: Final = DEFAULT_EXCHANGE.encode()


def rocketmq_topic(topic: bytes) -> TopicName:
    return TopicName(ROCKETMQ.name, b"", b"", topic)


def amqp_topic(vhost: bytes, exchange: bytes, routing_key: bytes) -> TopicName:
    """`exchange` may be written `amq.default` for the default exchange."""
    return TopicName(AMQP.name, vhost, b"" if exchange == WRITTEN_DEFAULT_EXCHANGE else exchange, routing_key)


def topic_of_parts(protocol: str, parts: list[bytes]) -> TopicName:
    """The topic of these parts, as they stand in a path: `amq.default` is AMQP's default exchange. Raises ValueError for another number."""
    given = [b"", b"", b""]
    for (at, empty), part in zip(TOPIC_PARTS[protocol], parts, strict=True):
        given[at] = b"" if part == empty else part
    return TopicName(protocol, given[0], given[1], given[2])


def parse_topic(protocol: str, text: str) -> TopicName:
    """The inverse of `TopicName.text`; raises ValueError for a text without the parts of that protocol's topics."""
    if protocol not in SEVERAL_PARTS:
        return TopicName(protocol, b"", b"", text.encode())
    parts = parts_of_path(text)
    names = PROTOCOL_NAMES[protocol]
    if len(parts) != len(names.topic_parts):
        shape, example = "/".join(part.word for part in names.topic_parts), "/".join(quote(part, safe="") for part in names.example)
        raise ValueError(f"{text!r}: a topic of {names.title} is {shape}, each percent-encoded, e.g. {example}")
    return topic_of_parts(protocol, parts)
