"""Spring AMQP through the gateway: correlated confirms and returns, a listener container, and one that is refused at first."""

from __future__ import annotations

from pathlib import Path

import pika
import pytest

from support.brokers.queues import Queue, connect
from support.brokers.rabbitmq import RabbitMQ
from support.clients.programs import CLIENTS, Program
from support.gateways import StartGateway, amqp_listener
from support.java import compiled, java
from support.processes import wait_until

pytestmark = [pytest.mark.rabbitmq, pytest.mark.slow]

COUNT = 20
LIMITED: list[dict[str, object]] = [
    {
        "name": "limited",
        "match": {"protocol": "amqp", "routing_key": "spring-limited", "operation": "produce"},
        "per": "topic",
        "limit": {"messages": "1/h", "burst": {"messages": 30}},
        "breaker": {"open_for": "0s"},
    }
]


def spring(home: Path, *words: object) -> Program:
    command = java(compiled(CLIENTS / "java" / "spring", "spring-rabbit"), "Spring", home)
    return Program([*command, *map(str, words)], cwd=home)


def test_confirms_returns_and_a_listener(rabbitmq: RabbitMQ, start_gateway: StartGateway, tmp_path: Path) -> None:
    """Thirty messages pass, ten of them `mandatory`; the ten that are over the limit are nacked, and returned with the gateway's text."""
    gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}")], LIMITED)
    with Queue(rabbitmq.url, "spring-limited") as limited, Queue(rabbitmq.url, "spring-free") as free:
        (seen,) = spring(tmp_path, "publish", gateway.amqp_url(), COUNT, limited.name, free.name).result(240)
    assert seen["letters"] == "A" * COUNT + "|" + "A" * 10 + "R" * 10 + "|A"
    assert seen["said"].startswith("312 RATE_LIMITED - %2F/amq.default/spring-limited is over its limit of 1/h of rule limited")
    assert (seen["received"], seen["running"]) == (30, True)


def test_a_listener_that_is_refused_tries_again_until_there_is_room(
    rabbitmq: RabbitMQ, start_gateway: StartGateway, tmp_path: Path
) -> None:
    """It takes a failed login for final. Too many connections are none, so the refusal comes behind the login."""
    gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}", max_connections=1)], [])
    with Queue(rabbitmq.url, "spring-late") as queue:
        with pika.BlockingConnection(pika.URLParameters(gateway.amqp_url())):
            listening = spring(tmp_path, "listen", gateway.amqp_url(), queue.name, 180)
            wait_until(
                lambda: gateway.get("/v1/listeners")["items"][0]["connections_refused"].get("max_connections", 0) >= 2 or listening.ended(),
                within=120,
                what="the container has tried twice",
            )
        with connect(rabbitmq.url) as connection:
            connection.channel().basic_publish("", queue.name, b"late")
        (seen,) = listening.result(240)
    assert seen == {"received": 1, "running": True}
