"""RocketMQ 5's gRPC client behind RocketMQ's own Proxy, with the gateway between Proxy and broker (mode A): `docs/rocketmq.md` says what it
sees."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.brokers.rocketmq import RocketMQ
from support.brokers.rocketmq_proxy import RocketMQProxy
from support.clients.programs import CLIENTS, Program
from support.gateways import Gateway
from support.java import MavenUnreachableError, compiled, java

pytestmark = [pytest.mark.rocketmq, pytest.mark.long]

CLIENT = "rocketmq-grpc-client"
RULES: list[dict[str, object]] = [
    {
        "name": reply,
        "match": {"protocol": "rocketmq", "topic": topic, "operation": "produce"},
        "per": "topic",
        "limit": {"messages": "1/s", "burst": {"messages": 5}},
        "breaker": {"open_for": "0s"},
        **more,
    }
    for reply, topic, more in (
        ("default", "grpc-default", {}),
        ("system-busy", "grpc-busy", {"reply": "system_busy"}),
        ("delayed", "grpc-delayed", {"action": "delay", "max_delay": "2500ms"}),
    )
]


@pytest.fixture(scope="module")
def gateway(rocketmq: RocketMQ, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    rocketmq.create_topics("grpc-free", "grpc-default", "grpc-busy", "grpc-delayed")
    with Gateway(tmp_path_factory.mktemp("gateway"), rocketmq.listeners, RULES) as running:
        yield running


@pytest.fixture(scope="module")
def proxy(rocketmq: RocketMQ, gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketMQProxy]:
    """Behind the gateway from its start, when it asks the broker for a topic of its own."""
    assert gateway.answers("/readyz")
    try:
        started = RocketMQProxy(tmp_path_factory.mktemp("proxy"), rocketmq.name_server)
    except MavenUnreachableError as error:
        pytest.skip(f"ROCKETMQ'S PROXY IS NOT TESTED, its jars are not here and Maven Central cannot be reached: {error}")
    with started:
        yield started


def grpc(proxy: RocketMQProxy, home: Path, topic: str, count: int, attempts: int) -> dict[str, Any]:
    try:
        class_path = compiled(CLIENTS / "java" / "rocketmq_grpc", CLIENT)
    except MavenUnreachableError as error:
        pytest.skip(f"ROCKETMQ'S GRPC CLIENT IS NOT TESTED, its jars cannot be fetched: {error}")
    words = [proxy.endpoints, topic, f"group-{topic}", count, attempts, 60]
    (result,) = Program([*java(class_path, "Grpc", home), *map(str, words)], cwd=home).result(150)
    return result


def test_everything_is_sent_and_received_through_proxy_and_gateway(proxy: RocketMQProxy, gateway: Gateway, tmp_path: Path) -> None:
    assert grpc(proxy, tmp_path, "grpc-free", 50, 1) == {"sent": 50, "refused": {}, "received": 50}
    assert gateway.messages_by_fate("rocketmq", "grpc-free")["forwarded"] == 50
    assert gateway.messages_by_fate("rocketmq", "grpc-free", "consume")["forwarded"] >= 50, "the Proxy pops, and is limited by it"


@pytest.mark.parametrize(
    ("topic", "error"),
    [("grpc-default", "InternalErrorException"), ("grpc-busy", "TooManyRequestsException")],
)
def test_what_the_client_sees_of_a_refusal(proxy: RocketMQProxy, gateway: Gateway, tmp_path: Path, topic: str, error: str) -> None:
    result = grpc(proxy, tmp_path, topic, 20, 1)
    refused = result["refused"]
    assert set(refused) == {error}, result
    assert result["sent"] + refused[error] == 20
    assert result["sent"] >= 5, "the burst"
    assert result["received"] == result["sent"], "what was acknowledged is there"
    fates = gateway.messages_by_fate("rocketmq", topic)
    assert (fates["forwarded"], fates["refused"] > 0) == (result["sent"], True)


def test_with_delay_nothing_fails(proxy: RocketMQProxy, gateway: Gateway, tmp_path: Path) -> None:
    result = grpc(proxy, tmp_path, "grpc-delayed", 8, 1)
    assert result == {"sent": 8, "refused": {}, "received": 8}
    assert gateway.messages_by_fate("rocketmq", "grpc-delayed")["forwarded"] == 8
