"""Algorithms in a running gateway, on RabbitMQ: what its rules say is what its clients meet."""

from __future__ import annotations

import time

import pika
import pytest

from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.gateways import Gateway, StartGateway, amqp_listener

pytestmark = pytest.mark.rabbitmq

PACED = {
    "name": "paced", "match": {"protocol": "amqp"}, "limit": {"messages": "20/s"}, "algorithm": "pacing", "action": "delay",
    "max_delay": "2s",
}  # fmt: skip
WARMING = {
    "name": "warming", "match": {"protocol": "amqp"}, "limit": {"messages": "30/h", "burst": "1h"}, "algorithm": "warm_up",
    "warm_up": {"over": "24h"}, "breaker": {"open_for": "0s"},
}  # fmt: skip


def publish(url: str, queue: str, count: int) -> int:
    """How many of so many publishes, one after the other, are confirmed."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.confirm_delivery()
    confirmed = 0
    for _ in range(count):
        try:
            channel.basic_publish("", queue, b"x")
            confirmed += 1
        except pika.exceptions.NackError:
            pass
    connection.close()
    return confirmed


def test_pacing_delays_each_message_until_it_is_due(rabbitmq: RabbitMQ, start_gateway: StartGateway) -> None:
    gateway: Gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}")], [PACED])
    with Queue(rabbitmq.url, "paced") as queue:
        began = time.monotonic()
        assert publish(gateway.amqp_url(), queue.name, 21) == 21
        assert time.monotonic() - began >= 20 / 20 - 0.01  # twenty intervals, but for what may be made up for


def test_a_cold_limit_passes_a_third(rabbitmq: RabbitMQ, start_gateway: StartGateway) -> None:
    gateway: Gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}")], [WARMING])
    with Queue(rabbitmq.url, "warming") as queue:
        assert publish(gateway.amqp_url(), queue.name, 20) == 10
