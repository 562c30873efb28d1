"""CC and BCC before the real RabbitMQ: what it puts into queues is what the limits have counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pika
import pika.exceptions
import pytest

from support.brokers.rabbitmq import RabbitMQ
from support.gateways import Gateway, amqp_listener

pytestmark = pytest.mark.rabbitmq

Depths = Callable[[], dict[str, int]]

NAMES = [f"copy-{number}" for number in range(49)]
RATE = 20


@contextmanager
def channel_to(url: str, *, confirms: bool = True) -> Iterator[Any]:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    if confirms:
        channel.confirm_delivery()
    yield channel
    if connection.is_open:
        connection.close()


@pytest.fixture
def depths(rabbitmq: RabbitMQ) -> Iterator[Depths]:
    """Fresh queues, and how many messages are in each that has some."""
    queues = ["orders", "bills", *NAMES]
    with channel_to(rabbitmq.url) as channel:
        for queue in queues:
            channel.queue_declare(queue)
            channel.queue_purge(queue)

        def look() -> dict[str, int]:
            found = {queue: channel.queue_declare(queue, passive=True).method.message_count for queue in queues}
            return {queue: count for queue, count in found.items() if count}

        yield look
        for queue in queues:
            channel.queue_delete(queue)


def told(url: str, key: str, headers: dict[str, Any]) -> str:
    """What a publish ends in."""
    with channel_to(url) as channel:
        try:
            channel.basic_publish("", key, b"hello", pika.BasicProperties(headers=headers))
        except (pika.exceptions.ChannelClosedByBroker, pika.exceptions.NackError) as error:
            return getattr(error, "reply_text", type(error).__name__)
    return "ok"


def test_copies_do_not_pass_by_a_limit(rabbitmq: RabbitMQ, start_gateway: Callable[..., Gateway], depths: Depths) -> None:
    rules = [{"name": "all", "per": "rule", "limit": {"messages": f"{RATE}/s"}, "breaker": {"open_for": "0s"}}]
    gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}")], rules)
    accepted, began = 0, time.monotonic()
    with channel_to(gateway.amqp_url()) as channel:
        while time.monotonic() - began < 4:
            try:
                channel.basic_publish("", "orders", b"x", pika.BasicProperties(headers={"CC": NAMES}))
                accepted += 1
            except pika.exceptions.NackError:
                time.sleep(0.02)
    elapsed = time.monotonic() - began
    stored = sum(depths().values())
    assert stored == accepted * 50
    assert 50 <= stored <= RATE * elapsed + 50  # a publish that costs more than the burst of 20 passes a full bucket, and is paid for after
    (copies,) = [each.value for each in gateway.samples() if each.name == "sluice_message_copies_total" and each.value]
    assert copies == accepted * 49


def test_a_key_that_is_named_is_refused_as_when_it_is_published_to(
    rabbitmq: RabbitMQ, start_gateway: Callable[..., Gateway], depths: Depths
) -> None:
    match = {"protocol": "amqp", "exchange": "amq.default"}
    rules = [
        {"name": "shut", "match": {**match, "routing_key": "bills"}, "limit": {"messages": "0/s"}},
        {"name": "alone", "match": {**match, "routing_key": "copy-7"}, "copies": "refuse"},
    ]
    gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}")], rules)
    url = gateway.amqp_url()
    assert told(url, "orders", {"CC": ["copy-1"], "BCC": ["copy-2"]}) == "ok"
    assert told(url, "orders", {"CC": ["copy-1"], "BCC": ["bills"]}) == "NackError"
    refused = "PRECONDITION_FAILED - copies (CC, BCC) are refused by rule alone: %2F/amq.default/orders"
    assert told(url, "orders", {"CC": ["copy-7"]}) == refused
    assert told(url, "copy-7", {"note": "CC"}) == "ok"
    assert depths() == {"orders": 1, "copy-1": 1, "copy-2": 1, "copy-7": 1}
    why = " ".join(gateway.cli("why", "amqp", "/", "amq.default", "copy-7").stdout.split())
    assert "copies refused" in why
    assert "Name no copies (CC, BCC)" in why
    assert "Slow down" not in why


@pytest.mark.parametrize(
    "headers",
    [
        {"CC": "bills"}, {"BCC": {"a": "bills"}}, {"CC": ["bills", 5, ["copy-1"], b"copy-2"]}, {"CC": ["bills", "z" * 60_000]},
        {"CC": [f"n{number}" for number in range(10_000)] + ["bills"]},
    ],
    ids=["text", "table", "mixed", "a long name", "10,000 names"],
)  # fmt: skip
def test_odd_headers_end_as_at_the_broker(
    rabbitmq: RabbitMQ, start_gateway: Callable[..., Gateway], depths: Depths, headers: dict[str, Any]
) -> None:
    gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}")], [{"name": "all", "limit": {"messages": "10000/s"}}])
    directly = told(rabbitmq.url, "orders", headers), depths()
    through = told(gateway.amqp_url(), "orders", headers)
    assert (through, depths()) == (directly[0], {queue: 2 * count for queue, count in directly[1].items()})
