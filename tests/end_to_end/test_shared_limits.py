"""Limits over three workers, and over two gateways with a real Redis, for half a minute before a real RabbitMQ and a real RocketMQ.

They delay, so that something waits at all of them all the time however unevenly a busy machine sends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from math import prod
from pathlib import Path

import pytest

from support.brokers.in_flight import InFlight, Unanswered, Unconfirmed
from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.brokers.redis_server import RedisServer
from support.brokers.rocketmq import RocketMQ
from support.clients.paced_sends import flood
from support.clients.programs import go_publish
from support.gateways import Gateway, StartGateway, amqp_listener
from support.models.rates import let_through
from support.processes import LOOPBACK, free_ports, wait_until

pytestmark = pytest.mark.long

RATE = 200
BEFORE_S = 6.0  # bursts are spent, and what warms up is warm
WINDOW_S = 30.0
ALGORITHMS = ("token_bucket", "pacing", "warm_up")
AWAY_S = 0.1  # the broker, of what is limited in flight: then so many places let pass RATE, and not more
PLACES = int(RATE * AWAY_S)
OFFERED = 3 * RATE  # of it over six connections: one alone has use for a worker's even part of the places
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


def rocketmq_listener(port: int) -> dict[str, object]:
    return {"name": "plain", "protocol": "rocketmq", "bind": f"{LOOPBACK}:0", "upstream": f"{LOOPBACK}:{port}"}


def window_of(begun: Mapping[int, int]) -> range:
    """The slots of a tenth of a second that count."""
    first = min(begun) + int(10 * BEFORE_S)
    return range(first, first + int(10 * WINDOW_S))


def assert_accurate(algorithm: str, begun: Mapping[int, int], passed: Mapping[int, int]) -> None:
    """Within 2 % of what the limit lets pass of what was offered, from BEFORE_S on; by slots of a tenth of a second.

    Where a busy machine stood still for a while and offered too little, the burst has come back meanwhile and may pass once more.
    """
    window = window_of(begun)
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
    running = start_sharing(start_gateway, redis_server, rocketmq_listener(rocketmq.port), rules("rocketmq", "topic"), members)
    ports = [(LOOPBACK, running[n % len(running)].port("plain")) for n in range(6)]
    for algorithm, sends in zip(ALGORITHMS, flood(ports, topics, 2 * RATE, BEFORE_S + WINDOW_S + 2).values(), strict=True):
        assert_accurate(algorithm, sends.begun, sends.passed)


def place_rule(algorithm: str, protocol: str, key: str, name: str) -> dict[str, object]:
    return {
        "name": "places", "match": {"protocol": protocol, key: name}, "per": "rule", "limit": {"concurrent": PLACES},
        "algorithm": algorithm, "action": "delay", "max_delay": "2s",
        **({"adaptive": {"start": PLACES // 2}} if algorithm == "adaptive" else {}),
    }  # fmt: skip


def assert_lent(one: InFlight, between: InFlight, alone: int, in_all: int, members: int) -> None:
    """No more in flight than in one process but for one of each other member, which begins on credit; so no more passes.

    Nor does less pass than through one process under the same load at the same time: a busy machine is as slow for both.
    """
    assert one.most <= PLACES
    assert between.most <= PLACES + members - 1
    assert 0.98 * alone <= in_all <= 1.02 * RATE * WINDOW_S


@pytest.mark.rabbitmq
@pytest.mark.parametrize("algorithm", ["concurrency", "adaptive"])
@pytest.mark.parametrize("members", SHARING)
def test_places_at_rabbitmq(
    rabbitmq: RabbitMQ, start_gateway: StartGateway, redis_server: RedisServer, members: str, algorithm: str
) -> None:
    ports = free_ports(2)
    name = f"places-{algorithm}-{members[:3]}"
    rule = place_rule(algorithm, "amqp", "routing_key", name)
    with (
        Unconfirmed(ports[0], rabbitmq.port, AWAY_S) as one,
        Unconfirmed(ports[1], rabbitmq.port, AWAY_S) as between,
        Queue(rabbitmq.url, name) as queue,
    ):
        alone = start_gateway([amqp_listener(f"{LOOPBACK}:{ports[0]}")], [rule])
        running = start_sharing(start_gateway, redis_server, amqp_listener(f"{LOOPBACK}:{ports[1]}"), [rule], members)
        floods = []
        for n, (gateway, connections) in enumerate([(alone, 6), *((each, 6 // len(running)) for each in running)]):
            flags = {"connections": connections, "seconds": BEFORE_S + WINDOW_S + 2, "rate": OFFERED / 6}
            floods.append(go_publish(gateway.amqp_url(), "", name, f"run{n}", **flags))
        published = [each.result() for each in floods]
        arrived = queue.drain()
    assert len(arrived) == sum(each.count("A") for each in published)
    assert set(arrived) == set().union(*(each.ids("A") for each in published))
    passed = [sum(each.acked_per_100ms.get(slot, 0) for slot in window_of(each.begun_per_100ms)) for each in published]
    assert_lent(one, between, passed[0], sum(passed[1:]), prod(SHARING[members]))


@pytest.mark.rocketmq
@pytest.mark.parametrize("algorithm", ["concurrency", "adaptive"])
@pytest.mark.parametrize("members", SHARING)
def test_places_at_rocketmq(
    rocketmq: RocketMQ, start_gateway: StartGateway, redis_server: RedisServer, members: str, algorithm: str
) -> None:
    name = f"places-{algorithm}-{members[:3]}"
    rocketmq.create_topics(name)
    rule = place_rule(algorithm, "rocketmq", "topic", name)
    ports = free_ports(2)
    with Unanswered(ports[0], rocketmq.port, AWAY_S) as one, Unanswered(ports[1], rocketmq.port, AWAY_S) as between:
        alone = start_gateway([rocketmq_listener(ports[0])], [rule])
        running = start_sharing(start_gateway, redis_server, rocketmq_listener(ports[1]), [rule], members)
        doors = [[(LOOPBACK, some[n % len(some)].port("plain")) for n in range(6)] for some in ([alone], running)]
        with ThreadPoolExecutor() as both:
            sends = [each[name] for each in both.map(lambda some: flood(some, [name], OFFERED, BEFORE_S + WINDOW_S + 2), doors)]
        stored = rocketmq.stored(name)
    assert set(sends[1].codes) <= {0, 215}
    assert stored == {name: sends[0].codes[0] + sends[1].codes[0]}
    passed = [sum(each.passed.get(slot, 0) for slot in window_of(each.begun)) for each in sends]
    assert_lent(one, between, passed[0], passed[1], prod(SHARING[members]))


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
