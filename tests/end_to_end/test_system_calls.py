"""System calls that fail or hang under a running gateway (F40, F44 and F46 of docs/design/reliability.md): strace makes them so.

A disk that is slow, fails or is full while a live change is stored; no descriptor for a new connection. Messages go on meanwhile.
"""

from __future__ import annotations

import socket
import time
from contextlib import closing
from pathlib import Path

import pytest

from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.clients.fresh import Sender, expect_confirm
from support.gateways import Answer, Gateway, StartGateway, amqp_listener, limit_path
from support.processes import LOOPBACK, processor_seconds, wait_until
from support.system_calls import injected

pytestmark = pytest.mark.rabbitmq

PATH = limit_path("amqp", "/", "amq.default", "calls")
SLOW_S = 4  # of each fsync: a machine that stands still does it for less
BUSY = 0.5  # of a core; a loop that never rests takes one


def put(gateway: Gateway, limit: str) -> Answer:
    seen = gateway.request("GET", PATH)
    return gateway.request("PUT", PATH, {"messages": limit, "reason": "a test"}, If_Match=seen.etag)


def limit_in_force(gateway: Gateway) -> str:
    return str(gateway.get(PATH)["override"]["messages"])


@pytest.fixture
def gateway(rabbitmq: RabbitMQ, start_gateway: StartGateway) -> Gateway:
    made: Gateway = start_gateway([amqp_listener(f"{LOOPBACK}:{rabbitmq.port}")], [])
    made.put(PATH, {"messages": "1000000/s", "reason": "before"})
    return made


def test_a_disk_that_is_slow_keeps_a_live_change_waiting_and_no_message(rabbitmq: RabbitMQ, gateway: Gateway, tmp_path: Path) -> None:
    with Queue(rabbitmq.url, "calls") as queue, Sender(gateway, queue.name).sending() as sender:
        with injected(gateway.process.pid, "fsync,fdatasync", f"delay_enter={SLOW_S * 1e6:.0f}", tmp_path / "strace"):
            sender.longest_s, before, began = 0.0, sender.confirmed, time.monotonic()
            answer = put(gateway, "1000001/s")
            took, longest, confirmed = time.monotonic() - began, sender.longest_s, sender.confirmed - before
        assert (answer.status, limit_in_force(gateway)) == (200, "1000001/s")
        assert took > SLOW_S, "that was no slow disk"
        assert longest < SLOW_S, "a message waited for the disk"
        assert confirmed > 20
        expect_confirm(gateway, queue.name)


@pytest.mark.parametrize(("fault", "status"), [("EIO", 500), ("ENOSPC", 507)])
def test_a_change_that_cannot_be_stored_is_refused_and_changes_nothing(
    rabbitmq: RabbitMQ, gateway: Gateway, tmp_path: Path, fault: str, status: int
) -> None:
    with (
        Queue(rabbitmq.url, "calls") as queue,
        Sender(gateway, queue.name).sending() as sender,
        injected(gateway.process.pid, "fsync", f"error={fault}", tmp_path / "strace"),
    ):
        before = sender.confirmed
        answer = put(gateway, "1000001/s")
        assert (answer.status, answer.json["type"].rpartition(":")[2]) == (status, "not-stored"), answer
        assert limit_in_force(gateway) == "1000000/s"
        wait_until(lambda: sender.confirmed > before + 20, within=20, what="messages to go on")
    gateway.kill()
    gateway.start()
    assert limit_in_force(gateway) == "1000000/s", "after a restart as well"
    assert put(gateway, "1000002/s").status == 200
    assert gateway.get("/v1/audit:verify")["ok"]
    with Queue(rabbitmq.url, "calls") as queue:
        expect_confirm(gateway, queue.name)


def test_no_descriptor_for_a_new_connection_is_told_and_over_by_itself(rabbitmq: RabbitMQ, gateway: Gateway, tmp_path: Path) -> None:
    port = gateway.port("rabbit")
    since = time.monotonic()
    with Queue(rabbitmq.url, "calls") as queue, Sender(gateway, queue.name).sending() as sender:
        with (
            injected(gateway.process.pid, "accept,accept4", "error=EMFILE", tmp_path / "strace"),
            closing(socket.create_connection((LOOPBACK, port))) as newcomer,
        ):
            newcomer.sendall(b"AMQP\x00\x00\x09\x01")
            wait_until(lambda: '"out_of_descriptors"' in gateway.log(), within=20, what="a line about it")
            before, used, began = sender.confirmed, processor_seconds(gateway.process.pid), time.monotonic()
            time.sleep(3)  # how long it lasts is the fault itself
            assert sender.confirmed > before, "connections that are there go on"
            assert processor_seconds(gateway.process.pid) - used < BUSY * (time.monotonic() - began)
            lines = gateway.log().count('"out_of_descriptors"')
        expect_confirm(gateway, queue.name)
        assert lines <= 2 * (time.monotonic() - since + 1), "one a second at most, of each listener and the admin port"
