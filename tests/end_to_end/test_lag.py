"""Limits that follow their consumers (`algorithm: lag`), with a real RabbitMQ: the rate settles at what is taken, and rises again."""

from __future__ import annotations

import contextlib
import logging
import time
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path

import pika
import pytest

from support.brokers.queues import connect
from support.brokers.rabbitmq import RabbitMQ
from support.followed_consumers import FASTEST, LIMIT, SLOWEST, SPEED, TARGET, Fast, Pace, await_fastest, members_of, settle
from support.gateways import Gateway, amqp_listener
from support.processes import LOOPBACK

PUBLISHERS = 4  # each waits for its confirms: on a busy machine one takes 10 ms


@pytest.mark.rabbitmq
@pytest.mark.slow
@members_of((1, 2))
def test_a_publisher_is_slowed_to_what_the_queues_consumer_takes(
    rabbitmq: RabbitMQ, tmp_path: Path, gateways: int, workers: int, seconds: int
) -> None:
    logging.getLogger("pika").setLevel(logging.ERROR)  # it warns of each nack
    (tmp_path / "password").write_text("guest\n")
    listener = amqp_listener(f"{LOOPBACK}:{rabbitmq.port}") | {"own_login": {"user": "guest", "password_file": str(tmp_path / "password")}}
    lag = {"queue": "lagging", "target": TARGET, "slowest": f"{SLOWEST}/s"}
    rule: dict[str, object] = {"name": "follows", "match": {"queue": "lagging"}, **LIMIT, "lag": lag}
    with connect(rabbitmq.url) as connection:
        connection.channel().queue_declare("lagging")
        connection.channel().queue_purge("lagging")
    settings = {"gateway": {"name": "lag", "state_directory": "state", "workers": workers}}
    with ExitStack() as stack:
        running = [stack.enter_context(Gateway(tmp_path / f"gateway{n}", [listener], [rule], settings)) for n in range(gateways)]
        turns = cycle(running)
        observer = connect(rabbitmq.url)
        looking = observer.channel()

        def depth() -> int:
            return int(looking.queue_declare("lagging", passive=True).method.message_count)

        def publish(pace: Pace) -> None:
            with pika.BlockingConnection(pika.URLParameters(next(turns).amqp_url())) as connection:
                channel = connection.channel()
                channel.confirm_delivery()
                for _ in pace.turns():
                    with contextlib.suppress(pika.exceptions.NackError):
                        channel.basic_publish("", "lagging", b"x" * 100)

        def consume(pace: Pace) -> None:
            with connect(rabbitmq.url) as connection:
                channel = connection.channel()
                channel.basic_qos(prefetch_count=20)
                began = time.monotonic()
                for method, _, _ in channel.consume("lagging", inactivity_timeout=0.2):
                    if pace.over:
                        return
                    if method is not None:
                        channel.basic_ack(method.delivery_tag)
                        taken.append(time.monotonic())
                        if pace.speed:
                            connection.sleep(max(0.0, len(taken) / pace.speed - (taken[-1] - began)))

        taken: list[float] = []  # when each message was taken
        consumer = Fast(consume, SPEED)
        threads = [consumer, *(Fast(publish, FASTEST / PUBLISHERS) for _ in range(PUBLISHERS))]
        for each in threads:
            each.start()
        try:
            rate, worst, waiting = settle(running, "follows", depth, seconds)
            speed = len([at for at in taken if at > taken[-1] - 5]) / 5  # less than SPEED on a busy machine
            consumer.pace.speed = 0  # as fast as it can
            await_fastest(running, "follows")
        finally:
            for each in threads:
                each.end()
            observer.close()
    assert speed * 0.7 <= rate <= SPEED * 1.3
    assert worst <= TARGET + (FASTEST - SPEED) * 5
    assert waiting <= 1.5 * TARGET
