"""A span's record, as the session makes it of a message that was held up."""

from __future__ import annotations

from gateway.pipeline.conversation import REFUSED
from gateway.pipeline.message_spans import SpanRecord
from gateway.pipeline.parts import REQUEST, Part
from limiter.keys import Key, Origin
from limiter.rules.sender import Sender
from limiter.topics import amqp_topic, rocketmq_topic
from support.wires.conversations import rule

VALUE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def record(outcome: int = REFUSED, *, protocol: str = "amqp", waited_ns: int = 0) -> SpanRecord:
    vhost = b"/" if protocol == "amqp" else b""
    name = amqp_topic(vhost, b"orders", b"created") if protocol == "amqp" else rocketmq_topic(b"ORDERS")
    key = Key(Origin(protocol, Sender("front", "10.0.0.7", "guest"), vhost), name, None, "produce")
    part = Part(REQUEST, 1, b"", 0, 0, key, 1, 1, 5)
    part.rule = rule(messages=500, name="orders")
    part.wait_ns = 12_500_000
    made = SpanRecord(VALUE, part, key, 0, 17, outcome, 1_000)
    made.end(outcome, 1_000 + waited_ns)
    return made
