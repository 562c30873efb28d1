"""Consumers of eight libraries on a queue whose deliveries are limited: everything comes, and the same connection publishes meanwhile."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from support.brokers.queues import Queue, connect
from support.brokers.rabbitmq import RabbitMQ
from support.clients.probes import LIBRARIES, asked_at_once
from support.gateways import Gateway, StartGateway, amqp_listener
from support.processes import wait_until

pytestmark = pytest.mark.rabbitmq

COUNT = 20
RULE = {
    "name": "slow-consumers",
    "match": {"queue": "slow.*", "operation": "consume"},
    "limit": {"messages": "10/s", "burst": {"messages": 1}},
}
CONSUMING = [library for library in LIBRARIES if library != "librabbitmq"]  # its probe has no consumer


def test_limited_deliveries_all_come_and_confirms_do_not_wait_for_them(
    rabbitmq: RabbitMQ, start_gateway: StartGateway, tmp_path: Path
) -> None:
    gateway: Gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}")], [RULE])
    names = [f"slow.{library}" for library in CONSUMING]
    common = {"url": gateway.amqp_url(), "run": "m", "count": 3, "other_first": True, "linger": 240, "expect": COUNT}
    orders: dict[str, dict[str, object]] = {name: {"listen": name, "key": f"to.{name}", "free": f"free.{name}", **common} for name in names}
    with ExitStack() as stack:
        slow = {name: stack.enter_context(Queue(rabbitmq.url, name)) for name in names}
        targets = {name: stack.enter_context(Queue(rabbitmq.url, f"to.{name}")) for name in names}
        for name in names:
            stack.enter_context(Queue(rabbitmq.url, f"free.{name}"))
        sender = stack.enter_context(connect(rabbitmq.url)).channel()
        for name in names * COUNT:
            sender.basic_publish("", name, b"work")
        wait_until(lambda: all(queue.depth() == COUNT for queue in slow.values()), within=30, what="there is work")
        asked = stack.enter_context(asked_at_once(tmp_path, orders))
        reports = {name: future.result() for name, future in asked.items()}
        left = {name: queue.depth() for name, queue in slow.items()}
        arrived = {name: queue.contents() for name, queue in targets.items()}
    assert {name: report.heard for name, report in reports.items()} == dict.fromkeys(names, COUNT)
    assert min(report.longest_gap_s for report in reports.values()) > 0.05, "nothing was limited: the test shows nothing"
    assert left == dict.fromkeys(names, 0)
    assert {name: tuple(report.seen) for name, report in reports.items()} == dict.fromkeys(names, ("ack", "ack", "ack"))
    assert set(map(tuple, arrived.values())) == {("m-0", "m-1", "m-2")}
    assert {name: (report.channel, report.other) for name, report in reports.items()} == dict.fromkeys(names, ("open", "ok"))
