"""Limits on what is in flight, before the real brokers: never more than allowed, refused natively beyond, all slots free in the end."""

from __future__ import annotations

import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from pamqp import commands

from support.amqp import frames as amqp
from support.brokers.name_servers import read_frame
from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.brokers.redis_server import RedisServer
from support.brokers.rocketmq import RocketMQ
from support.brokers.splice import Splice
from support.clients.paced_sends import flood
from support.clients.programs import go_publish
from support.gateways import Gateway, StartGateway, amqp_listener
from support.processes import HANG_S, LOOPBACK, free_ports, wait_until
from support.rocketmq.frames import read_response, send

AT_MOST = 8
SEND = 310
RULE: dict[str, object] = {"name": "few", "per": "topic", "limit": {"concurrent": AT_MOST}, "algorithm": "concurrency"}
FOUND: dict[str, object] = {
    "name": "found",
    "per": "topic",
    "limit": {"concurrent": 500},
    "algorithm": "adaptive",
    "adaptive": {"at_least": AT_MOST, "start": 50},
    "action": "delay",
}


def usage(gateway: Gateway) -> dict[str, int]:
    """What is in flight, and how many may be, of the one topic."""
    (item,) = gateway.get("/v1/limits")["items"]
    told = item["level"]["usage"]
    return {name: told[name] for name in ("in_flight", "concurrent_now")}


@contextmanager
def watched(gateway: Gateway) -> Iterator[list[dict[str, int]]]:
    """Meanwhile, what the gateway says again and again."""
    seen: list[dict[str, int]] = []
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.02):
            if gateway.get("/v1/limits")["items"]:
                seen.append(usage(gateway))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield seen
    finally:
        done.set()
        watcher.join()


class InFlight(Splice):
    """Between the gateway and a broker: counts what has gone by and has no answer yet, on all connections."""

    def __init__(self, port: int, broker: int) -> None:
        self.most = 0
        self.waiting: dict[socket.socket, list[int]] = {}
        self._lock = threading.Lock()
        super().__init__((LOOPBACK, port), (LOOPBACK, broker))

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        upwards = sink.getpeername() == self.upstream
        broker = sink if upwards else source
        rest = b""
        with suppress(OSError):
            while data := source.recv(65536):
                rest += data
                while len(rest) >= 8 and len(rest) >= (size := self.size_of(rest)):
                    with self._lock:
                        self.look(broker, rest[:size], self.waiting.setdefault(broker, []))
                        self.most = max(self.most, sum(map(len, self.waiting.values())))
                    rest = rest[size:]
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    @staticmethod
    def size_of(begun: bytes) -> int:
        """Bytes of the frame that begins so."""
        raise NotImplementedError

    def look(self, broker: socket.socket, raw: bytes, waiting: list[int]) -> None:
        """One frame of either direction; `waiting` has the numbers of what this connection to the broker has no answer for."""
        raise NotImplementedError


class Unconfirmed(InFlight):
    """Publishes before RabbitMQ."""

    def __init__(self, port: int, broker: int) -> None:
        self._published: Counter[socket.socket] = Counter()
        super().__init__(port, broker)

    @staticmethod
    def size_of(begun: bytes) -> int:
        return 8 if begun.startswith(b"AMQP") else 8 + int.from_bytes(begun[3:7], "big")

    def look(self, broker: socket.socket, raw: bytes, waiting: list[int]) -> None:
        value = amqp.read_raw(raw).value if raw[0] == 1 else None
        if isinstance(value, commands.Basic.Publish):
            self._published[broker] += 1
            waiting.append(self._published[broker])
        elif isinstance(value, commands.Basic.Ack | commands.Basic.Nack):
            waiting[:] = [tag for tag in waiting if (tag > value.delivery_tag if value.multiple else tag != value.delivery_tag)]


class Unanswered(InFlight):
    """Sends before RocketMQ."""

    @staticmethod
    def size_of(begun: bytes) -> int:
        return 4 + int.from_bytes(begun[:4], "big")

    def look(self, broker: socket.socket, raw: bytes, waiting: list[int]) -> None:
        header = json.loads(raw[8 : 8 + int.from_bytes(raw[5:8], "big")])
        if header["flag"] & 1 and header["opaque"] in waiting:
            waiting.remove(header["opaque"])
        elif header["code"] == SEND:
            waiting.append(header["opaque"])


@pytest.mark.rabbitmq
def test_rabbitmq_has_never_more_unconfirmed_publishes_than_allowed(rabbitmq: RabbitMQ, start_gateway: StartGateway) -> None:
    (port,) = free_ports(1)
    with Unconfirmed(port, rabbitmq.port) as between, Queue(rabbitmq.url, "in-flight") as queue:
        gateway: Gateway = start_gateway([amqp_listener(f"127.0.0.1:{port}")], [RULE])
        with watched(gateway) as seen:
            published = go_publish(gateway.amqp_url(), "", queue.name, "run", connections=2, count=4000).result()
        arrived = queue.drain()
    assert published.count("?") == 0
    assert published.count("N") > 0
    assert len(arrived) == published.count("A") > AT_MOST
    assert set(arrived) == published.ids("A")
    assert between.most == AT_MOST
    assert all(each["in_flight"] <= AT_MOST for each in seen)
    assert usage(gateway) == {"in_flight": 0, "concurrent_now": AT_MOST}


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path / "redis") as server:
        yield server


several_members = pytest.mark.parametrize(
    ("gateways", "workers"), [(1, 3), pytest.param(2, 1, marks=pytest.mark.long)], ids=["three workers", "two gateways"]
)


def start_members(
    start_gateway: StartGateway, redis_server: RedisServer, listener: dict[str, object], gateways: int, workers: int
) -> list[Gateway]:
    """All of them, when they have found each other."""
    fleet = {"redis": {"url": redis_server.url, "name": "in-flight", "timeout": "200ms"}}
    own = {"name": "one-of-some", "state_directory": "state", "workers": workers}
    more = {"fleet": fleet} if gateways > 1 else {}
    running: list[Gateway] = [start_gateway([listener], [RULE], gateway=own, **more) for _ in range(gateways)]
    if gateways > 1:
        members = gateways * workers
        wait_until(
            lambda: all(each.get("/v1/status")["fleet"]["gateways"] == members for each in running), within=15, what="all in the fleet"
        )
    return running


@pytest.mark.rabbitmq
@several_members
def test_rabbitmq_has_no_more_unconfirmed_publishes_of_several_members(
    rabbitmq: RabbitMQ, start_gateway: StartGateway, redis_server: RedisServer, gateways: int, workers: int
) -> None:
    """Those of one process, and one of each other member, which passes on credit when it begins."""
    (port,) = free_ports(1)
    with Unconfirmed(port, rabbitmq.port) as between, Queue(rabbitmq.url, "in-flight-shared") as queue:
        running = start_members(start_gateway, redis_server, amqp_listener(f"127.0.0.1:{port}"), gateways, workers)
        floods = [
            go_publish(each.amqp_url(), "", queue.name, f"run{n}", connections=6, seconds=4.0, rate=800) for n, each in enumerate(running)
        ]
        published = [each.result() for each in floods]
        arrived = queue.drain()
    assert sum(each.count("?") for each in published) == 0
    assert sum(each.count("N") for each in published) > 0
    assert len(arrived) == sum(each.count("A") for each in published)
    assert AT_MOST <= between.most <= AT_MOST + gateways * workers - 1
    wait_until(lambda: all(usage(each)["in_flight"] == 0 for each in running), within=15, what="all places given back")


@pytest.mark.rocketmq
@pytest.mark.long
@several_members
def test_rocketmq_has_no_more_unanswered_sends_of_several_members(
    rocketmq: RocketMQ, start_gateway: StartGateway, redis_server: RedisServer, gateways: int, workers: int
) -> None:
    """Those of one process, and one of each other member, which passes on credit when it begins."""
    topic = f"in-flight-{gateways}-gateways"
    rocketmq.create_topics(topic)
    (port,) = free_ports(1)
    listener: dict[str, object] = {"name": "plain", "protocol": "rocketmq", "bind": f"{LOOPBACK}:0", "upstream": f"{LOOPBACK}:{port}"}
    with Unanswered(port, rocketmq.port) as between:
        running = start_members(start_gateway, redis_server, listener, gateways, workers)
        ports = [(LOOPBACK, running[n % gateways].port("plain")) for n in range(12)]
        codes = flood(ports, [topic], 1600, 4.0)[topic].codes
        stored = rocketmq.stored(topic)
    assert set(codes) == {0, 215}
    assert stored == {topic: codes[0]}
    assert AT_MOST <= between.most <= AT_MOST + gateways * workers - 1
    wait_until(lambda: all(usage(each)["in_flight"] == 0 for each in running), within=15, what="all places given back")


@pytest.mark.rabbitmq
def test_an_adaptive_limit_that_delays_loses_nothing_at_rabbitmq(rabbitmq: RabbitMQ, start_gateway: StartGateway) -> None:
    gateway: Gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}")], [FOUND])
    with Queue(rabbitmq.url, "in-flight-found") as queue:
        published = go_publish(gateway.amqp_url(), "", queue.name, "run", connections=2, seconds=2.0, rate=1500).result()
        arrived = queue.drain()
    assert published.count("?") == 0
    assert published.count("A") == len(arrived) > 500
    now = usage(gateway)
    assert now["in_flight"] == 0
    assert AT_MOST <= now["concurrent_now"] <= 500


@pytest.mark.rocketmq
def test_rocketmq_has_never_more_unanswered_sends_than_allowed(rocketmq: RocketMQ, start_gateway: StartGateway) -> None:
    rocketmq.create_topics("in-flight")
    gateway: Gateway = start_gateway(rocketmq.listeners, [RULE])
    answers: Counter[object] = Counter()
    with watched(gateway) as seen, socket.create_connection((rocketmq.advertised, rocketmq.port), timeout=HANG_S) as client:
        for burst in range(20):
            first = 1 + burst * 50
            client.sendall(b"".join(send("in-flight", b"x" * 500, opaque=number) for number in range(first, first + 50)))
            answers.update(read_response(read_frame(client))["code"] for _ in range(50))
    assert set(answers) == {0, 215}
    assert answers[0] >= 20 * AT_MOST
    assert rocketmq.stored("in-flight") == {"in-flight": answers[0]}
    assert all(each["in_flight"] <= AT_MOST for each in seen)
    assert usage(gateway) == {"in_flight": 0, "concurrent_now": AT_MOST}
