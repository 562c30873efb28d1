"""Heartbeats in real time: a publish held for 10 s on a connection with heartbeats of 2 s costs nobody the connection.

The broker closes a connection after 6 s without a byte (two checks, measured), and so do the clients: each hop needs heartbeats of its own
while the gateway does not read the client (`block`) or holds its channel. Eight libraries, two ways to be held, all at the same time.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest

from support.brokers.queues import Queue, connect
from support.brokers.rabbitmq import RabbitMQ
from support.clients.probes import LIBRARIES, asked_at_once
from support.gateways import Gateway, StartGateway, amqp_listener

pytestmark = pytest.mark.rabbitmq

HEARTBEAT_S = 2
HOLD_S = 10
TWO_PUBLISHES = {"mode": "plain", "count": 2, "heartbeat": HEARTBEAT_S, "linger": HOLD_S + 3}
ONE_IN_TEN_SECONDS = {"messages": "6/min", "burst": {"messages": 1}}
RULES = [
    {"name": "held", "match": {"protocol": "amqp", "routing_key": "held.*"}, "limit": ONE_IN_TEN_SECONDS},
    {"name": "blocked", "match": {"protocol": "amqp", "routing_key": "blocked.*"}, "limit": ONE_IN_TEN_SECONDS, "action": "block"},
]
WITH_HEARTBEATS = [library for library in LIBRARIES if library != "librabbitmq"]  # it sends them only while the application calls it


def test_a_hold_of_ten_seconds_with_heartbeats_of_two_costs_nobody_the_connection(
    rabbitmq: RabbitMQ, start_gateway: StartGateway, tmp_path: Path
) -> None:
    gateway: Gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}")], RULES)
    names = [f"{way}.{library}" for way in ("held", "blocked") for library in WITH_HEARTBEATS]
    url = gateway.amqp_url()
    orders: dict[str, dict[str, object]] = {
        name: {"url": url, "key": name, "free": f"free.{name}", "listen": f"listen.{name}", "run": "m", **TWO_PUBLISHES} for name in names
    }
    not_yet = dict.fromkeys(names, time.monotonic())  # when the first had not come, as last seen
    ticks: list[float] = []
    second_came: dict[str, float] = {}
    with ExitStack() as stack:
        queues = {name: stack.enter_context(Queue(rabbitmq.url, name)) for name in names}
        for name in names:
            stack.enter_context(Queue(rabbitmq.url, f"free.{name}"))
            stack.enter_context(Queue(rabbitmq.url, f"listen.{name}"))
        sender = stack.enter_context(connect(rabbitmq.url)).channel()
        asked = stack.enter_context(asked_at_once(tmp_path, orders))
        while not all(future.done() for future in asked.values()):
            time.sleep(0.25)
            ticks.append(time.monotonic())
            for name in names:
                sender.basic_publish("", f"listen.{name}", b"tick")
                depth = queues[name].depth()
                if depth == 0:
                    not_yet[name] = ticks[-1]
                if depth > 1:
                    second_came.setdefault(name, time.monotonic())
        reports = {name: future.result() for name, future in asked.items()}
        arrived = {name: queue.contents() for name, queue in queues.items()}
    assert arrived == {name: ["m-0", "m-1"] for name in names}
    assert {name: (report.channel, report.other) for name, report in reports.items()} == dict.fromkeys(names, ("open", "ok"))
    held_s = {name: second_came[name] - not_yet[name] for name in names}
    assert min(held_s.values()) > HOLD_S - 2, "nothing was held for as long as a heartbeat timeout: the test shows nothing"
    silent_s = {name: report.longest_gap_s for name, report in reports.items()}
    longest_s = max(later - tick for tick, later in pairwise(ticks))  # between two ticks, on a machine that may be busy
    assert max(silent_s.values()) < HOLD_S / 2 + longest_s, "a consumer on a connection that was held heard nothing meanwhile"
    assert min(report.heard for report in reports.values()) > min(HOLD_S, len(ticks) / 4)
