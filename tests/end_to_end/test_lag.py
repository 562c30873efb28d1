"""Limits that follow their consumers (`algorithm: lag`), with the real brokers: the rate settles at what is taken, and rises again."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika
import pytest

from support.brokers.rabbitmq import RabbitMQ
from support.brokers.rocketmq import RocketMQ
from support.gateways import Gateway, amqp_listener
from support.processes import LOOPBACK
from support.rocketmq.frames import encode_request, read_response, send

FASTEST, SLOWEST, TARGET, SPEED = 1000, 20, 400, 200
SETTLE_S = 15.0  # and 5 more while it is measured: 20 in all
LIMIT = {"algorithm": "lag", "limit": {"messages": f"{FASTEST}/s", "burst": "100ms"}, "breaker": {"open_for": "0s"}}
UPDATE_CONSUMER_OFFSET = 15
UPDATE_SUBSCRIPTION_GROUP = 200
GET_MAX_OFFSET = 30


def usage(gateway: Gateway, rule: str) -> dict[str, Any]:
    """The one bucket of `rule`, as GET /v1/limits shows it."""
    (found,) = [item["level"]["usage"] for item in gateway.get("/v1/limits")["items"] if item["level"]["rule"] == rule]
    assert isinstance(found, dict)
    return found


def settle(gateway: Gateway, rule: str, backlog: Callable[[], int]) -> tuple[float, int]:
    """After SETTLE_S: how many messages per second pass, over 5 s, and the most that waited in all that time."""
    worst = 0
    end = time.monotonic() + SETTLE_S
    while time.monotonic() < end:
        time.sleep(0.5)
        worst = max(worst, backlog())
    before, since = usage(gateway, rule)["admitted"], time.monotonic()
    time.sleep(5)
    return (usage(gateway, rule)["admitted"] - before) / (time.monotonic() - since), worst


def await_fastest(gateway: Gateway, rule: str) -> float:
    """How long it takes until the limit is at its fastest; 30 s at most."""
    started = time.monotonic()
    while time.monotonic() - started < 30 and usage(gateway, rule)["rate_now"]["messages"] != f"{FASTEST}/s":
        time.sleep(0.25)
    return time.monotonic() - started


class Pace:
    """Times to do something `speed` times a second; a change of speed holds from the next time on."""

    def __init__(self, speed: float) -> None:
        self.speed = speed
        self.over = False

    def wait(self) -> bool:
        time.sleep(1 / self.speed if self.speed else 0)
        return not self.over


class Fast(threading.Thread):
    """Runs one function until told to stop; what it raised is raised by `end`."""

    def __init__(self, work: Callable[[Pace], None], speed: float) -> None:
        super().__init__(daemon=True)
        self.pace = Pace(speed)
        self._work = work
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._work(self.pace)
        except BaseException as error:
            self._error = error

    def end(self) -> None:
        self.pace.over = True
        self.join(10)
        if self._error is not None:
            raise self._error


@pytest.mark.rabbitmq
@pytest.mark.slow
def test_a_publisher_is_slowed_to_what_the_queues_consumer_takes(rabbitmq: RabbitMQ, tmp_path: Path) -> None:
    logging.getLogger("pika").setLevel(logging.ERROR)  # it warns of each nack
    (tmp_path / "password").write_text("guest\n")
    listener = amqp_listener(f"{LOOPBACK}:{rabbitmq.port}") | {"own_login": {"user": "guest", "password_file": str(tmp_path / "password")}}
    lag = {"queue": "lagging", "target": TARGET, "slowest": f"{SLOWEST}/s"}
    rule: dict[str, object] = {"name": "follows", "match": {"queue": "lagging"}, **LIMIT, "lag": lag}
    with pika.BlockingConnection(pika.URLParameters(rabbitmq.url)) as connection:
        connection.channel().queue_declare("lagging")
    with Gateway(tmp_path / "gateway", [listener], [rule]) as gateway:
        observer = pika.BlockingConnection(pika.URLParameters(rabbitmq.url))
        looking = observer.channel()

        def publish(pace: Pace) -> None:
            with pika.BlockingConnection(pika.URLParameters(gateway.amqp_url())) as connection:
                channel = connection.channel()
                channel.confirm_delivery()
                began, done = time.monotonic(), 0
                while not pace.over:
                    if done >= (time.monotonic() - began) * 1000:
                        time.sleep(0.001)
                        continue
                    done += 1
                    with contextlib.suppress(pika.exceptions.NackError):
                        channel.basic_publish("", "lagging", b"x" * 100)

        def consume(pace: Pace) -> None:
            with pika.BlockingConnection(pika.URLParameters(rabbitmq.url)) as connection:
                channel = connection.channel()
                channel.basic_qos(prefetch_count=20)
                began, taken = time.monotonic(), 0
                for method, _, _ in channel.consume("lagging", inactivity_timeout=0.2):
                    if pace.over:
                        return
                    if method is not None:
                        channel.basic_ack(method.delivery_tag)
                        taken += 1
                        if pace.speed:
                            connection.sleep(max(0.0, taken / pace.speed - (time.monotonic() - began)))

        producer, consumer = Fast(publish, FASTEST), Fast(consume, SPEED)
        producer.start()
        consumer.start()
        try:
            rate, worst = settle(gateway, "follows", lambda: looking.queue_declare("lagging", passive=True).method.message_count)
            consumer.pace.speed = 0  # as fast as it can
            rises = await_fastest(gateway, "follows")
        finally:
            producer.end()
            consumer.end()
            observer.close()
    assert SPEED * 0.7 <= rate <= SPEED * 1.3
    assert worst <= TARGET + (FASTEST - SPEED) * 5
    assert rises < 30


@pytest.mark.rocketmq
@pytest.mark.slow
def test_a_producer_is_slowed_to_what_the_group_commits(rocketmq: RocketMQ, tmp_path: Path) -> None:
    rocketmq.create_topics("lagging:1")
    lag = {"group": "slow-group", "target": TARGET, "slowest": f"{SLOWEST}/s"}
    rule: dict[str, object] = {"name": "follows", "match": {"protocol": "rocketmq", "topic": "lagging"}, **LIMIT, "lag": lag}
    with Gateway(tmp_path / "gateway", rocketmq.listeners, [rule]) as gateway:
        committed = 0

        def ask(connection: socket.socket, frame: bytes) -> dict[str, Any]:
            connection.sendall(frame)
            data = b""
            while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
                data += connection.recv(65536)
            return read_response(data)

        def produce(pace: Pace) -> None:
            with socket.create_connection((rocketmq.advertised, gateway.port("rocket")), timeout=10) as connection:
                began, done = time.monotonic(), 0
                while not pace.over:
                    if done >= (time.monotonic() - began) * 1000:
                        time.sleep(0.001)
                        continue
                    done += 1
                    assert ask(connection, send("lagging", b"x" * 100, opaque=4 * done))["code"] in (0, 215)  # that opaque: to queue 0

        def consume(pace: Pace) -> None:
            nonlocal committed
            with socket.create_connection((LOOPBACK, rocketmq.port), timeout=10) as connection:
                last = time.monotonic()
                made = encode_request(UPDATE_SUBSCRIPTION_GROUP, None, json.dumps({"groupName": "slow-group"}).encode())
                assert ask(connection, made)["code"] == 0
                while not pace.over:
                    time.sleep(0.1)
                    end = backlog_of(connection)[1]
                    now = time.monotonic()
                    committed = min(end, committed + round((now - last) * pace.speed)) if pace.speed else end
                    last = now
                    fields = {"consumerGroup": "slow-group", "topic": "lagging", "queueId": "0", "commitOffset": str(committed)}
                    assert ask(connection, encode_request(UPDATE_CONSUMER_OFFSET, fields))["code"] == 0

        def backlog_of(connection: socket.socket) -> tuple[int, int]:
            """How many messages wait, and the end of the queue."""
            fields = {"topic": "lagging", "queueId": "0"}
            end = int(ask(connection, encode_request(GET_MAX_OFFSET, fields))["extFields"]["offset"])
            return end - committed, end

        producer, consumer = Fast(produce, FASTEST), Fast(consume, SPEED)
        with socket.create_connection((LOOPBACK, rocketmq.port), timeout=10) as looking:
            producer.start()
            consumer.start()
            try:
                rate, worst = settle(gateway, "follows", lambda: backlog_of(looking)[0])
                consumer.pace.speed = 0
                rises = await_fastest(gateway, "follows")
            finally:
                producer.end()
                consumer.end()
    assert SPEED * 0.7 <= rate <= SPEED * 1.3
    assert worst <= TARGET + (FASTEST - SPEED) * 5
    assert rises < 30
