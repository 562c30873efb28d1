"""Several workers with a real RabbitMQ behind them: one limit, changes in force in all of them, and one that is killed is only itself."""

from __future__ import annotations

import json
import logging
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pika
import pika.exceptions
import pytest

from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.gateways import Gateway, StartGateway, amqp_listener, limit_path
from support.models.rates import let_through
from support.processes import wait_until

pytestmark = pytest.mark.rabbitmq
logging.getLogger("pika").setLevel(logging.ERROR)  # it writes a line for every nack

RATE = 500
WORKERS = 2
TURNS = 9  # seconds of load that moves from one worker to the other
RULE = {
    "name": "limited", "match": {"protocol": "amqp", "routing_key": "limited*"}, "per": "topic", "limit": {"messages": f"{RATE}/s"},
    "fallback": "drop",
}  # fmt: skip


class Sender:
    """One connection with a channel that confirms."""

    def __init__(self, url: str) -> None:
        self.connection = pika.BlockingConnection(pika.URLParameters(url))
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()
        self.unconfirmed = self.connection.channel()
        self.acked = 0
        self.offered: Counter[int] = Counter()  # of floods, in each 100 ms

    def send(self, key: str, seconds: float) -> None:
        """Publish one after the other, each when the last is settled, for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                self.channel.basic_publish("", key, b"x")
                self.acked += 1
            except pika.exceptions.NackError:
                time.sleep(0.0005)

    def flood(self, key: str, seconds: float) -> None:
        """Publish some four times the limit without waiting for anything, for so long; what a busy machine is late with comes at once."""
        begun = time.monotonic()
        published = 0
        while (passed := time.monotonic() - begun) < seconds:
            due = min(int(4 * RATE * passed) - published, RATE // 5)  # at most so many between two looks at the clock
            for _ in range(due):
                self.unconfirmed.basic_publish("", key, b"x")
            published += due
            self.offered[int(10 * time.monotonic())] += due
            self.connection.process_data_events(0)
            time.sleep(10 / (4 * RATE))

    def close(self) -> None:
        """Its worker may be gone."""
        with suppress(pika.exceptions.AMQPError):
            self.connection.close()


Spread = Callable[[], dict[int, Sender]]


@pytest.fixture
def spread(gateway: Gateway) -> Iterator[Spread]:
    """One sender on each worker, each time it is called; the kernel decides where a connection goes, so it takes as many as it takes."""
    senders: list[Sender] = []

    def spread() -> dict[int, Sender]:
        found: dict[int, Sender] = {}
        while len(found) < WORKERS:
            assert len(senders) < 80, "too many connections went to one worker"
            before = {each["id"] for each in gateway.get("/v1/connections")["items"]}
            senders.append(Sender(gateway.amqp_url()))
            (new,) = [each for each in gateway.get("/v1/connections")["items"] if each["id"] not in before]
            found.setdefault(int(new["worker"]), senders[-1])
        return found

    yield spread
    for sender in senders:
        sender.close()


@pytest.fixture
def gateway(rabbitmq: RabbitMQ, start_gateway: StartGateway) -> Gateway:
    started: Gateway = start_gateway(
        [amqp_listener(f"127.0.0.1:{rabbitmq.port}")], [RULE], gateway={"name": "workers", "state_directory": "state", "workers": WORKERS}
    )
    return started


def settled(gateway: Gateway, topic: str) -> dict[str, float]:
    """What became of the topic's messages, once no more come in."""
    fates = gateway.messages_by_fate("amqp", topic)
    while (later := gateway.messages_by_fate("amqp", topic)) != fates:
        fates = later
    return fates


def test_load_that_moves_every_second_meets_one_limit(rabbitmq: RabbitMQ, gateway: Gateway, spread: Spread) -> None:
    senders = spread()
    with Queue(rabbitmq.url, "limited-moving") as queue:
        topic = f"%2F/amq.default/{queue.name}"
        asked = time.monotonic()
        for turn in range(TURNS):
            senders[1 + turn % 2].flood(queue.name, 1.0)
        forwarded = gateway.messages_by_fate("amqp", topic)["forwarded"]
        at_most_s = time.monotonic() - asked
        for sender in senders.values():  # an answer behind all it has published: gateway and broker have it
            sender.unconfirmed.queue_declare(queue.name, passive=True)
        fates = settled(gateway, topic)
        limits = gateway.get("/v1/limits")["items"]
        total = queue.depth()
    offered = senders[1].offered + senders[2].offered
    assert offered.total() > 1.2 * RATE * TURNS, "the flood was none"
    assert 0.98 * (let_through(offered, RATE, RATE) - RATE) <= forwarded <= RATE + RATE * at_most_s  # the burst, then the rate
    assert total == fates["forwarded"]
    assert fates["received"] == fates["forwarded"] + fates["dropped"]
    (usage,) = [item["level"]["usage"] for item in limits if item["level"]["rule"] == "limited"]
    assert usage["admitted"] == total


def test_a_worker_that_is_killed_is_replaced_and_the_other_goes_on(rabbitmq: RabbitMQ, gateway: Gateway, spread: Spread) -> None:
    """And a change of the limit is in force in both when the answer is there; counters do not fall."""
    senders = spread()
    with Queue(rabbitmq.url, "limited-killed") as queue:
        senders[1].send(queue.name, 0.5)
        senders[2].send(queue.name, 0.5)
        topic = f"%2F/amq.default/{queue.name}"
        before = gateway.messages_by_fate("amqp", topic)
        pids = {each["worker"]: each["pid"] for each in gateway.get("/v1/status")["workers"]}
        os.kill(pids[1], signal.SIGKILL)
        with pytest.raises(pika.exceptions.AMQPError):
            senders[1].send(queue.name, 1.0)
        senders[2].send(queue.name, 0.5)
        gateway.process.wait_until(lambda: is_whole(gateway), within=30, what="a worker in the place of the killed one")
        after = gateway.messages_by_fate("amqp", topic)
        status = gateway.get("/v1/status")
        assert [each["memory"]["high_watermark"] for each in status["workers"]] == [(256 << 20) // 2] * 2  # an even part of the mark
        gateway.put(limit_path("amqp", "/", "amq.default", queue.name), {"messages": "0/s"})
        assert {each["worker"] for each in gateway.get("/v1/connections")["items"]} == {2}
        replacement = spread()
        for sender in (senders[2], *replacement.values()):
            acked = sender.acked
            sender.send(queue.name, 0.05)
            assert sender.acked == acked
    assert (status["workers_replaced"], status["ready"]) == (1, True)
    assert {each["worker"]: each["pid"] for each in status["workers"]}[2] == pids[2]
    assert all(after[fate] >= before[fate] for fate in ("received", "forwarded", "refused"))
    assert after["received"] == sum(after[fate] for fate in ("forwarded", "refused", "abandoned", "waiting"))
    assert '"event": "worker_ended"' in gateway.log()


def test_workers_end_with_their_parent_and_leave_whole_access_logs(rabbitmq: RabbitMQ, gateway: Gateway, spread: Spread) -> None:
    """A reload is in force in both before; then the parent is killed: nobody is left, and no line of the access log is."""
    senders = spread()
    gateway.write_rules([{**RULE, "limit": {"messages": "0/s"}}])
    assert gateway.request("POST", "/v1/config:reload").status == 200
    with Queue(rabbitmq.url, "limited-orphans") as queue:
        for sender in senders.values():
            sender.send(queue.name, 0.05)
        assert [sender.acked for sender in senders.values()] == [0, 0]
    pids = [each["pid"] for each in gateway.get("/v1/status")["workers"]]
    os.kill(gateway.process.pid, signal.SIGKILL)  # the parent alone
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), within=20.0, what="the end of the workers")
    logs = sorted((gateway.directory / "access-log").rglob("*.jsonl*"))
    lines = {path.name: [json.loads(line) for line in path.read_text().splitlines()] for path in logs}
    assert [path.suffix for path in logs] == [".jsonl", ".jsonl"]
    assert all([line["seq"] for line in each] == list(range(len(each))) for each in lines.values())
    refused = {line["boot"][-4:] for each in lines.values() for line in each if line.get("refused_messages")}
    assert refused == {"w1l0", "w2l0"}


def is_whole(gateway: Gateway) -> bool:
    answer = gateway.request("GET", "/readyz", authorised=False)
    return answer.status == 200
