"""A log that nobody reads (docs/design/reliability.md F47): a full pipe at stderr stops no message, and what is missing is told."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.clients.fresh import PROBE, expect_confirm
from support.clients.programs import go_publish
from support.gateways import Gateway, StartGateway, amqp_listener, limit_path
from support.processes import LOOPBACK, wait_until

pytestmark = pytest.mark.rabbitmq

SMALLEST_PIPE = 4096
NOISY = (signal.SIGHUP, signal.SIGUSR2, signal.SIGALRM)  # each is worth a line: a reload, and two that mean nothing
WORTH_A_LINE = (
    ("/v1/log/level", {"level": "info", "reason": "a line"}),
    (f"{limit_path('amqp', '/', 'amq.default', 'nobody')}?force=1", {"messages": "1000/s", "reason": "a line"}),
)
TO_PIPE = 'exec "$@" 2>"$0"'
LONG_LINES = 10  # of so many rounds of signals one asks for stacks: they take processor time


class Sink:
    """Who reads the gateway's stderr, and does so only when told."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self._pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        fcntl.fcntl(self._pipe, fcntl.F_SETPIPE_SZ, SMALLEST_PIPE)
        self._reading = threading.Event()
        self._read = b""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def under(self, unbuffered: str) -> list[str]:
        return ["env", f"PYTHONUNBUFFERED={unbuffered}", "sh", "-c", TO_PIPE, str(self.path)]

    def read(self) -> None:
        self._reading.set()

    def _run(self) -> None:
        self._reading.wait()
        os.set_blocking(self._pipe, True)
        while data := os.read(self._pipe, 1 << 16):
            self._read += data

    def lines(self, event: str) -> list[dict[str, object]]:
        whole = self._read.decode().split("\n")[:-1]
        return [line for line in map(json.loads, whole) if line["event"] == event]

    def close(self) -> None:
        self._reading.set()
        self._thread.join()  # which goes on while the gateway may write: a test has the sink before its gateway, so it ends after it
        os.close(self._pipe)


@pytest.fixture
def sink(tmp_path: Path) -> Iterator[Sink]:
    with closing(Sink(tmp_path / "stderr.fifo")) as made:
        yield made


def lines_dropped(gateway: Gateway) -> float:
    return next(sample.value for sample in gateway.samples() if sample.name == "sluice_log_lines_dropped_total")


def fill(gateway: Gateway) -> None:
    """Have it log until lines are dropped. Of one event it logs twenty lines a second, so there are several."""

    rounds = count()

    def noise() -> bool:
        for number in NOISY:
            gateway.process.popen.send_signal(number)
        for path, body in WORTH_A_LINE:
            assert gateway.request("PUT", path, body).status == 200
        if next(rounds) % LONG_LINES:
            return False
        gateway.process.popen.send_signal(signal.SIGUSR1)
        return lines_dropped(gateway) > 0

    wait_until(noise, within=120, what="lines that are dropped", every=0.02)


def test_a_log_that_nobody_reads_stops_no_message_and_what_is_missing_is_told(
    rabbitmq: RabbitMQ, sink: Sink, start_gateway: StartGateway
) -> None:
    """Unbuffered, as images for containers have it: Python's own stream then loses the rest of a line whose write a signal cut short."""
    gateway: Gateway = start_gateway([amqp_listener(f"{LOOPBACK}:{rabbitmq.port}")], [], under=sink.under("1"))
    with Queue(rabbitmq.url, "unread") as queue:
        fill(gateway)
        published = go_publish(gateway.amqp_url(), "", queue.name, "unread", connections=2, count=500, window=50).result()
        assert published.count("A") == published.sent == 1000
        assert sink.lines("log_lines_dropped") == [], "while nobody reads"
        lost = settled(gateway)
        sink.read()
        wait_until(lambda: sink.lines("log_lines_dropped") != [], within=60, what="the line about those that are missing")
        assert [line["lines"] for line in sink.lines("log_lines_dropped")] == [lost]
        assert lines_dropped(gateway) == lost, "none is dropped any more"
        expect_confirm(gateway, queue.name)
        stored = [name for name in queue.drain() if name != PROBE]
        assert len(stored) == len(set(stored)) == 1000
        assert gateway.stop() == 0


def settled(gateway: Gateway) -> float:
    """How many lines were dropped, once signals that were sent have all been handled."""
    last, since = -1.0, time.monotonic()

    def steady() -> bool:
        nonlocal last, since
        now = lines_dropped(gateway)
        if now != last:
            last, since = now, time.monotonic()
        return time.monotonic() - since > 2

    wait_until(steady, within=60, what="no more lines are dropped")
    return last


def test_a_gateway_whose_log_nobody_reads_ends_in_order(rabbitmq: RabbitMQ, sink: Sink, start_gateway: StartGateway) -> None:
    """Buffered, where Python's own stream has a lock: a thread that waits in a write with it kept the process from ending."""
    gateway: Gateway = start_gateway([amqp_listener(f"{LOOPBACK}:{rabbitmq.port}")], [], under=sink.under(""))
    fill(gateway)
    assert gateway.stop() == 0
