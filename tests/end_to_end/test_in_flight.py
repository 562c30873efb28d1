"""Limits on what is in flight, before the real brokers: never more than allowed, refused natively beyond, all slots free in the end."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from support.brokers.in_flight import Unconfirmed
from support.brokers.name_servers import read_frame
from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.brokers.rocketmq import RocketMQ
from support.clients.programs import go_publish
from support.gateways import Gateway, StartGateway, amqp_listener
from support.processes import HANG_S, free_ports, wait_until
from support.rocketmq.frames import read_response, send

AT_MOST = 8
RULE: dict[str, object] = {"name": "few", "per": "topic", "limit": {"concurrent": AT_MOST}, "algorithm": "concurrency"}
FOUND: dict[str, object] = {
    "name": "found",
    "per": "topic",
    "limit": {"concurrent": 500},
    "algorithm": "adaptive",
    "adaptive": {"at_least": AT_MOST, "start": 50},
    "action": "delay",
}


def usage(gateway: Gateway) -> dict[str, int]:
    """What is in flight, and how many may be, of the one topic."""
    (item,) = gateway.get("/v1/limits")["items"]
    told = item["level"]["usage"]
    return {name: told[name] for name in ("in_flight", "concurrent_now")}


@contextmanager
def watched(gateway: Gateway) -> Iterator[list[dict[str, int]]]:
    """Meanwhile, what the gateway says again and again."""
    seen: list[dict[str, int]] = []
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.02):
            if gateway.get("/v1/limits")["items"]:
                seen.append(usage(gateway))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield seen
    finally:
        done.set()
        watcher.join()


@pytest.mark.rabbitmq
def test_rabbitmq_has_never_more_unconfirmed_publishes_than_allowed(rabbitmq: RabbitMQ, start_gateway: StartGateway) -> None:
    (port,) = free_ports(1)
    with Unconfirmed(port, rabbitmq.port) as between, Queue(rabbitmq.url, "in-flight") as queue:
        gateway: Gateway = start_gateway([amqp_listener(f"127.0.0.1:{port}")], [RULE])
        with watched(gateway) as seen:
            published = go_publish(gateway.amqp_url(), "", queue.name, "run", connections=2, count=4000).result()
        arrived = queue.drain()
    assert published.count("?") == 0
    assert published.count("N") > 0
    assert len(arrived) == published.count("A") > AT_MOST
    assert set(arrived) == published.ids("A")
    assert between.most == AT_MOST
    assert all(each["in_flight"] <= AT_MOST for each in seen)
    assert usage(gateway) == {"in_flight": 0, "concurrent_now": AT_MOST}


@pytest.mark.rabbitmq
def test_rabbitmq_has_no_more_unconfirmed_publishes_of_three_workers(rabbitmq: RabbitMQ, start_gateway: StartGateway) -> None:
    """Those of one process, and one of each other worker, which passes on credit when it begins."""
    (port,) = free_ports(1)
    with Unconfirmed(port, rabbitmq.port) as between, Queue(rabbitmq.url, "in-flight-shared") as queue:
        own = {"name": "three", "state_directory": "state", "workers": 3}
        gateway: Gateway = start_gateway([amqp_listener(f"127.0.0.1:{port}")], [RULE], gateway=own)
        published = go_publish(gateway.amqp_url(), "", queue.name, "run", connections=6, seconds=4.0, rate=800).result()
        arrived = queue.drain()
    assert published.count("?") == 0
    assert published.count("N") > 0
    assert len(arrived) == published.count("A")
    assert AT_MOST <= between.most <= AT_MOST + 2
    wait_until(lambda: usage(gateway)["in_flight"] == 0, within=15, what="all places given back")


@pytest.mark.rabbitmq
def test_an_adaptive_limit_that_delays_loses_nothing_at_rabbitmq(rabbitmq: RabbitMQ, start_gateway: StartGateway) -> None:
    gateway: Gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}")], [FOUND])
    with Queue(rabbitmq.url, "in-flight-found") as queue:
        published = go_publish(gateway.amqp_url(), "", queue.name, "run", connections=2, seconds=2.0, rate=1500).result()
        arrived = queue.drain()
    assert published.count("?") == 0
    assert published.count("A") == len(arrived) > 500
    now = usage(gateway)
    assert now["in_flight"] == 0
    assert AT_MOST <= now["concurrent_now"] <= 500


@pytest.mark.rocketmq
def test_rocketmq_has_never_more_unanswered_sends_than_allowed(rocketmq: RocketMQ, start_gateway: StartGateway) -> None:
    rocketmq.create_topics("in-flight")
    gateway: Gateway = start_gateway(rocketmq.listeners, [RULE])
    answers: Counter[object] = Counter()
    with watched(gateway) as seen, socket.create_connection((rocketmq.advertised, rocketmq.port), timeout=HANG_S) as client:
        for burst in range(20):
            first = 1 + burst * 50
            client.sendall(b"".join(send("in-flight", b"x" * 500, opaque=number) for number in range(first, first + 50)))
            answers.update(read_response(read_frame(client))["code"] for _ in range(50))
    assert set(answers) == {0, 215}
    assert answers[0] >= 20 * AT_MOST
    assert rocketmq.stored("in-flight") == {"in-flight": answers[0]}
    assert all(each["in_flight"] <= AT_MOST for each in seen)
    assert usage(gateway) == {"in_flight": 0, "concurrent_now": AT_MOST}
