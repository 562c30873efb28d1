"""Three gateways in front of one broker, one limit: through a real Redis, also while that is killed and started again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.brokers.redis_server import RedisServer
from support.clients.programs import go_publish
from support.gateways import Gateway, StartGateway, amqp_listener
from support.models.rates import bounds, let_through
from support.processes import wait_until

pytestmark = pytest.mark.rabbitmq

RATE = 1000
FLOOD_S = 8.0


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path / "redis") as server:
        yield server


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.long), 2])
def test_three_gateways_share_one_limit_and_go_on_when_redis_does_not(
    rabbitmq: RabbitMQ, start_gateway: StartGateway, redis_server: RedisServer, workers: int
) -> None:
    listener = amqp_listener(f"127.0.0.1:{rabbitmq.port}")
    rule = {"name": "limited", "match": {"protocol": "amqp", "routing_key": "limited*"}, "limit": {"messages": f"{RATE}/s"}}
    fleet = {"redis": {"url": redis_server.url, "name": "end-to-end", "timeout": "200ms"}}
    own = {"name": "one-of-three", "state_directory": "state", "workers": workers}
    gateways: list[Gateway] = [start_gateway([listener], [rule], fleet=fleet, gateway=own) for _ in range(3)]
    there = 3 * workers  # each worker is a member
    wait_until(lambda: all(state(each)["gateways"] == there for each in gateways), within=15, what="three gateways in the fleet")
    with Queue(rabbitmq.url, "limited-fleet") as queue:
        started = time.monotonic()
        floods = [go_publish(each.amqp_url(), "", queue.name, f"flood{n}", seconds=FLOOD_S, rate=RATE) for n, each in enumerate(gateways)]
        wait_until(lambda: all(state(each)["asks"] > 20 for each in gateways), within=15, what="shares asked for")
        redis_server.kill()
        wait_until(lambda: not any(state(each)["reachable"] for each in gateways), within=30, what="an outage")
        time.sleep(1)
        redis_server.start()
        published = [flood.result() for flood in floods]
        elapsed_s = time.monotonic() - started
        arrived = queue.depth()
    passed = [each.count("A") for each in published]
    offered = sum((Counter(each.begun_per_100ms) for each in published), Counter())
    at_least = 0.95 * (let_through(offered, RATE, RATE) - RATE)
    assert at_least > 0.5 * RATE * FLOOD_S, "the flood was none"
    assert at_least <= sum(passed)
    assert arrived == sum(passed)
    assert min(passed) > 0.15 * sum(passed), passed
    wait_until(lambda: all(state(each)["reachable"] for each in gateways), within=30, what="Redis is reached again")
    longest_s = 0.0
    for gateway in gateways:
        assert "fleet_lost" in gateway.log()
        assert "fleet_back" in gateway.log()
        samples = {(sample.name, sample.labels.get("reason")): sample.value for sample in gateway.samples()}
        assert samples["sluice_fleet_failures_total", "unreachable"] >= 2
        assert samples["sluice_fleet_outage_seconds_total", None] >= 1
        longest_s = max(longest_s, samples["sluice_fleet_outage_seconds_total", None] / workers)
    _, at_most = bounds(RATE, elapsed_s, RATE)
    # Meanwhile each goes on with its part of the latest demand: docs/many-gateways-one-limit.md, "up to a sixth more".
    assert sum(passed) <= 1.02 * at_most + longest_s * RATE / 6


def state(gateway: Gateway) -> dict[str, Any]:
    found: dict[str, Any] = gateway.get("/v1/status")["fleet"]
    return found
