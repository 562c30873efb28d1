"""Quotas at a real gateway with a real RabbitMQ, in one process and with workers: tried without being enforced, counted, and taken back."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pika
import pytest

from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.gateways import Gateway, StartGateway, amqp_listener, limit_path
from support.processes import wait_until

pytestmark = pytest.mark.rabbitmq

ROOT = Path(__file__).parents[2]
RATE, BURST, SENT = 0.01, 10, 60
RULES = [{"name": "all", "match": {"protocol": "amqp"}, "limit": {"messages": "1000/s"}}]


def publish(url: str, queue: str) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.confirm_delivery()
    for _ in range(SENT):
        channel.basic_publish("", queue, b"x")
    connection.close()


def quotas(topic: str, rate: float = RATE) -> dict[str, object]:
    quota = {"protocol": "amqp", "topic": topic, "messages": {"rate": rate, "burst": BURST}}
    return {"version": 1, "computed_at": "2026-11-21T01:00:00Z", "code": "test", "quotas": [quota]}


def shadow_refused_in_log(gateway: Gateway, topic: str) -> int:
    lines = [json.loads(line) for path in gateway.directory.glob("access-log/dt=*/hr=*/*.jsonl*") for line in path.read_text().splitlines()]
    return sum(line["shadow_refused_messages"] for line in lines if line.get("topic") == topic)


@pytest.mark.parametrize("workers", [1, 2])
def test_quotas_are_tried_and_then_taken_back(
    rabbitmq: RabbitMQ, start_gateway: StartGateway, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    monkeypatch.setenv("SLUICE_COMMAND", shlex.join([sys.executable, "-m", "cli.main"]))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    gateway = start_gateway(
        [amqp_listener(f"127.0.0.1:{rabbitmq.port}")], RULES, gateway={"name": "nights", "state_directory": "state", "workers": workers}
    )
    with Queue(rabbitmq.url, "orders-of-a-night") as queue:
        topic = f"%2F/amq.default/{queue.name}"
        assert gateway.put("/v1/quotas/shadow", quotas(topic)).status == 200
        publish(gateway.amqp_url(), queue.name)
        wait_until(lambda: gateway.messages_by_fate("amqp", topic)["forwarded"] == SENT, within=30, what="all have passed")

        def would_refuse() -> int:
            refused = gateway.get("/v1/quotas/status")["would_refuse"]["refused"]
            assert isinstance(refused, int)
            return refused

        # workers pass less of a burst at once than one process does: each has a part of it until it is granted more
        wait_until(lambda: SENT - BURST <= would_refuse() < SENT, within=30, what="they are counted")
        assert workers > 1 or would_refuse() == SENT - BURST
        wait_until(lambda: shadow_refused_in_log(gateway, topic) == would_refuse(), within=30, what="the access log has them")
        gateway.stop()
        gateway.start()
        levels = gateway.get(limit_path("amqp", "/", "amq.default", queue.name))["levels"]
        assert [each["origin"] for each in levels if each["per"] == "topic"] == ["default", "quota-shadow"], (
            "a restart goes on with the trial"
        )
        for rate in (500, 600):
            assert gateway.put("/v1/quotas", quotas(topic, rate)).status == 200
        assert gateway.get("/v1/quotas/status")["shadow"] is None, "publishing ends the trial"
        said = gateway.cli("quotas", "rollback", "--yes").stderr
        assert "the quotas are back to those of 2026-11-21T01:00:00Z (1 quota, published " in said
        assert gateway.get("/v1/quotas")["quotas"][0]["messages"]["rate"] == 500
        assert "the quotas are back to none" in gateway.cli("quotas", "rollback", "--yes").stderr
        assert gateway.get("/v1/quotas")["quotas"] == []
