"""An empty bucket over a restart, with a real broker."""

from __future__ import annotations

import time
from pathlib import Path

import pika
import pika.exceptions
import pytest

from gateway.lifecycle.fill_levels import parse
from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.gateways import Gateway, StartGateway, amqp_listener
from support.processes import HANG_S, wait_until

pytestmark = pytest.mark.rabbitmq

BURST = 1000  # more than passes until the file is written twice
SINCE = 5  # messages that have passed since the file was written, at least


def five_an_hour(burst: int) -> dict[str, object]:
    return {
        "name": "few", "match": {"protocol": "amqp"}, "per": "topic", "limit": {"messages": "5/h", "burst": {"messages": burst}},
        "breaker": {"open_for": "0s"},
    }  # fmt: skip


def confirmed(url: str, queue: str, count: int) -> int:
    """How many of `count` messages the gateway lets through."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.confirm_delivery()
    passed = 0
    for _ in range(count):
        try:
            channel.basic_publish("", queue, b"x")
            passed += 1
        except pika.exceptions.NackError:
            pass
    connection.close()
    return passed


def test_a_bucket_that_was_empty_is_empty_after_a_restart(rabbitmq: RabbitMQ, start_gateway: StartGateway) -> None:
    gateway: Gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}")], [five_an_hour(5)])
    with Queue(rabbitmq.url, "fills") as queue:
        assert confirmed(gateway.amqp_url(), queue.name, 8) == 5
        assert gateway.stop() == 0
        gateway.start()
        assert confirmed(gateway.amqp_url(), queue.name, 3) == 0


def test_after_a_kill_between_two_writes_only_what_passed_since_the_last_may_pass_again(
    rabbitmq: RabbitMQ, start_gateway: StartGateway
) -> None:
    """The file is about a second old at most (gateway/lifecycle/fill_levels.py). The gateway is killed while it lacks what has passed."""
    gateway: Gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}")], [five_an_hour(BURST)])
    file = gateway.directory / "state" / "fills"
    passed: list[float] = []  # when each was confirmed
    written: set[float] = set()

    def written_again_while_messages_pass() -> bool:
        channel.basic_publish("", queue.name, b"x")
        passed.append(time.time())
        if file.exists():
            written.add(true_at(file))
        return sum(at > passed[0] for at in written) >= 2 and sum(then > max(written) for then in passed) >= SINCE

    with Queue(rabbitmq.url, "fills") as queue:
        connection = pika.BlockingConnection(pika.URLParameters(gateway.amqp_url()))
        channel = connection.channel()
        channel.confirm_delivery()
        wait_until(written_again_while_messages_pass, within=30, what="fill levels written", every=0.02)
        gateway.kill()
        with pytest.raises(pika.exceptions.AMQPError):
            connection.process_data_events(time_limit=HANG_S)
        known = sum(then < true_at(file) for then in passed)
        gateway.start()
        again = confirmed(gateway.amqp_url(), queue.name, BURST)
        assert BURST - len(passed) <= again <= BURST - known, f"{len(passed)} passed, {known} of them before the file was written"


def true_at(file: Path) -> float:
    """When the fill levels in the file were true, in seconds since 1970."""
    return parse(file.read_bytes())[0]
