"""A real session, recorded: pika 1.4.4 with RabbitMQ 3.10.8 (2026-11-21), frame_max 8192, one JSON line per read: who spoke, base64.

Declares, 20 plain publishes to the exchange `events`, 13 with confirms on the same channel (one empty, one of 20,000 bytes, one mandatory
and unroutable), two to an exchange that does not exist (404), one in a transaction, 33 deliveries with their acks, an orderly close.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections import Counter
from pathlib import Path

import pytest

from limiter.limits import NEVER
from support.wires.conversations import Talk, bytewise, randomly, rule

LINES = (Path(__file__).parent / "vectors/pika_session.jsonl").read_text().splitlines()
SESSION = [(who, b64decode(data)) for who, data in map(json.loads, LINES)]


def cut(data: bytes, how: str, number: int) -> list[bytes]:
    return bytewise(data) if how == "bytewise" else randomly(data, number) if how == "randomly" else [data]


@pytest.mark.parametrize("how", ["as read", "bytewise", "randomly"])
def test_a_recorded_session_passes_byte_for_byte_and_every_publish_is_offered(how: str) -> None:
    talk = Talk("amqp", rule(messages=1000))
    said = {"client": b"", "broker": b""}
    for number, (who, data) in enumerate(SESSION):
        said[who] += data
        if who == "client":
            talk.client(data, cut(data, how, number))
        else:
            talk.broker(data, cut(data, how, number))
    assert talk.to_broker == said["client"]
    assert talk.to_client == said["broker"]
    assert Counter(key for key, *_ in talk.requests) == {
        "%2F/events/order.created": 30,
        "%2F/amq.default/vector": 3,
        "%2F/amq.default/nowhere": 1,
        "%2F/no%20such%20exchange/x": 2,
    }
    assert sorted(size for key, *_, size in talk.requests if key == "%2F/amq.default/vector") == [0, 16, 20_000]
    assert talk.conversation.settled()
    assert (talk.conversation.budget.held_bytes, talk.conversation.budget.next_due) == (0, NEVER)


def test_a_recorded_session_is_described() -> None:
    talk = Talk("amqp")
    for who, data in SESSION[: len(SESSION) // 2]:
        (talk.client if who == "client" else talk.broker)(data)
    known = talk.conversation.describe()
    properties = known.pop("client_properties")
    assert isinstance(properties, dict)
    assert (properties["product"], properties["connection_name"]) == ("Pika Python Client Library", "vector")
    assert known == {
        "vhost": "/",
        "channels": 1,
        "confirm_channels": 1,
        "held_channels": 0,
        "consumers": 0,
        "messages_delivered": 0,
        "frame_max": 8192,
        "heartbeat": 60,
    }
