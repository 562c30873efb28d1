"""Rates over three workers, and over two gateways with a real Redis, for half a minute before a real RabbitMQ and a real RocketMQ.

They delay, so that something waits at all of them all the time however unevenly a busy machine sends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from support.brokers.rabbitmq import RabbitMQ
from support.brokers.redis_server import RedisServer
from support.brokers.rocketmq import RocketMQ
from support.clients.paced_sends import flood
from support.clients.programs import go_publish
from support.gateways import Gateway, StartGateway, amqp_listener
from support.models.rates import let_through
from support.processes import LOOPBACK, wait_until

pytestmark = pytest.mark.long

RATE = 200
BEFORE_S = 6.0  # bursts are spent, and what warms up is warm
WINDOW_S = 30.0
ALGORITHMS = ("token_bucket", "pacing", "warm_up")
SHARING = {"three workers": (1, 3), "two gateways": (2, 1)}  # gateways, workers of each


def rules(protocol: str, key: str) -> list[dict[str, object]]:
    """A rule for each algorithm; `key` is what a rule matches the name by."""
    return [
        {
            "name": algorithm, "match": {"protocol": protocol, key: f"shared-{algorithm}"}, "limit": {"messages": f"{RATE}/s"},
            "algorithm": algorithm, "action": "delay", "max_delay": "2s", **({"warm_up": {"over": "2s"}} if algorithm == "warm_up" else {}),
        }
        for algorithm in ALGORITHMS
    ]  # fmt: skip


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path / "redis") as server:
        yield server


def assert_accurate(algorithm: str, begun: Mapping[int, int], passed: Mapping[int, int]) -> None:
    """Within 2 % of what the limit lets pass of what was offered, from BEFORE_S on; by slots of a tenth of a second.

    Where a busy machine stood still for a while and offered too little, the burst has come back meanwhile and may pass once more.
    """
    first = min(begun) + int(10 * BEFORE_S)
    window = range(first, first + int(10 * WINDOW_S))
    offered = {slot: begun.get(slot, 0) for slot in window}
    at_least = let_through(offered, RATE, RATE) - RATE  # without the burst, which is spent
    in_all = sum(passed.get(slot, 0) for slot in window)
    paused = any(sum(offered[slot + more] for more in range(10)) < RATE for slot in window[::10])
    assert 0.98 * at_least <= in_all <= 1.02 * RATE * WINDOW_S + (RATE if paused else 0), algorithm
    assert at_least >= 0.8 * RATE * WINDOW_S, "the flood was none"


def start_sharing(
    start_gateway: StartGateway, redis_server: RedisServer, listener: dict[str, object], some_rules: list[dict[str, object]], members: str
) -> list[Gateway]:
    """`three workers` of one gateway, or `two gateways` of a fleet, that have found each other."""
    gateways, workers = SHARING[members]
    own = {"name": "one-of-some", "state_directory": "state", "workers": workers}
    more = {"fleet": {"redis": {"url": redis_server.url, "name": "accuracy", "timeout": "200ms"}}} if gateways > 1 else {}
    running = [start_gateway([listener], some_rules, gateway=own, **more) for _ in range(gateways)]
    if gateways > 1:
        wait_until(
            lambda: all(each.get("/v1/status")["fleet"]["gateways"] == gateways for each in running), within=15, what="all in the fleet"
        )
    return running


@pytest.mark.rabbitmq
@pytest.mark.parametrize("members", SHARING)
def test_rates_at_rabbitmq(rabbitmq: RabbitMQ, start_gateway: StartGateway, redis_server: RedisServer, members: str) -> None:
    listener = amqp_listener(f"127.0.0.1:{rabbitmq.port}")
    running = start_sharing(start_gateway, redis_server, listener, rules("amqp", "routing_key"), members)
    twice = RATE / 3  # messages a second and connection: in all twice the limit
    flags = {"connections": 6 // len(running), "seconds": BEFORE_S + WINDOW_S + 2, "rate": twice}
    floods = {
        algorithm: [go_publish(each.amqp_url(), "", f"shared-{algorithm}", f"{algorithm}{n}", **flags) for n, each in enumerate(running)]
        for algorithm in ALGORITHMS
    }
    for algorithm, some in floods.items():
        offered, passed = Counter[int](), Counter[int]()
        for flooding in some:
            published = flooding.result()
            offered.update(published.begun_per_100ms)
            passed.update(published.acked_per_100ms)
        assert_accurate(algorithm, offered, passed)


@pytest.mark.rocketmq
@pytest.mark.parametrize("members", SHARING)
def test_rates_at_rocketmq(rocketmq: RocketMQ, start_gateway: StartGateway, redis_server: RedisServer, members: str) -> None:
    topics = [f"shared-{algorithm}" for algorithm in ALGORITHMS]
    rocketmq.create_topics(*topics)
    listener: dict[str, object] = {
        "name": "plain", "protocol": "rocketmq", "bind": f"{LOOPBACK}:0", "upstream": f"{LOOPBACK}:{rocketmq.port}",
    }  # fmt: skip
    running = start_sharing(start_gateway, redis_server, listener, rules("rocketmq", "topic"), members)
    ports = [(LOOPBACK, running[n % len(running)].port("plain")) for n in range(6)]
    for algorithm, sends in zip(ALGORITHMS, flood(ports, topics, 2 * RATE, BEFORE_S + WINDOW_S + 2).values(), strict=True):
        assert_accurate(algorithm, sends.begun, sends.passed)


@pytest.mark.rabbitmq
def test_one_connection_has_the_whole_cap_of_its_listener(
    rabbitmq: RabbitMQ, start_gateway: StartGateway, redis_server: RedisServer
) -> None:
    """At three workers one busy connection is at one of them; then five more come."""
    cap: list[dict[str, object]] = [
        {
            "name": "cap",
            "match": {"protocol": "amqp"},
            "per": "listener",
            "limit": {"messages": f"{RATE}/s"},
            "action": "delay",
            "max_delay": "2s",
        }
    ]
    (gateway,) = start_sharing(start_gateway, redis_server, amqp_listener(f"127.0.0.1:{rabbitmq.port}"), cap, "three workers")
    for connections in (1, 6):
        flags = {"connections": connections, "seconds": BEFORE_S + WINDOW_S + 2, "rate": 2 * RATE / connections}
        published = go_publish(gateway.amqp_url(), "", f"cap-{connections}", f"cap{connections}", **flags).result()
        assert_accurate("cap", published.begun_per_100ms, published.acked_per_100ms)
