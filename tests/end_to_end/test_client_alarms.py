"""RabbitMQ's own flow control through the gateway: nine libraries under a memory alarm, with and without a limit that blocks as well."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.clients.probes import LIBRARIES, asked_at_once
from support.gateways import Gateway, StartGateway, amqp_listener
from support.processes import wait_until

pytestmark = pytest.mark.rabbitmq

RULE = {
    "name": "both",
    "match": {"protocol": "amqp", "routing_key": "both.*"},
    "limit": {"messages": "1/s", "burst": {"messages": 1}},
    "action": "block",
}
TWO_PUBLISHES = {"mode": "plain", "count": 2, "linger": 120, "run": "m"}  # on a busy machine eighteen clients take their time to start


def test_a_memory_alarm_is_told_once_and_taken_back_once_though_a_limit_blocks_as_well(
    rabbitmq: RabbitMQ, start_gateway: StartGateway, tmp_path: Path
) -> None:
    """The broker's connection.blocked and the gateway's own are merged: never two `blocked` in a row, `unblocked` when both are over."""
    gateway: Gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}")], [RULE])
    url = gateway.amqp_url()
    names = [f"{what}.{library}" for what in ("alarm", "both") for library in LIBRARIES]
    orders: dict[str, dict[str, object]] = {name: {"url": url, "key": name, "free": f"free.{name}", **TWO_PUBLISHES} for name in names}

    def blocked_by_the_broker() -> int:
        return sum(shown["broker_blocked"] for shown in gateway.get("/v1/connections")["items"])

    with ExitStack() as stack:
        queues = {name: stack.enter_context(Queue(rabbitmq.url, name)) for name in names}
        for name in names:
            stack.enter_context(Queue(rabbitmq.url, f"free.{name}"))
        rabbitmq.control("set_vm_memory_high_watermark", "0.00001")
        stack.callback(rabbitmq.control, "set_vm_memory_high_watermark", "0.4")
        asked = stack.enter_context(asked_at_once(tmp_path, orders))
        try:
            wait_until(lambda: blocked_by_the_broker() == len(names), within=60, what="all connections are blocked by the broker")
            bottlenecks = {shown["bottleneck"] for shown in gateway.get("/v1/connections")["items"]}
        finally:
            rabbitmq.control("set_vm_memory_high_watermark", "0.4")
        reports = {name: future.result() for name, future in asked.items()}
        arrived = {name: queue.contents() for name, queue in queues.items()}
    assert bottlenecks == {"broker_blocked"}
    assert arrived == {name: ["m-0", "m-1"] for name in names}
    assert {name: (report.channel, report.other) for name, report in reports.items()} == dict.fromkeys(names, ("open", "ok"))
    assert {name: (len(report.blocked), report.unblocked) for name, report in reports.items()} == dict.fromkeys(names, (1, 1))
    reasons = {name: report.blocked[0] for name, report in reports.items() if not name.endswith("py-amqp")}  # it reads no reason
    assert {reason for name, reason in reasons.items() if name.startswith("alarm.")} == {"low on memory"}
