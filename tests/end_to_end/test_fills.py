"""An empty bucket over a restart, with a real broker."""

from __future__ import annotations

import time

import pika
import pika.exceptions
import pytest

from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.gateways import Gateway, StartGateway, amqp_listener
from support.processes import wait_until

pytestmark = pytest.mark.rabbitmq

FIVE_AN_HOUR = {
    "name": "few",
    "match": {"protocol": "amqp"},
    "per": "topic",
    "limit": {"messages": "5/h", "burst": {"messages": 5}},
    "breaker": {"open_for": "0s"},
}


def confirmed(url: str, queue: str, count: int) -> int:
    """How many of `count` messages the gateway lets through."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.confirm_delivery()
    passed = 0
    for _ in range(count):
        try:
            channel.basic_publish("", queue, b"x")
            passed += 1
        except pika.exceptions.NackError:
            pass
    connection.close()
    return passed


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_bucket_that_was_empty_is_empty_after_a_restart(rabbitmq: RabbitMQ, start_gateway: StartGateway, how: str) -> None:
    gateway: Gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}")], [FIVE_AN_HOUR])
    with Queue(rabbitmq.url, "fills") as queue:
        assert confirmed(gateway.amqp_url(), queue.name, 8) == 5
        if how == "killed":
            since = time.time()
            written = gateway.directory / "state" / "fills"
            wait_until(lambda: written.exists() and written.stat().st_mtime > since, within=30, what="fill levels written")
            gateway.kill()
        else:
            assert gateway.stop() == 0
        gateway.start()
        assert confirmed(gateway.amqp_url(), queue.name, 3) == 0
