"""From nothing to a first limit as a newcomer goes it: `sluice init` beside a real broker, `run`, a flood, `why`, `limits set`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pika
import pika.exceptions
import pytest

from cli.broker_search import brokers
from support.brokers.rabbitmq import RabbitMQ
from support.brokers.rocketmq import RocketMQ
from support.gateways import command
from support.processes import HANG_S, LOOPBACK, Process, free_ports, wait_until


def sluice(directory: Path, admin: int, *words: str) -> str:
    environment = {**os.environ, "SLUICE_ADMIN": f"http://{LOOPBACK}:{admin}"}
    done = subprocess.run(
        [*command(), *words], cwd=directory, env=environment, capture_output=True, text=True, timeout=HANG_S, check=False
    )  # fmt: skip
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.rabbitmq
def test_a_first_limit_in_front_of_rabbitmq(rabbitmq: RabbitMQ, tmp_path: Path) -> None:
    port, admin = free_ports(2)
    bind = f"{LOOPBACK}:{port}"  # it proposes 5672 on all addresses, which others' tests use
    out = sluice(tmp_path, admin, "init", "--yes", "--ports", str(rabbitmq.port), "--limit", "20/s", "--bind", bind)
    assert f"clients connect to {bind}, the broker is at {LOOPBACK}:{rabbitmq.port}" in out
    log = tmp_path / "log"
    with Process([*command(), "run", "--admin-bind", f"{LOOPBACK}:{admin}"], log=log, cwd=tmp_path) as process:
        process.wait_until(lambda: '"started"' in process.output(), within=20, what="sluice run")
        refused = 0
        with closing(pika.BlockingConnection(pika.URLParameters(f"amqp://guest:guest@{bind}/%2F"))) as connection:
            channel = connection.channel()
            channel.queue_declare("first-limit", auto_delete=True)
            channel.confirm_delivery()
            until = time.monotonic() + HANG_S
            while refused < 20 and time.monotonic() < until:
                try:
                    channel.basic_publish("", "first-limit", b"x")
                except pika.exceptions.NackError:
                    refused += 1
            assert refused == 20
            key = ("amqp", "/", "amq.default", "first-limit")
            wait_until(lambda: "limit_reached" in process.output(), within=20, what="the limit is said to be reached")
            said = sluice(tmp_path, admin, "why", *key)
            assert "20/s (burst 20), for this topic" in said
            assert "rule every-topic (limits.yaml:" in said
            assert "NackError from basic_publish" in said
            sluice(tmp_path, admin, "limits", "set", *key, "--messages", "5000/s", "--for", "30m")
            wait_until(lambda: "none: a message sent now passes" in sluice(tmp_path, admin, "why", *key), within=20, what="the new limit")
            channel.basic_publish("", "first-limit", b"x")
        process.popen.send_signal(signal.SIGTERM)
        assert process.popen.wait(HANG_S) == 0


@pytest.mark.rabbitmq
def test_real_rabbitmq_is_known_with_its_version(rabbitmq: RabbitMQ) -> None:
    (found,) = brokers([(LOOPBACK, rabbitmq.port)])
    assert (found.protocol, found.port) == ("amqp", rabbitmq.port)
    assert re.fullmatch(r"RabbitMQ \d+\.\d+\.\d+\S*", found.product)


@pytest.mark.rocketmq
def test_real_rocketmq_is_known_and_its_name_server_too(rocketmq: RocketMQ) -> None:
    name_server = int(rocketmq.name_server.rpartition(":")[2])
    broker = rocketmq.port
    found = brokers([(LOOPBACK, broker), (LOOPBACK, name_server)])
    assert [(each.protocol, each.port) for each in found] == [("rocketmq-nameserver", name_server), ("rocketmq", broker)]
