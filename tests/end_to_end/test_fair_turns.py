"""Clients that wait for one limit get equal parts of it, however many channels or requests they wait with. With real brokers."""

from __future__ import annotations

from collections import Counter

import pika
import pytest

from support.brokers.queues import connect
from support.brokers.rabbitmq import RabbitMQ
from support.gateways import StartGateway, amqp_listener
from support.processes import wait_until

RULE = {
    "name": "shared", "match": {"protocol": "amqp"}, "per": "topic", "limit": {"messages": "60/s", "burst": {"messages": 1}},
    "action": "delay", "breaker": {"open_for": "0s"},
}  # fmt: skip
CHANNELS = 20
LOOKED_AT = 480  # messages, of eight seconds: a dozen for each channel, which come in no order; of six one had none (2026-11)
QUEUE = "fair-turns"


@pytest.mark.rabbitmq
def test_channels_buy_no_shares(rabbitmq: RabbitMQ, start_gateway: StartGateway) -> None:
    gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}")], [RULE])
    url = pika.URLParameters(f"{gateway.amqp_url()}?heartbeat=0")
    many, one = pika.BlockingConnection(url), pika.BlockingConnection(url)
    with connect(rabbitmq.url) as past:
        direct = past.channel()
        direct.queue_declare(QUEUE)

        def stored() -> int:
            return int(direct.queue_declare(QUEUE, passive=True).method.message_count)

        channels = [many.channel() for _ in range(CHANNELS)]
        for channel in channels:
            for _ in range(25):
                channel.basic_publish("", QUEUE, b"many %d" % channel.channel_number)
        channel = one.channel()
        for _ in range(LOOKED_AT):
            channel.basic_publish("", QUEUE, b"one")
        before = stored()
        wait_until(lambda: stored() >= before + LOOKED_AT, within=60, what="messages pass")
        passed = Counter([direct.basic_get(QUEUE, auto_ack=True)[2] for _ in range(before + LOOKED_AT)][before:])
        gateway.put("/v1/rules/shared", {"messages": "100000/s"})
        many.close()
        one.close()
        direct.queue_delete(QUEUE)
    assert 0.25 * LOOKED_AT <= passed.pop(b"one") <= 0.75 * LOOKED_AT, f"{before} before both waited, then {passed} and others"
    assert len(passed) == CHANNELS, f"some channels have nothing: {passed}"
