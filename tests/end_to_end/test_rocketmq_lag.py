"""Limits that follow their consumers (`algorithm: lag`), with a real RocketMQ: the rate settles at what is committed, and rises again."""

from __future__ import annotations

import json
import socket
import time
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from support.brokers.rocketmq import RocketMQ
from support.followed_consumers import FASTEST, LIMIT, SLOWEST, SPEED, TARGET, Fast, Pace, await_fastest, members_of, settle
from support.gateways import Gateway
from support.processes import HANG_S, LOOPBACK
from support.rocketmq.frames import encode_request, read_response, send

UPDATE_CONSUMER_OFFSET = 15
UPDATE_SUBSCRIPTION_GROUP = 200
GET_MAX_OFFSET = 30
UNDER_WAY = 20  # sends without an answer: on a busy machine one takes 10 ms


def next_answer(stream: BinaryIO) -> dict[str, Any]:
    size = stream.read(4)
    return read_response(size + stream.read(int.from_bytes(size, "big")))


@pytest.mark.rocketmq
@pytest.mark.slow
@members_of((1, 1))
def test_a_producer_is_slowed_to_what_the_group_commits(
    rocketmq: RocketMQ, tmp_path: Path, gateways: int, workers: int, seconds: int
) -> None:
    topic = f"lagging-{gateways}-{workers}"
    rocketmq.create_topics(f"{topic}:1")
    lag = {"group": "slow-group", "target": TARGET, "slowest": f"{SLOWEST}/s"}
    rule: dict[str, object] = {"name": "follows", "match": {"protocol": "rocketmq", "topic": topic}, **LIMIT, "lag": lag}
    listeners = [{"name": "plain", "protocol": "rocketmq", "bind": f"{LOOPBACK}:0", "upstream": f"{LOOPBACK}:{rocketmq.port}"}]
    settings = {"gateway": {"name": "lag", "state_directory": "state", "workers": workers}}
    with ExitStack() as stack:
        running = [stack.enter_context(Gateway(tmp_path / f"gateway{n}", listeners, [rule], settings)) for n in range(gateways)]
        turns = cycle(running)
        committed = 0

        def ask(connection: socket.socket, frame: bytes) -> dict[str, Any]:
            connection.sendall(frame)
            with connection.makefile("rb") as answers:  # one at a time, so nothing is read ahead and lost
                return next_answer(answers)

        def produce(pace: Pace) -> None:
            address = LOOPBACK, next(turns).port("plain")
            with socket.create_connection(address, timeout=HANG_S) as connection, connection.makefile("rb") as answers:
                for number in pace.turns():
                    connection.sendall(send(topic, b"x" * 100, opaque=4 * number))  # that opaque: to queue 0
                    if number > UNDER_WAY:
                        assert next_answer(answers)["code"] in (0, 215)

        def consume(pace: Pace) -> None:
            nonlocal committed
            with socket.create_connection((LOOPBACK, rocketmq.port), timeout=HANG_S) as connection:
                last = time.monotonic()
                made = encode_request(UPDATE_SUBSCRIPTION_GROUP, None, json.dumps({"groupName": "slow-group"}).encode())
                assert ask(connection, made)["code"] == 0
                while not pace.over:
                    time.sleep(0.1)
                    end = backlog_of(connection)[1]
                    now = time.monotonic()
                    committed = min(end, committed + round((now - last) * pace.speed)) if pace.speed else end
                    last = now
                    fields = {"consumerGroup": "slow-group", "topic": topic, "queueId": "0", "commitOffset": str(committed)}
                    assert ask(connection, encode_request(UPDATE_CONSUMER_OFFSET, fields))["code"] == 0

        def backlog_of(connection: socket.socket) -> tuple[int, int]:
            """How many messages wait, and the end of the queue."""
            fields = {"topic": topic, "queueId": "0"}
            end = int(ask(connection, encode_request(GET_MAX_OFFSET, fields))["extFields"]["offset"])
            return end - committed, end

        producers, consumer = [Fast(produce, FASTEST / gateways) for _ in running], Fast(consume, SPEED)
        with socket.create_connection((LOOPBACK, rocketmq.port), timeout=HANG_S) as looking:
            for each in (*producers, consumer):
                each.start()
            try:
                rate, worst, waiting = settle(running, "follows", lambda: backlog_of(looking)[0], seconds)
                consumer.pace.speed = 0
                await_fastest(running, "follows")
            finally:
                for each in (*producers, consumer):
                    each.end()
    assert SPEED * 0.7 <= rate <= SPEED * 1.3
    assert worst <= TARGET + (FASTEST - SPEED) * 5
    assert waiting <= 1.5 * TARGET
