"""Channels that a rule closes, against the real broker: again and again under the same number, and while the broker closes them itself.

What clients see of all actions: test_client_actions.py; of a block and a delay beside acks: test_client_mixed.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pika
import pika.exceptions
import pytest

from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.gateways import Gateway, amqp_listener

pytestmark = pytest.mark.rabbitmq


@pytest.fixture(scope="module")
def gateway(rabbitmq: RabbitMQ, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Topics `two-...` let two messages a minute through, `one-...` one."""
    rules: list[dict[str, object]] = [
        {
            "name": f"hard-{name}", "match": {"protocol": "amqp", "routing_key": f"{name}-*"}, "per": "topic",
            "limit": {"messages": "1/min", "burst": {"messages": burst}}, "breaker": {"open_for": "0s"}, "action": "close",
        }
        for name, burst in (("two", 2), ("one", 1))
    ]  # fmt: skip
    with Gateway(tmp_path_factory.mktemp("closes"), [amqp_listener(f"127.0.0.1:{rabbitmq.port}")], rules) as running:
        yield running


@contextmanager
def connected(gateway: Gateway) -> Iterator[pika.BlockingConnection]:
    connection = pika.BlockingConnection(pika.URLParameters(gateway.amqp_url()))
    try:
        yield connection
    finally:
        if connection.is_open:
            connection.close()


def publish(channel: Any, key: str, *numbers: int) -> None:
    for number in numbers:
        channel.basic_publish("", key, b"x" * 200, pika.BasicProperties(message_id=str(number)))


def publish_and_read(channel: Any, queue: str, *numbers: int, commit: bool = False, nowhere: bool = False) -> None:
    """Publish (`nowhere`: to an exchange first that there is not), and then read what has come, by asking for something."""
    if nowhere:
        channel.basic_publish("no-such-exchange", "x", b"y")
    publish(channel, queue, *numbers)
    if commit:
        channel.tx_commit()
    channel.queue_declare(queue, passive=True)


@pytest.mark.parametrize("mode", ["plain", "confirms", "transaction"])
def test_close_ends_the_channel_with_506_and_its_number_can_be_used_again_at_once(rabbitmq: RabbitMQ, gateway: Gateway, mode: str) -> None:
    with Queue(rabbitmq.url, f"two-{mode}") as queue, Queue(rabbitmq.url, "free-close") as free, connected(gateway) as connection:
        other = connection.channel()
        other.confirm_delivery()
        for attempt in range(20):  # each time the same number, opened while the broker may still be closing it
            channel = connection.channel(2)
            if mode == "confirms":
                channel.confirm_delivery()
            elif mode == "transaction":
                channel.tx_select()
            with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
                publish_and_read(channel, queue.name, 1, 2, 3, commit=mode == "transaction")
            assert caught.value.reply_code == 506
            assert caught.value.reply_text.startswith(
                f"RESOURCE_ERROR - RATE_LIMITED - %2F/amq.default/{queue.name} is over its limit of 1/min of rule hard-two, wait "
            )
            publish(other, free.name, attempt)
        assert connection.is_open
        assert free.drain() == [str(attempt) for attempt in range(20)]
        assert queue.depth() == (0 if mode == "transaction" else 2)
    fates = gateway.messages_by_fate("amqp", f"%2F/amq.default/two-{mode}")
    assert fates["received"] == fates["forwarded"] + fates["refused"] + fates["abandoned"]
    assert fates["refused"] >= 20


def test_a_close_that_crosses_the_brokers_own_leaves_the_connection_whole(rabbitmq: RabbitMQ, gateway: Gateway) -> None:
    """The broker closes the channel (404, no such exchange) while the gateway closes it for its limit: in whichever order."""
    codes = []
    with Queue(rabbitmq.url, "one-crosses") as queue, connected(gateway) as connection:
        publish(connection.channel(), queue.name, 1)
        for _ in range(60):
            channel = connection.channel(5)
            with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
                publish_and_read(channel, queue.name, 2, nowhere=True)
            codes.append(caught.value.reply_code)
        assert connection.is_open
        publish(connection.channel(), "free-cross", 1)
    assert set(codes) <= {404, 506}
    assert codes.count(506) > 0
