"""Celery with a real worker, both through the gateway: tasks over an exchange's limit are late, never lost, never out of order."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pika
import pytest

from support.brokers.rabbitmq import RabbitMQ
from support.clients.probes import CELERY_LIBRARIES
from support.clients.programs import CLIENTS
from support.environments import environment
from support.gateways import Gateway, StartGateway, amqp_listener
from support.processes import HANG_S, Process, wait_until

pytestmark = [pytest.mark.rabbitmq, pytest.mark.slow]

TASKS = 400
RATE = 100  # tasks/s; what comes at once beyond the burst is held for up to 4 s, less than max_delay allows


def rule(queue: str, **more: object) -> dict[str, object]:
    limit = {"messages": f"{RATE}/s", "burst": {"messages": 20}}
    return {"name": queue, "match": {"protocol": "amqp", "exchange": queue}, "per": "topic", "limit": limit, **more}


RULES = [
    rule("tasks-delayed", action="delay", max_delay="8s", breaker={"open_for": "0s"}),
    rule("tasks-rejected"),  # Celery publishes without confirms: reject has no words for it, and its fallback is to delay
    rule("tasks-confirmed", action="delay", max_delay="8s", breaker={"open_for": "0s"}),
]
QUEUES = [str(rule["name"]) for rule in RULES]


class Celery:
    """A worker and as many senders as wanted, all behind the gateway."""

    def __init__(self, url: str, directory: Path) -> None:
        self.url = url
        self.directory = directory
        self.record = directory / "record"
        self.record.touch()
        self._python = environment("celery", *CELERY_LIBRARIES)

    def _environment(self, *, confirm: bool = False) -> dict[str, str]:
        ours = {"CELERY_BROKER": self.url, "CELERY_QUEUES": " ".join(QUEUES), "CELERY_RECORD": str(self.record)}
        return os.environ | ours | {"CELERY_CONFIRM": str(int(confirm)), "PYTHONDONTWRITEBYTECODE": "1"}

    @contextmanager
    def worker(self) -> Iterator[Process]:
        """One worker that takes one task at a time; at the end it is asked to finish and must exit 0."""
        words = ["-A", "celery_tasks", "worker", "--pool=solo", "--loglevel=info", "--without-gossip", "--without-mingle"]
        command = [str(self._python), "-m", "celery", *words]
        with Process(command, log=self.directory / "worker.log", env=self._environment(), cwd=CLIENTS / "python") as process:
            process.wait_until(lambda: " ready." in process.output(), within=30, what="the worker's start")
            yield process
            assert process.stop(grace=HANG_S) == 0, process.output()[-3000:]

    def send(self, queue: str, *, confirm: bool = False) -> subprocess.Popen[str]:
        """Start publishing TASKS tasks."""
        program = f"import celery_tasks; celery_tasks.send({queue!r}, {TASKS})"
        return subprocess.Popen(
            [self._python, "-c", program],
            env=self._environment(confirm=confirm),
            cwd=CLIENTS / "python",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def received(self) -> dict[str, list[int]]:
        """The numbers of the tasks executed so far, by queue, in the order of execution."""
        found: dict[str, list[int]] = {queue: [] for queue in QUEUES}
        for line in self.record.read_text().splitlines():
            queue, number = line.split()
            found[queue].append(int(number))
        return found


def depths(url: str) -> dict[str, int]:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        return {queue: int(channel.queue_declare(queue, passive=True).method.message_count) for queue in QUEUES}


def test_tasks_over_the_limit_arrive_all_in_order_and_none_is_lost(rabbitmq: RabbitMQ, start_gateway: StartGateway, tmp_path: Path) -> None:
    gateway: Gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}")], RULES)
    celery = Celery(gateway.amqp_url(), tmp_path)
    with celery.worker():
        senders = {queue: celery.send(queue, confirm=queue == "tasks-confirmed") for queue in QUEUES}
        for queue, sender in senders.items():
            output, _ = sender.communicate(timeout=HANG_S)
            assert sender.returncode == 0, f"{queue}: {output[-3000:]}"
        wait_until(lambda: all(len(numbers) >= TASKS for numbers in celery.received().values()), within=30, what="all tasks")
    assert celery.received() == {queue: list(range(TASKS)) for queue in QUEUES}
    assert depths(rabbitmq.url) == dict.fromkeys(QUEUES, 0), "something was not acked: the worker's acks did not all pass"
    for queue in QUEUES:
        fates = gateway.messages_by_fate("amqp", f"%2F/{queue}/{queue}")
        assert (fates["received"], fates["forwarded"]) == (TASKS, TASKS), fates
    delayed = {sample.labels["topic"] for sample in gateway.samples() if sample.name == "sluice_messages_delayed_total" and sample.value}
    assert delayed >= {f"%2F/{queue}/{queue}" for queue in QUEUES}, "a limit that held nothing back shows nothing"
