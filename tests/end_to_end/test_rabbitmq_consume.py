"""Consumers behind the gateway: a limited queue comes at its rate, whole and in order, and nothing else on the broker notices."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter

import pika
import pytest

from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.gateways import Gateway, StartGateway, amqp_listener
from support.models.rates import bounds, in_its_best_second
from support.processes import HANG_S

pytestmark = pytest.mark.rabbitmq

RATE = 100
BURST = 20
WINDOW_S = 5.0
LIMITED = {
    "name": "slow-consumers",
    "match": {"queue": "slow*", "operation": "consume"},
    "limit": {"messages": f"{RATE}/s", "burst": {"messages": BURST}},
}


def connect(url: str) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.URLParameters(url))


def fill(url: str, queue: str, count: int) -> None:
    """`count` messages numbered from 0, put there past the gateway."""
    with connect(url) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number in range(count):
            channel.basic_publish("", queue, b"%d" % number)


class Consumer(threading.Thread):
    """Takes everything from one queue and acknowledges it, and meanwhile publishes with confirms on a channel of the same connection."""

    def __init__(self, url: str, queue: str, count: int, publishes_to: str | None = None) -> None:
        super().__init__(daemon=True)
        self.url = url
        self.queue = queue
        self.count = count
        self.publishes_to = publishes_to
        self.received: list[tuple[float, int]] = []
        self.confirmed = 0
        self.error: BaseException | None = None
        self.started_at = 0.0

    def run(self) -> None:
        try:
            with connect(self.url) as connection:
                self._consume(connection)
        except BaseException as error:
            self.error = error

    def _consume(self, connection: pika.BlockingConnection) -> None:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=200)
        sender = connection.channel()
        sender.confirm_delivery()
        self.started_at = time.monotonic()
        for method, _, body in channel.consume(self.queue, inactivity_timeout=HANG_S):
            assert method is not None, "no delivery any more"
            self.received.append((time.monotonic(), int(body)))
            channel.basic_ack(method.delivery_tag)
            if self.publishes_to and len(self.received) % 25 == 0:
                sender.basic_publish("", self.publishes_to, b"confirmed")  # returns when the broker has confirmed it
                self.confirmed += 1
            if len(self.received) == self.count:
                break
        channel.cancel()

    def finish(self) -> Consumer:
        self.join(HANG_S)
        assert not self.is_alive(), f"{len(self.received)} of {self.count}"
        if self.error is not None:
            raise self.error
        return self


def logged(gateway: Gateway, queue: str) -> dict[str, int]:
    """What the access log says was consumed from a queue."""
    sums = dict.fromkeys(("messages", "bytes", "refused_messages", "dropped_messages"), 0)
    for path in sorted((gateway.directory / "access-log").glob("dt=*/hr=*/*.jsonl*")):
        for line in map(json.loads, path.read_text().splitlines()):
            if line.get("operation") == "consume" and line["topic"] == f"%2F/amq.default/{queue}":
                for name in sums:
                    sums[name] += line[name]
    return sums


def test_a_limited_queue_comes_at_its_rate_and_the_rest_at_full_speed(rabbitmq: RabbitMQ, start_gateway: StartGateway) -> None:
    gateway: Gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}")], [LIMITED])
    url = gateway.amqp_url()
    with Queue(rabbitmq.url, "slow-jobs") as slow, Queue(rabbitmq.url, "quick") as quick, Queue(rabbitmq.url, "answers") as answers:
        fill(rabbitmq.url, slow.name, 1000)
        fill(rabbitmq.url, quick.name, 3000)
        limited = Consumer(url, slow.name, 1000, publishes_to=answers.name)
        free = Consumer(url, quick.name, 3000)
        limited.start()
        free.start()
        free.finish()
        assert len(limited.received) < 1000, "the queue nobody limits took longer than the limited one"
        while limited.started_at == 0 or time.monotonic() - limited.started_at < WINDOW_S:
            time.sleep(0.1)
        end = limited.started_at + WINDOW_S
        seen = gateway.messages_by_fate("amqp", f"%2F/amq.default/{slow.name}", "consume")
        gateway.put("/v1/rules/slow-consumers", {"messages": "100000/s"})
        limited.finish()
        passed = sum(at <= end for at, _ in limited.received)
        _, at_most = bounds(RATE, WINDOW_S, BURST)
        assert passed <= at_most
        assert in_its_best_second(Counter(int(10 * at) for at, _ in limited.received if at <= end)) >= 0.9 * RATE
        assert [number for _, number in limited.received] == list(range(1000))
        assert [number for _, number in free.received] == list(range(3000))
        assert limited.confirmed == answers.depth() == 40
        assert (slow.depth(), quick.depth()) == (0, 0)
    assert seen["received"] == seen["forwarded"] + seen["waiting"]
    assert seen["waiting"] > 0
    (topic,) = [
        item for item in gateway.get("/v1/topics")["items"] if item["topic"].endswith("/slow-jobs") and item["operation"] == "consume"
    ]
    assert (topic["received"], topic["forwarded"], topic["refused"], topic["dropped"]) == (1000, 1000, 0, 0)
    assert gateway.stop() == 0
    size = sum(len(str(number)) for number in range(1000))
    assert logged(gateway, "slow-jobs") == {"messages": 1000, "bytes": size, "refused_messages": 0, "dropped_messages": 0}


def test_deliveries_that_a_consumer_leaves_behind_are_delivered_again(rabbitmq: RabbitMQ, start_gateway: StartGateway) -> None:
    """Closing a channel does not wait for what is held for it, and none of that is lost."""
    gateway: Gateway = start_gateway(
        [amqp_listener(f"127.0.0.1:{rabbitmq.port}")], [LIMITED | {"limit": {"messages": "20/s", "burst": {"messages": 1}}}]
    )
    path = "%2F/amq.default/slow-left"
    with Queue(rabbitmq.url, "slow-left") as queue:
        fill(rabbitmq.url, queue.name, 200)
        with connect(gateway.amqp_url()) as connection:
            channel = connection.channel()
            taken = []
            channel.basic_consume(queue.name, lambda _channel, method, _properties, body: taken.append((method.delivery_tag, int(body))))
            while not taken or gateway.messages_by_fate("amqp", path, "consume")["received"] < 20:
                connection.process_data_events(0.05)
            channel.basic_ack(taken[0][0])
            acked = len(taken[:1])
            channel._impl.close(200, "bye")  # not `channel.close()`: pika cancels its consumers first
            while not channel._impl.is_closed:
                connection.process_data_events(0.05)
            assert len(taken) < 100
            again = connection.channel()
            assert again.queue_declare(queue.name, passive=True).method.message_count == 200 - acked
        gateway.put("/v1/rules/slow-consumers", {"messages": "100000/s"})
        with connect(gateway.amqp_url()) as connection:
            channel = connection.channel()
            rest = []
            for method, _, body in channel.consume(queue.name, inactivity_timeout=HANG_S):
                assert method is not None, "no delivery any more"
                rest.append(int(body))
                channel.basic_ack(method.delivery_tag)
                if len(rest) == 200 - acked:
                    break
            channel.cancel()
        assert rest == list(range(acked, 200))
        assert queue.depth() == 0
    fates = gateway.messages_by_fate("amqp", path, "consume")
    assert fates["received"] == fates["forwarded"] + fates["abandoned"]
    assert fates["abandoned"] > 0


def test_single_messages_asked_for_wait_too(rabbitmq: RabbitMQ, start_gateway: StartGateway) -> None:
    rule = LIMITED | {"limit": {"messages": "20/s", "burst": {"messages": 1}}}
    gateway: Gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}")], [rule])
    with Queue(rabbitmq.url, "slow-gets") as queue, connect(gateway.amqp_url()) as connection:
        fill(rabbitmq.url, queue.name, 20)
        channel = connection.channel()
        started = time.monotonic()
        got = [channel.basic_get(queue.name, auto_ack=True)[2] for _ in range(21)]
        took = time.monotonic() - started
    assert got == [*(b"%d" % number for number in range(20)), None]
    assert took >= 19 / 20 * 0.99  # never faster than the limit; how much slower is the machine's affair


def test_settling_everything_settles_what_the_client_has_got(rabbitmq: RabbitMQ, start_gateway: StartGateway) -> None:
    """basic.ack of tag 0, with messages that wait here: none is lost, and acknowledging those later does not cost the channel."""
    rule = LIMITED | {"limit": {"messages": "20/s", "burst": {"messages": 10}}}
    gateway: Gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}")], [rule])
    with Queue(rabbitmq.url, "slow-everything") as queue:
        fill(rabbitmq.url, queue.name, 60)
        with connect(gateway.amqp_url()) as connection:
            channel = connection.channel()
            taken: list[int] = []
            channel.basic_consume(queue.name, lambda _channel, _method, _properties, body: taken.append(int(body)))
            while len(taken) < 10:
                connection.process_data_events(0.01)
            channel.basic_ack(0, multiple=True)
            while len(taken) < 20:
                connection.process_data_events(0.01)
            last = len(taken)
            channel.basic_ack(last)
            channel.basic_ack(0, multiple=True)  # the last one that is still open is the one before
            channel._impl.close(200, "bye")
            while not channel._impl.is_closed:
                connection.process_data_events(0.05)
            again = connection.channel()
            assert again.queue_declare(queue.name, passive=True).method.message_count == 60 - last
    assert taken == list(range(last))


@pytest.mark.parametrize("waits_for_answer", [True, False])
def test_what_waits_when_a_client_recovers_comes_again_once(
    rabbitmq: RabbitMQ, start_gateway: StartGateway, waits_for_answer: bool
) -> None:
    rule = LIMITED | {"limit": {"messages": "50/s", "burst": {"messages": 5}}}
    gateway: Gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}")], [rule])
    with Queue(rabbitmq.url, f"slow-recovered-{waits_for_answer}") as queue, connect(gateway.amqp_url()) as connection:
        fill(rabbitmq.url, queue.name, 40)
        channel = connection.channel()
        taken: list[tuple[int, int]] = []
        channel.basic_consume(queue.name, lambda _channel, method, _properties, body: taken.append((method.delivery_tag, int(body))))
        while len(taken) < 5:
            connection.process_data_events(0.01)
        if waits_for_answer:
            channel.basic_recover(requeue=True)
        else:
            channel._impl._send_method(pika.spec.Basic.RecoverAsync(requeue=True))
        while len(taken) < 45 or taken[-40][1] != 0:  # more may have passed before the broker heard it
            connection.process_data_events(0.01)
        assert [number for _, number in taken] == [*range(len(taken) - 40), *range(40)]
        assert len(taken) < 80, "all that waited has come twice"
        for tag, _ in taken[-40:]:
            channel.basic_ack(tag)  # a stale one would close the channel
        assert channel.queue_declare(queue.name, passive=True).method.message_count == 0
        channel._impl.close(200, "bye")
        while not channel._impl.is_closed:
            connection.process_data_events(0.05)
        assert connection.channel().queue_declare(queue.name, passive=True).method.message_count == 0
