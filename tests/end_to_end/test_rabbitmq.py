"""RabbitMQ through the gateway, with ordinary clients: confirms tell the truth, limits are exact, everything else passes untouched."""

from __future__ import annotations

import time
from pathlib import Path

import pika
import pika.exceptions
import pytest

from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ, version
from support.clients.programs import Publishing, go_publish, java_publish, pika_publish
from support.gateways import Gateway, StartGateway, amqp_listener
from support.models.rates import bounds, let_through
from support.processes import HANG_S

pytestmark = pytest.mark.rabbitmq

FLOOD_S = 12.0


def limited_to(limit: dict[str, object], **more: object) -> dict[str, object]:
    """A rule for every topic whose routing key starts with `limited`."""
    return {"name": "limited", "match": {"protocol": "amqp", "routing_key": "limited*"}, "per": "topic", "limit": limit, **more}


def publish(library: str, url: str, key: str, count: int, home: Path) -> Publishing:
    if library == "pika":
        return pika_publish(url, "", key, "run", count=count)
    if library == "go":
        return go_publish(url, "", key, "run", count=count)
    return java_publish(home, url, "", key, "run", count=count)


def test_the_broker_is_the_one_that_was_asked_for(rabbitmq: RabbitMQ) -> None:
    """`make test` would prove nothing of RabbitMQ 4 if the installed one were started."""
    assert rabbitmq.control("eval", "rabbit_misc:version().").strip().strip('"') == version()


@pytest.mark.parametrize("library", ["pika", "go", "java"])
@pytest.mark.parametrize(
    "rule",
    [
        pytest.param(limited_to({"messages": "1000/s"}), id="with-breaker"),
        pytest.param(limited_to({"messages": "1000/s", "burst": {"messages": 20}}, breaker={"open_for": "0s"}), id="finely-interleaved"),
    ],
)
def test_an_ack_seen_by_the_client_is_a_message_in_the_queue_and_nothing_else_is(
    rabbitmq: RabbitMQ, start_gateway: StartGateway, library: str, rule: dict[str, object], tmp_path: Path
) -> None:
    """8,000 confirmed messages through 1,000/s. Go and Java guard the splitting of multiple acks: unsplit, nacked ones show as acked."""
    gateway: Gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}")], [rule])
    with Queue(rabbitmq.url, f"limited-{library}") as queue:
        published = publish(library, gateway.amqp_url(), queue.name, 8_000, tmp_path).result()
        arrived = queue.drain()
    assert published.sent == 8_000
    assert published.count("?") == 0
    assert published.count("N") > 0
    assert arrived == sorted(arrived, key=lambda identity: int(identity.rpartition("-")[2]))
    assert len(arrived) == len(set(arrived)) == published.count("A")
    assert set(arrived) == published.ids("A")
    _, at_most = bounds(1000, published.elapsed_s, 1000)
    assert published.count("A") <= at_most


def test_four_connections_flooding_one_topic_share_exactly_its_limit(rabbitmq: RabbitMQ, start_gateway: StartGateway) -> None:
    gateway: Gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}")], [limited_to({"messages": "500/s"})])
    with Queue(rabbitmq.url, "limited-flood") as queue:
        flood = go_publish(gateway.amqp_url(), "", queue.name, "flood", connections=4, seconds=FLOOD_S, rate=2500)
        published = flood.result()
        arrived = queue.depth()
    at_least = 0.99 * (let_through(published.begun_per_100ms, 500, 500) - 500)
    _, at_most = bounds(500, published.elapsed_s, 500)
    assert published.sent > 2 * published.count("A"), "the flood was none"
    assert at_least > 0.5 * 500 * FLOOD_S, "the flood was none"
    assert at_least <= published.count("A") <= at_most
    assert arrived == published.count("A")
    assert published.count("?") == 0


def test_at_every_scrape_the_messages_received_are_all_accounted_for(rabbitmq: RabbitMQ, start_gateway: StartGateway) -> None:
    gateway: Gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}")], [limited_to({"messages": "500/s"})])
    with Queue(rabbitmq.url, "limited-counted") as queue:
        flood = go_publish(gateway.amqp_url(), "", queue.name, "flood", connections=2, seconds=2, rate=3000)
        scrapes = []
        while not flood.program.ended():
            time.sleep(0.1)
            scrapes.append(gateway.messages_by_fate("amqp", f"%2F/amq.default/{queue.name}"))
        published = flood.result()
        final = gateway.messages_by_fate("amqp", f"%2F/amq.default/{queue.name}")
    assert any(scrape["received"] > 0 for scrape in scrapes)
    for scrape in [*scrapes, final]:
        assert scrape["received"] == sum(count for fate, count in scrape.items() if fate != "received"), scrape
    assert (final["received"], final["forwarded"], final["refused"]) == (published.sent, published.count("A"), published.count("N"))


def connect(url: str) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.URLParameters(url))


def test_a_consumer_behind_the_gateway_gets_and_acks_every_message(rabbitmq: RabbitMQ, start_gateway: StartGateway) -> None:
    gateway: Gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}")], [limited_to({"messages": "10/s"})])
    bodies = [bytes([number % 256]) * size for number, size in enumerate([0, 1, 199, 131_064, 131_065, 400_000] + [200] * 2000)]
    with Queue(rabbitmq.url, "consumed") as queue, connect(rabbitmq.url) as direct, connect(gateway.amqp_url()) as through:
        sender = direct.channel()
        for body in bodies:
            sender.basic_publish("", queue.name, body)
        receiver = through.channel()
        receiver.basic_qos(prefetch_count=100)
        received = []
        for method, _, body in receiver.consume(queue.name, inactivity_timeout=HANG_S):
            if method is None:
                break
            received.append(body)
            receiver.basic_ack(method.delivery_tag)
            if len(received) == len(bodies):
                break
        receiver.cancel()
        receiver.close()
        assert received == bodies
        assert queue.depth() == 0


def test_a_refused_mandatory_message_comes_back_whole_before_its_nack(rabbitmq: RabbitMQ, start_gateway: StartGateway) -> None:
    gateway: Gateway = start_gateway(
        [amqp_listener(f"127.0.0.1:{rabbitmq.port}")], [limited_to({"messages": "1/min", "burst": {"messages": 1}})]
    )
    body = bytes(range(256)) * 1200  # three body frames
    properties = pika.BasicProperties(
        content_type="application/x-thing", headers={"attempt": 1, "who": "näme"}, message_id="m-1", priority=3
    )
    with Queue(rabbitmq.url, "limited-mandatory") as queue, connect(gateway.amqp_url()) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", queue.name, body, properties, mandatory=True)
        with pytest.raises(pika.exceptions.NackError) as caught:
            channel.basic_publish("", queue.name, body, properties, mandatory=True)
        (returned,) = caught.value.messages
        assert returned.method.reply_code == 312
        assert returned.method.reply_text.startswith("RATE_LIMITED")
        assert (returned.method.exchange, returned.method.routing_key) == ("", queue.name)
        assert returned.properties == properties
        assert returned.body == body
        # An unroutable one that passes is still returned by the broker itself, and acked.
        with pytest.raises(pika.exceptions.UnroutableError):
            channel.basic_publish("", "nobody-listens", b"z", mandatory=True)
        assert queue.drain() == ["m-1"]
