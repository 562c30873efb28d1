"""What clients declare, bind, delete, purge, open and fetch from empty queues, before a real broker: late and in order, and never with an
error; and how they connect."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pika
import pika.exceptions
import pytest

from support.brokers.rabbitmq import RabbitMQ
from support.gateways import Gateway, amqp_listener

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.rabbitmq

RATE = 50  # a second, of each operation
BURST = 5
QUEUES = 60
PATIENT: dict[str, Any] = {"action": "delay", "max_delay": "8s"}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    limit = {"messages": f"{RATE}/s", "burst": {"messages": BURST}}
    rules = [
        {"name": name, "match": {"operation": name}, "per": "client", "limit": limit, "action": "delay"}
        for name in ("declare", "bind", "delete", "purge", "open", "get")
    ]
    rules.append({"name": "connect", "match": {"protocol": "amqp", "operation": "connect"}, "per": "user", "limit": limit, **PATIENT})
    broker = RabbitMQ(tmp_path_factory.mktemp("rabbitmq"))
    with broker, Gateway(tmp_path_factory.mktemp("gateway"), [amqp_listener(f"127.0.0.1:{broker.port}")], rules) as started:
        yield started


def connect(gateway: Gateway) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.URLParameters(f"{gateway.amqp_url()}?heartbeat=0"))


def at_its_limit(done: int, seconds: float) -> bool:
    """No more than the limit lets through; the tenth is for a clock that another process reads."""
    return done <= BURST + RATE * (seconds + 0.1)


def test_a_topology_is_declared_late_bound_used_purged_and_deleted(gateway: Gateway) -> None:
    names = [f"topology.{number}" for number in range(QUEUES)]
    with connect(gateway) as connection:
        channel: Any = connection.channel()
        channel.exchange_declare("topology")
        steps = {
            "declare": channel.queue_declare,
            "bind": lambda name: channel.queue_bind(name, "topology", name),
            "purge": channel.queue_purge,
            "delete": channel.queue_delete,
        }
        for step, do in steps.items():
            begun = time.monotonic()
            for name in names:
                do(name)
            assert at_its_limit(QUEUES, time.monotonic() - begun), step
            if step == "bind":
                for name in names:
                    channel.basic_publish("topology", name, name.encode())
                assert [channel.basic_get(name, auto_ack=True)[2] for name in names] == [name.encode() for name in names]
    passed = gateway.messages_by_fate("amqp", "%2F/amq.default/", "declare")
    assert (passed["forwarded"], passed["refused"]) == (QUEUES + 1, 0)


def test_channels_are_opened_late(gateway: Gateway) -> None:
    with connect(gateway) as connection:
        begun = time.monotonic()
        channels = [connection.channel() for _ in range(QUEUES)]
        assert at_its_limit(QUEUES, time.monotonic() - begun)
        assert all(channel.is_open for channel in channels)
        for channel in channels:
            channel.basic_qos(prefetch_count=1)


def test_empty_queues_are_asked_late_and_those_with_messages_at_once(gateway: Gateway) -> None:
    before = gateway.messages_by_fate("amqp", "%2F/amq.default/", "get")
    with connect(gateway) as connection:
        channel: Any = connection.channel()
        channel.queue_declare("fetched", exclusive=True)
        begun = time.monotonic()
        assert [channel.basic_get("fetched")[0] for _ in range(QUEUES)] == [None] * QUEUES
        assert at_its_limit(QUEUES, time.monotonic() - begun)
        for number in range(QUEUES):
            channel.basic_publish("", "fetched", b"%d" % number)
        assert [channel.basic_get("fetched", auto_ack=True)[2] for _ in range(QUEUES)] == [b"%d" % number for number in range(QUEUES)]
    asked = gateway.messages_by_fate("amqp", "%2F/amq.default/", "get")
    assert [asked[fate] - before[fate] for fate in ("received", "forwarded")] == [2 * QUEUES] * 2


def test_connections_are_let_in_late_or_refused_in_the_brokers_words(gateway: Gateway) -> None:
    begun = time.monotonic()
    for _ in range(QUEUES):
        connect(gateway).close()
    assert at_its_limit(QUEUES, time.monotonic() - begun)
    assert gateway.put("/v1/rules/connect", {"messages": "1/h", "action": "reject"}).status == 200
    with suppress(pika.exceptions.AMQPError):  # what is left of the burst
        for _ in range(BURST + 1):
            connect(gateway).close()
    with pytest.raises(pika.exceptions.AMQPError) as caught:
        connect(gateway)
    assert "530" in repr(caught.value)
    assert "NOT_ALLOWED - RATE_LIMITED - user guest is over its limit of 1/h of rule connect (connections)" in repr(caught.value)
    assert gateway.put("/v1/rules/connect", {"messages": f"{RATE}/s", "action": "delay"}).status == 200
    connect(gateway).close()
