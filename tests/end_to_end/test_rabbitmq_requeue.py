"""A consumer that gives back all that it gets, on a real broker: held at its limit, beside one on its connection that is not."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pika
import pytest
from pika.exceptions import AMQPError, ChannelClosedByBroker

from support.brokers.rabbitmq import RabbitMQ
from support.gateways import Gateway, amqp_listener
from support.processes import HANG_S

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.rabbitmq

RATE = 100  # requeues a second
BURST = 10
LOOPS_S = 3.0
BACKLOG = 4000  # messages for the consumer beside the loop
PREFETCH = 20


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    with RabbitMQ(tmp_path_factory.mktemp("rabbitmq")) as started:
        yield started


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, broker: RabbitMQ) -> Iterator[Gateway]:
    limit = {"messages": f"{RATE}/s", "burst": {"messages": BURST}}
    rule = {"name": "loops", "match": {"queue": "loop.*", "operation": "requeue"}, "limit": limit, "action": "delay"}
    with Gateway(tmp_path_factory.mktemp("gateway"), [amqp_listener(f"127.0.0.1:{broker.port}")], [rule]) as started:
        yield started


@pytest.fixture
def direct(broker: RabbitMQ) -> Iterator[Any]:
    """A channel past the gateway."""
    with pika.BlockingConnection(pika.URLParameters(f"{broker.url}?heartbeat=0")) as past:
        channel = past.channel()
        channel.confirm_delivery()
        yield channel


def fill(direct: Any, name: str, count: int, **arguments: Any) -> str:
    """A fresh queue with so many messages, numbered from 0."""
    with suppress(ChannelClosedByBroker):
        direct.queue_delete(name)
    direct.queue_declare(name, durable=bool(arguments), arguments=arguments)
    for number in range(count):
        direct.basic_publish("", name, b"%d" % number)
    return name


class Client:
    """One connection through the gateway. `looped`: deliveries given back; `done`: numbers that were acknowledged."""

    def __init__(self, gateway: Gateway) -> None:
        self.connection = pika.BlockingConnection(pika.URLParameters(f"{gateway.amqp_url()}?heartbeat=0"))
        self.looped: list[int] = []
        self.again = 0
        self.done: list[int] = []

    def consume(self, queue: str, *, gives_back: bool, prefetch: int = PREFETCH) -> Any:
        channel = self.connection.channel()
        channel.basic_qos(prefetch_count=prefetch)

        def take(channel: Any, method: Any, _: Any, body: bytes) -> None:
            if gives_back:
                self.looped.append(int(body))
                self.again += method.redelivered
                channel.basic_nack(method.delivery_tag, requeue=True)
            else:
                self.done.append(int(body))
                channel.basic_ack(method.delivery_tag)

        channel.basic_consume(queue, take)
        return channel

    def run(self, seconds: float) -> float:
        begun = time.monotonic()
        while time.monotonic() - begun < seconds:
            self.connection.process_data_events(0.01)
        return time.monotonic() - begun


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_loop_is_held_at_its_limit_and_its_neighbour_is_not(gateway: Gateway, direct: Any, kind: str) -> None:
    arguments = {"x-queue-type": "quorum", "x-delivery-limit": 1_000_000} if kind == "quorum" else {}
    loop, beside = fill(direct, f"loop.{kind}", 50, **arguments), fill(direct, f"beside.{kind}", BACKLOG)
    client = Client(gateway)
    client.consume(loop, gives_back=True)
    client.consume(beside, gives_back=False)
    took = client.run(LOOPS_S)
    given_back = int(gateway.messages_by_fate("amqp", f"%2F/amq.default/{loop}", "requeue")["forwarded"])
    print(f"{kind}: {given_back / took:.1f}/s given back at {RATE}/s; beside it {len(client.done) / took:.0f}/s")
    assert given_back <= RATE * (took + 0.2) + BURST, "0.2 s for the question"
    assert given_back >= RATE * took * 0.5, "on two busy cores its client may be late"
    assert len(client.looped) <= given_back + PREFETCH + RATE * 0.2
    assert client.again > 0
    end = time.monotonic() + HANG_S
    while len(client.done) < BACKLOG:
        assert time.monotonic() < end, f"{len(client.done)} have come"
        client.run(0.05)
    assert sorted(client.done) == list(range(BACKLOG)), "each once"
    client.connection.close()
    assert wait_for_ready(direct, loop, 50), "all are back in their queue"


def wait_for_ready(direct: Any, queue: str, count: int) -> bool:
    end = time.monotonic() + HANG_S
    while time.monotonic() < end:
        if direct.queue_declare(queue, passive=True).method.message_count == count:
            return True
        time.sleep(0.02)
    return False


def test_an_acknowledgement_of_many_leaves_what_waits(gateway: Gateway, direct: Any) -> None:
    """With a limit of so much, the nacks wait; the broker must not take the ack for theirs."""
    queue = fill(direct, "loop.trap", 40)
    gateway.put("/v1/rules/loops", {"messages": "0/s"})
    client = Client(gateway)
    channel = client.connection.channel()
    tags: list[int] = []
    channel.basic_consume(queue, lambda _channel, method, _properties, _body: tags.append(method.delivery_tag))
    end = time.monotonic() + HANG_S
    while len(tags) < 40:
        assert time.monotonic() < end
        client.run(0.02)
    for tag in (5, 7, 8, 20):
        channel.basic_nack(tag, requeue=True)
    channel.basic_ack(30, multiple=True)
    channel.queue_declare("", exclusive=True)  # the broker has read all before it when this is answered
    client.connection.close()
    gateway.put("/v1/rules/loops", {"messages": f"{RATE}/s"})
    assert wait_for_ready(direct, queue, 14), "the four, and the ten that nobody has answered"
    left = sorted(int(direct.basic_get(queue, auto_ack=True)[2]) for _ in range(14))
    assert left == [4, 6, 7, 19, *range(30, 40)]


def test_a_consumer_of_one_at_a_time_stands_still_until_its_turn(gateway: Gateway, direct: Any) -> None:
    queue = fill(direct, "loop.single", 3)
    gateway.put("/v1/rules/loops", {"messages": "0/s"})
    client = Client(gateway)
    client.consume(queue, gives_back=True, prefetch=1)
    client.run(1.0)
    assert len(client.looped) == 1
    gateway.put("/v1/rules/loops", {"messages": f"{RATE}/s"})
    end = time.monotonic() + HANG_S
    while len(client.looped) < RATE:
        assert time.monotonic() < end, f"{len(client.looped)} have come"
        client.run(0.05)
    client.connection.close()
    assert wait_for_ready(direct, queue, 3)


def test_what_waits_past_the_brokers_consumer_timeout_is_in_its_queue_again(gateway: Gateway, broker: RabbitMQ, direct: Any) -> None:
    """The broker ends the channel (406), from 4.3 on its consumer alone, and nothing else of the connection."""
    queue, beside = fill(direct, "loop.late", 5, **{"x-queue-type": "quorum"}), fill(direct, "beside.late", 5)
    settings = "application:set_env(rabbit, consumer_timeout, {}), application:set_env(rabbit, channel_tick_interval, {})."
    broker.control("eval", settings.format(1000, 200))
    gateway.put("/v1/rules/loops", {"messages": "0/s"})
    client = Client(gateway)
    channel = client.consume(queue, gives_back=True, prefetch=5)
    client.consume(beside, gives_back=False)
    end = time.monotonic() + HANG_S
    while channel.is_open and channel.consumer_tags:
        assert time.monotonic() < end
        client.run(0.05)
    broker.control("eval", settings.format(1_800_000, 60_000))
    gateway.put("/v1/rules/loops", {"messages": f"{RATE}/s"})
    assert sorted(client.looped) == sorted(client.done) == list(range(5))
    assert wait_for_ready(direct, queue, 5)
    assert client.connection.channel().is_open
    client.connection.close()


def test_a_dead_gateway_loses_nothing_of_what_waits(gateway: Gateway, broker: RabbitMQ, direct: Any, tmp_path_factory: Any) -> None:
    queue = fill(direct, "loop.killed", 30)
    rule = {"name": "loops", "match": {"operation": "requeue"}, "limit": {"messages": "1/h"}, "action": "delay"}
    with Gateway(tmp_path_factory.mktemp("killed"), [amqp_listener(f"127.0.0.1:{broker.port}")], [rule]) as other:
        client = Client(other)
        client.consume(queue, gives_back=True, prefetch=30)
        end = time.monotonic() + HANG_S
        while len(client.looped) < 30:
            assert time.monotonic() < end
            client.run(0.02)
        client.run(0.2)
        other.kill()
        assert wait_for_ready(direct, queue, 30)
        with suppress(AMQPError):
            client.run(HANG_S)
