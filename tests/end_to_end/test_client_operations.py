"""What is only ever held, before client libraries: channels, declares, gets and requeues come late, and nothing is an error to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.clients.probes import LIBRARIES, Probe
from support.clients.programs import CLIENTS, Program
from support.gateways import Gateway, amqp_listener
from support.java import compiled, java

pytestmark = pytest.mark.rabbitmq

HELD = ("declare", "open", "get", "connect", "requeue")
COUNT = 6  # messages that are given back
RATE = 5  # requeues a second
GIVE_BACK = ("pika", "aio-pika", "amqplib", "go", "java", "bunny")
RULES = [
    {
        "name": operation, "match": {"protocol": "amqp", "operation": operation}, "per": "client", "action": "delay",
        "limit": {"messages": f"{RATE}/s", "burst": {"messages": 1}}, **({"max_delay": "8s"} if operation == "connect" else {}),
    }
    for operation in HELD
]  # fmt: skip


@pytest.fixture(scope="module")
def gateway(rabbitmq: RabbitMQ, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("operations"), [amqp_listener(f"127.0.0.1:{rabbitmq.port}")], RULES) as running:
        yield running


def given_back(gateway: Gateway, queue: str) -> float:
    return gateway.messages_by_fate("amqp", f"%2F/amq.default/{queue}", "requeue")["forwarded"]


@pytest.mark.parametrize("library", LIBRARIES)
def test_what_is_held_comes_late_and_is_no_error(library: str, rabbitmq: RabbitMQ, gateway: Gateway, probe: Callable[[str], Probe]) -> None:
    gives_back = library in GIVE_BACK
    queue, free, back = (Queue(rabbitmq.url, f"{name}.{library}") for name in ("key", "free", "back"))
    with queue, free, back:
        back.fill(COUNT, b"again")
        listening: dict[str, object] = {"listen": back.name, "back": 1, "linger": 60, "expect": 2 * COUNT} if gives_back else {}
        report = probe(library).ask(url=gateway.amqp_url(), key=queue.name, free=free.name, run="m", **listening)
        assert back.depth() == (0 if gives_back else COUNT)
    assert (report.refused, report.seen, report.channel, report.other) == (None, ["ack"], "open", "ok")
    assert (report.heard, given_back(gateway, back.name)) == ((2 * COUNT, COUNT) if gives_back else (0, 0))
    if gives_back:
        assert report.longest_gap_s > 0.5 / RATE, "nothing was held"


def test_springs_container_gets_late_what_it_has_failed_on(rabbitmq: RabbitMQ, gateway: Gateway, tmp_path: Path) -> None:
    command = java(compiled(CLIENTS / "java" / "spring", "spring-rabbit"), "Spring", tmp_path)
    with Queue(rabbitmq.url, "back.spring") as back:
        back.fill(COUNT, b"again")
        (seen,) = Program([*command, "fail", gateway.amqp_url(), back.name, "120", str(2 * COUNT)], cwd=tmp_path).result(240)
    assert (seen["received"], seen["running"], given_back(gateway, back.name)) == (2 * COUNT, True, COUNT)
