"""What pika's users see of each action, against the real broker: channels closed, connections blocked, channels delayed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pika
import pika.exceptions
import pytest

from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.gateways import Gateway, amqp_listener, limit_path
from support.processes import HANG_S

pytestmark = pytest.mark.rabbitmq


def limited(action: str, rate: str, burst: int, **more: object) -> dict[str, object]:
    """A rule for every topic whose routing key starts with `limited`."""
    return {
        "name": "hard",
        "match": {"protocol": "amqp", "routing_key": "limited*"},
        "limit": {"messages": rate, "burst": {"messages": burst}},
        "breaker": {"open_for": "0s"},
        "action": action,
        **more,
    }


@pytest.fixture
def through(rabbitmq: RabbitMQ, start_gateway: Callable[..., Gateway]) -> Callable[..., Gateway]:
    """A gateway in front of the broker with this one rule."""
    return lambda *rule, **more: start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}")], [limited(*rule, **more)])


@contextmanager
def connected(gateway: Gateway, **more: Any) -> Iterator[pika.BlockingConnection]:
    parameters = pika.URLParameters(gateway.amqp_url())
    for name, value in more.items():
        setattr(parameters, name, value)
    connection = pika.BlockingConnection(parameters)
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


def until(condition: Callable[[], bool], connection: pika.BlockingConnection) -> None:
    deadline = time.monotonic() + HANG_S
    while not condition():
        assert time.monotonic() < deadline, "it hangs"
        connection.process_data_events(time_limit=0.05)


# ---- close -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["plain", "confirms", "transaction"])
def test_close_ends_the_channel_with_506_and_its_number_can_be_used_again_at_once(
    rabbitmq: RabbitMQ, through: Callable[..., Gateway], mode: str
) -> None:
    gateway = through("close", "1/min", 2)
    with Queue(rabbitmq.url, "limited-close") as queue, Queue(rabbitmq.url, "free-close") as free, connected(gateway) as connection:
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
                "RESOURCE_ERROR - RATE_LIMITED - %2F/amq.default/limited-close is over its limit of 1/min of rule hard, wait "
            )
            publish(other, free.name, attempt)
        assert connection.is_open
        assert free.drain() == [str(attempt) for attempt in range(20)]
        assert queue.depth() == (0 if mode == "transaction" else 2)
    fates = gateway.messages_by_fate("amqp", "%2F/amq.default/limited-close")
    assert fates["received"] == fates["forwarded"] + fates["refused"] + fates["abandoned"]
    assert fates["refused"] >= 20


def test_a_close_that_crosses_the_brokers_own_leaves_the_connection_whole(rabbitmq: RabbitMQ, through: Callable[..., Gateway]) -> None:
    """The broker closes the channel (404, no such exchange) while the gateway closes it for its limit: in whichever order."""
    gateway = through("close", "1/min", 1)
    codes = []
    with Queue(rabbitmq.url, "limited-cross") as queue, connected(gateway) as connection:
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


def test_an_override_of_one_topic_can_say_close(rabbitmq: RabbitMQ, through: Callable[..., Gateway]) -> None:
    gateway = through("delay", "1/min", 1)
    with Queue(rabbitmq.url, "limited-live") as queue, connected(gateway) as connection:
        gateway.put(limit_path("amqp", "/", "amq.default", queue.name), {"messages": "2/min", "action": "close", "max_delay": "8s"})
        channel = connection.channel()
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
            publish_and_read(channel, queue.name, 1, 2, 3, 4)
        assert "limited-live is over its limit of 2/min of rule hard" in caught.value.reply_text


# ---- block -------------------------------------------------------------------------------------------------------------


class Notices:
    """What a connection was told: True for blocked."""

    def __init__(self, connection: pika.BlockingConnection) -> None:
        self.heard: list[bool] = []
        self.reasons: list[str] = []
        connection.add_on_connection_blocked_callback(self.blocked)
        connection.add_on_connection_unblocked_callback(lambda *_: self.heard.append(False))

    def blocked(self, _: object, method: Any) -> None:
        self.heard.append(True)
        self.reasons.append(str(method.method.reason))


def test_block_tells_the_client_and_everything_arrives_in_order(rabbitmq: RabbitMQ, through: Callable[..., Gateway]) -> None:
    gateway = through("block", "100/s", 50)
    with Queue(rabbitmq.url, "limited-block") as queue, connected(gateway, heartbeat=2) as connection:
        notices = Notices(connection)
        channel = connection.channel()
        publish(channel, queue.name, *range(250))
        until(lambda: notices.heard == [True, False], connection)
        assert notices.reasons[0].startswith("RATE_LIMITED - %2F/amq.default/limited-block is over its limit of 100/s of rule hard, wait ")
        assert queue.drain() == [str(number) for number in range(250)]
        assert connection.is_open


# ---- delay -------------------------------------------------------------------------------------------------------------


def test_delay_holds_one_channel_its_acks_too_in_order_and_the_others_go_on(rabbitmq: RabbitMQ, through: Callable[..., Gateway]) -> None:
    gateway = through("delay", "5/s", 1, max_delay="4s")
    with (
        Queue(rabbitmq.url, "limited-delay") as queue,
        Queue(rabbitmq.url, "source") as source,
        connected(gateway) as connection,
    ):
        publish(connection.channel(), source.name, 1)
        worker = connection.channel()
        until(lambda: source.depth() == 1, connection)
        task, _, _ = worker.basic_get(source.name)
        publish(worker, queue.name, *range(10))
        worker.basic_ack(task.delivery_tag)
        answered = connection.channel().queue_declare(queue.name, passive=True)
        assert answered.method.message_count < 10, "the other channel waited for the held one"
        until(lambda: queue.depth() == 10, connection)
        assert queue.drain() == [str(number) for number in range(10)]
    assert gateway.messages_by_fate("amqp", "%2F/amq.default/limited-delay")["forwarded"] == 10
