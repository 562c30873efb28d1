"""A real broker for pages that are about one, and a gateway with something to look at for the pages about a running one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
import yaml

from support.brokers.rabbitmq import RabbitMQ
from support.brokers.stand_ins import rabbitmq as rabbitmq_stand_in
from support.brokers.stand_ins import rocketmq as rocketmq_stand_in
from support.busy_gateway import BusyGateway
from support.floods import AMQPFlood, RocketMQFlood
from support.processes import wait_until

RULES: Final[list[dict[str, Any]]] = [  # by the names that the pages use
    {
        "name": "eu",
        "match": {"protocol": "amqp", "exchange": "orders", "routing_key": "order.eu.#"},
        "per": "topic",
        "routing_key_words": 2,
        "limit": {"messages": "20/s"},
    },
    {"name": "orders", "match": {"protocol": "amqp", "exchange": "orders"}, "per": "topic", "limit": {"messages": "20/s"}},
    {"name": "topics", "match": {"protocol": "rocketmq"}, "per": "topic", "limit": {"messages": "30/s"}},
    {"name": "broker", "match": {"listener": "rabbit"}, "per": "listener", "limit": {"messages": "20000/s"}},
]


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    with RabbitMQ(tmp_path_factory.mktemp("rabbitmq")) as broker:
        yield broker


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BusyGateway]:
    """Both protocols, with a flood on each, and what the pages name: rules, listeners, a Unix socket for the admin API."""
    with rabbitmq_stand_in() as rabbit, rocketmq_stand_in() as rocket:
        gateway = BusyGateway(tmp_path_factory.mktemp("busy"), rabbit.address, rocket.address, RULES)
        written = yaml.safe_load(gateway.config.read_text())
        written["admin"]["socket"] = "run/admin.sock"
        gateway.config.write_text(yaml.safe_dump(written, sort_keys=False))
        (gateway.directory / "run").mkdir()
        with gateway, AMQPFlood(gateway.port("rabbit")), RocketMQFlood(gateway.port("rocket")):
            wait_until(lambda: gateway.refuses("rocketmq", "orders"), within=30, what="the RocketMQ topic is over its limit")
            wait_until(lambda: gateway.refuses("amqp", "%2F/orders/order.created"), within=30, what="the AMQP topic is over its limit")
            yield gateway
