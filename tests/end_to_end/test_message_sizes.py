"""A rule's `max_message_size`, and the broker's own: clients are told the same."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pika
import pika.exceptions
import pytest

from support.brokers.name_servers import read_frame
from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.brokers.rocketmq import RocketMQ
from support.gateways import Gateway, amqp_listener
from support.processes import HANG_S, LOOPBACK, wait_until
from support.rocketmq.frames import read_response, send

LIMITED: dict[str, object] = {"limit": {"messages": "1000/s"}, "max_message_size": "1kB"}
LARGEST = 1000


def refusal(url: str, queue: str, size: int) -> pika.exceptions.ChannelClosedByBroker:
    """What a publish of `size` bytes ends in, on a channel with confirms."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.confirm_delivery()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        channel.basic_publish("", queue, b"x" * size)
    assert connection.is_open
    connection.channel().basic_publish("", queue, b"y" * LARGEST)
    connection.close()
    return caught.value


@pytest.mark.rabbitmq
def test_a_channel_is_closed_as_by_rabbitmq_and_its_connection_goes_on(rabbitmq: RabbitMQ, start_gateway: Callable[..., Gateway]) -> None:
    rules = [{"name": "small", "match": {"queue": "sizes"}, **LIMITED}]
    gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}")], rules)
    with Queue(rabbitmq.url, "sizes") as queue:
        brokers = refusal(rabbitmq.url, "sizes", 136 << 20)
        ours = refusal(gateway.amqp_url(), "sizes", 136 << 20)
        small = refusal(gateway.amqp_url(), "sizes", LARGEST + 1)
        assert queue.depth() == 3
    assert ours.reply_code == small.reply_code == brokers.reply_code == 406
    assert all(each.reply_text.startswith("PRECONDITION_FAILED - message size ") for each in (brokers, ours, small))
    assert ours.reply_text == (
        f"PRECONDITION_FAILED - message size {136 << 20} is larger than configured max size {LARGEST} of rule small: %2F/amq.default/sizes"
    )
    (counted,) = [sample for sample in gateway.samples() if sample.labels.get("reason") == "size"]
    assert (counted.name, counted.labels["topic"], counted.value) == ("sluice_messages_refused_total", "%2F/amq.default/sizes", 2)
    wait_until(lambda: '"reason": "size"' in gateway.log() or "reason=size" in gateway.log(), within=HANG_S, what="limit_reached")
    assert "up to 1kB; a larger message is refused" in gateway.cli("why", "amqp", "/", "amq.default", "sizes").stdout


@pytest.mark.rocketmq
def test_rocketmq_says_message_illegal(rocketmq: RocketMQ, start_gateway: Callable[..., Gateway]) -> None:
    rocketmq.create_topics("sizes:1")
    start_gateway(rocketmq.listeners, [{"name": "small", "match": {"topic": "sizes"}, **LIMITED}])

    def told(address: str, size: int) -> dict[str, Any]:
        with socket.create_connection((address, rocketmq.port), timeout=HANG_S) as client:
            client.sendall(send("sizes", b"x" * size, opaque=4))
            return read_response(read_frame(client))

    through = rocketmq.advertised
    brokers, ours, large, fits = told(LOOPBACK, 5 << 20), told(through, LARGEST + 1), told(through, 3 << 20), told(through, LARGEST)
    assert [each["code"] for each in (brokers, ours, large, fits)] == [13, 13, 13, 0], [brokers, fits]
    assert ours["remark"] == f"[RateLimit] message body size {LARGEST + 1} is over max_message_size {LARGEST} of rule small"
    assert sum(rocketmq.stored("sizes").values()) == 1
