"""Several workers with a real RabbitMQ behind them: one limit, changes in force in all of them, and one that is killed is only itself."""

from __future__ import annotations

import logging
import os
import signal
import time
from typing import Any

import pika
import pytest

from support.brokers.rabbitmq import RabbitMQ
from support.clients import go_publish
from support.gateways import Gateway, amqp_listener, limit_path
from support.queues import Queue

pytestmark = pytest.mark.rabbitmq
logging.getLogger("pika").setLevel(logging.ERROR)  # it writes a line for every nack

RATE = 500
TURNS = 9  # seconds of load that moves from one worker to the other
RULE = {
    "name": "limited", "match": {"protocol": "amqp", "routing_key": "limited*"}, "per": "topic", "limit": {"messages": f"{RATE}/s"},
}  # fmt: skip


def worker_of(connection: dict[str, Any]) -> int:
    return int(connection["worker"])


class Sender:
    """One connection with an open channel, without confirms: what is over the limit is held (`delay`), never more than the limit passes."""

    def __init__(self, url: str) -> None:
        self.connection = pika.BlockingConnection(pika.URLParameters(url))
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()
        self.acked = 0

    def flood(self, key: str, seconds: float) -> None:
        """Publish one after the other, each when the last is settled, for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                self.channel.basic_publish("", key, b"x")
                self.acked += 1
            except pika.exceptions.NackError:
                time.sleep(0.0005)

    def close(self) -> None:
        if self.connection.is_open:
            self.connection.close()


def spread(gateway: Gateway, workers: int = 2) -> dict[int, Sender]:
    """One sender on each worker; the kernel decides where a connection goes, so there are as many as it takes."""
    found: dict[int, Sender] = {}
    spare: list[Sender] = []
    for _ in range(40):
        before = {each["id"] for each in gateway.get("/v1/connections")["items"]}
        sender = Sender(gateway.amqp_url())
        (new,) = [each for each in gateway.get("/v1/connections")["items"] if each["id"] not in before]
        if worker_of(new) in found:
            spare.append(sender)
        else:
            found[worker_of(new)] = sender
        if len(found) == workers:
            break
    for sender in spare:
        sender.close()
    assert sorted(found) == list(range(1, workers + 1)), "40 connections went to one worker"
    return found


@pytest.fixture
def gateway(rabbitmq: RabbitMQ, start_gateway) -> Gateway:
    started: Gateway = start_gateway(
        [amqp_listener(f"127.0.0.1:{rabbitmq.port}")], [RULE], gateway={"name": "workers", "state_directory": "state", "workers": 2}
    )
    return started


def test_load_that_moves_every_second_meets_one_limit(rabbitmq: RabbitMQ, gateway: Gateway) -> None:
    senders = spread(gateway)
    with Queue(rabbitmq.url, "limited-moving") as queue:
        for worker in (1, 2, 1):  # the burst is used up
            senders[worker].flood(queue.name, 1.0)
        before = queue.depth()
        began = time.monotonic()
        for turn in range(TURNS):
            senders[1 + turn % 2].flood(queue.name, 1.0)
        elapsed = time.monotonic() - began
        arrived = queue.depth() - before
        limits = gateway.get("/v1/limits")["items"]
        fates = gateway.messages_by_fate("amqp", f"%2F/amq.default/{queue.name}")
        acked = sum(sender.acked for sender in senders.values())
        total = queue.depth()
    assert arrived == pytest.approx(RATE * elapsed, rel=0.02)
    assert acked == total == fates["forwarded"]
    assert fates["received"] == fates["forwarded"] + fates["refused"]
    (usage,) = [item["usage"] for item in limits if item["rule"] == "limited"]
    assert usage["admitted"] == total
    for sender in senders.values():
        sender.close()
