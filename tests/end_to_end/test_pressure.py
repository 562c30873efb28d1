"""The gateway under pressure, with a real broker: memory above its mark, a disk below its own, and who is named for it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pika
import pytest

from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.clients.programs import go_publish
from support.gateways import Gateway, amqp_listener
from support.processes import wait_until

pytestmark = pytest.mark.rabbitmq

StartGateway = Callable[..., Gateway]
HOARDERS = 8
EACH = 20
BODY = 16 * 1024


def value(gateway: Gateway, name: str) -> float:
    (found,) = [sample for sample in gateway.samples() if sample.name == name]
    return float(found.value)


def bottlenecks(gateway: Gateway) -> set[str]:
    """Of the connections that have published."""
    return {item["bottleneck"] for item in gateway.get("/v1/connections")["items"] if item["messages_forwarded"]}


def test_full_memory_stops_publishers_with_a_word_and_no_consumer(rabbitmq: RabbitMQ, start_gateway: StartGateway) -> None:
    """A rule holds more than the mark. Who publishes and holds nothing is told and waits, who consumes goes on, all arrives once."""
    rule = {
        "name": "hold", "match": {"protocol": "amqp", "routing_key": "held"}, "per": "rule", "limit": {"messages": "1/s"},
        "action": "delay", "max_delay": "8s", "breaker": {"open_for": "0s"},
    }  # fmt: skip
    gateway: Gateway = start_gateway(
        [amqp_listener(f"127.0.0.1:{rabbitmq.port}")], [rule], memory={"per_connection": "256KiB", "high_watermark": "1MiB"}
    )
    told: list[str] = []
    fed: list[str] = []
    with ExitStack() as stack:
        held, free, feed = [stack.enter_context(Queue(rabbitmq.url, name)) for name in ("held", "free", "feed")]

        def connect(url: str) -> pika.BlockingConnection:
            return stack.enter_context(contextlib.closing(pika.BlockingConnection(pika.URLParameters(url))))

        publisher, consumer, direct = connect(gateway.amqp_url()), connect(gateway.amqp_url()), connect(rabbitmq.url)
        publisher.add_on_connection_blocked_callback(lambda *_: told.append("blocked"))
        publisher.add_on_connection_unblocked_callback(lambda *_: told.append("unblocked"))
        to_free = publisher.channel()
        to_free.basic_publish("", free.name, b"x", pika.BasicProperties(message_id="first"))
        consuming = consumer.channel()

        def take(channel: Any, method: Any, properties: Any, _body: bytes) -> None:
            fed.append(properties.message_id)
            channel.basic_ack(method.delivery_tag)

        consuming.basic_consume(feed.name, take)
        hoarders = go_publish(gateway.amqp_url(), "", held.name, "hold", connections=HOARDERS, count=EACH, size=BODY, window=0)
        wait_until(lambda: value(gateway, "sluice_memory_full") == 1, within=30, what="memory is full")
        wait_until(lambda: (publisher.process_data_events(0), told)[1] == ["blocked"], within=30, what="the publisher is told")
        to_free.basic_publish("", free.name, b"x", pika.BasicProperties(message_id="second"))
        to_feed = direct.channel()
        for number in range(50):
            to_feed.basic_publish("", feed.name, b"d" * 1000, pika.BasicProperties(message_id=f"d{number}"))
        wait_until(lambda: (consumer.process_data_events(0.05), len(fed))[1] == 50, within=30, what="the consumer goes on")
        stopped = HOARDERS + 1
        wait_until(lambda: value(gateway, "sluice_memory_stopped_connections") == stopped, within=30, what="all who publish are stopped")
        held_by = [item["bottleneck"] for item in gateway.get("/v1/connections")["items"]]
        assert sorted(set(held_by)) == ["limit", "memory", "none"], held_by
        assert held_by.count("none") == 1, "the consumer's"
        assert "ready, but memory: " in gateway.cli("health").stderr
        assert value(gateway, "sluice_memory_full") == 1, "it was, all the while"

        gateway.cli("rules", "set", "hold", "--messages", "1M/s", "--yes")
        published = hoarders.result()
        wait_until(lambda: value(gateway, "sluice_memory_full") == 0, within=30, what="memory is below four fifths of the mark")
        wait_until(lambda: (publisher.process_data_events(0.05), told)[1] == ["blocked", "unblocked"], within=30, what="it is told again")
        assert published.sent == HOARDERS * EACH
        assert sorted(held.drain()) == sorted(published.ids("A"))
        assert published.ids("?") == set(), "on a slow machine some had to wait for longer than max_delay and were told so; no one was not"
        assert free.drain() == ["first", "second"]
        assert sorted(fed) == sorted(f"d{number}" for number in range(50))
    events = [json.loads(line) for line in gateway.log().splitlines()]
    full = [event["full"] for event in events if event["event"] == "memory_watermark"]
    assert full == [True, False] * (len(full) // 2), "a slow machine may fill it again while it is emptied"
    assert full


def test_a_broker_that_stands_still_fills_memory_and_everything_arrives_when_it_goes_on(
    rabbitmq: RabbitMQ, start_gateway: StartGateway, tmp_path: Path
) -> None:
    """The flood goes on until memory is full: the kernel may hold 30 MB of a connection for a broker that does not read.

    Of each connection one read is held, so the messages are as large as one.
    """
    gateway: Gateway = start_gateway(
        [amqp_listener(f"127.0.0.1:{rabbitmq.port}")], [], memory={"per_connection": "256KiB", "high_watermark": "1MiB"}
    )
    enough = tmp_path / "enough"
    with Queue(rabbitmq.url, "still") as queue:
        shape = {"connections": 2 * HOARDERS, "rate": 16, "size": 256 * 1024, "window": 0}
        flood = go_publish(gateway.amqp_url(), "", queue.name, "flood", seconds=0.1, until=str(enough), **shape)
        wait_until(lambda: queue.depth() > HOARDERS, within=30, what="the flood's first messages")
        rabbitmq.pause()
        try:
            wait_until(lambda: value(gateway, "sluice_memory_full") == 1, within=30, what="memory is full")
            wait_until(lambda: "broker" in bottlenecks(gateway) <= {"broker", "memory"}, within=30, what="all that publish are stopped")
        finally:
            enough.touch()
            rabbitmq.resume()
        published = flood.result()
        assert sorted(queue.drain()) == sorted(published.ids("A"))
        assert published.count("A") == published.sent
    wait_until(lambda: value(gateway, "sluice_memory_full") == 0, within=30, what="memory is free again")
    assert value(gateway, "sluice_memory_full_seconds_total") > 0


def test_below_the_disks_mark_the_access_log_stops_and_nothing_else(rabbitmq: RabbitMQ, start_gateway: StartGateway) -> None:
    gateway: Gateway = start_gateway(
        [amqp_listener(f"127.0.0.1:{rabbitmq.port}")],
        [{"name": "all", "match": {"protocol": "amqp"}, "per": "topic", "limit": {"messages": "1M/s"}}],
        disk={"low_watermark": "1024GiB"},
    )
    with Queue(rabbitmq.url, "dry") as queue, contextlib.closing(pika.BlockingConnection(pika.URLParameters(gateway.amqp_url()))) as client:
        channel = client.channel()
        channel.confirm_delivery()
        channel.basic_publish("", queue.name, b"x", pika.BasicProperties(message_id="one"))
        wait_until(lambda: value(gateway, "sluice_access_log_lines_lost_total") > 2, within=30, what="lines are lost, and counted")
        assert queue.drain() == ["one"]
    assert value(gateway, "sluice_disk_low") == 1
    assert 0 < value(gateway, "sluice_disk_free_bytes") < 1 << 40
    assert gateway.answers("/readyz"), "traffic is served"
    (warning,) = gateway.get("/v1/status")["warnings"]
    assert warning.startswith("disk: ")
    gateway.cli("limits", "set", "rocketmq", "orders", "--messages", "5/s", "--yes")
    assert gateway.get("/v1/status")["revision"] == 1, "what operators change is little, and needed now"
    events = [json.loads(line) for line in gateway.log().splitlines()]
    assert [event["event"] for event in events].count("access_log_failed") == 1
    assert list(gateway.directory.glob("access-log/**/*.jsonl*")) == []
