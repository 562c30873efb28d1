"""Too little processor time (F42 of docs/design/reliability.md): nothing is lost, no heartbeat is missed, and the lag is seen."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.clients.fresh import PROBE, Sender, expect_confirm
from support.clients.programs import go_publish
from support.gateways import Gateway, StartGateway, amqp_listener
from support.processes import LOOPBACK, Process, tree, wait_until

pytestmark = [pytest.mark.rabbitmq, pytest.mark.long]  # it takes the processor from whatever runs beside it, too

RIVALS = 12  # endless loops on the processor that the gateway is on: it has a thirteenth of it
HEARTBEAT_S = 10
LASTS_S = 25.0  # longer than two heartbeats, after which a connection is given up
CONNECTIONS = 2
WINDOW = 20  # messages under way of each; with no other bound they want more than that part of a processor
CALM_S = 3.0
LATE_S = 0.002  # a mean that says: others starve the gateway, too, and what the rivals add does not double it
ENDLESS = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True:\n    pass\n"


def put_on(processor: int, pid: int) -> None:
    """A process with all its threads, on one processor."""
    for process in tree(pid):
        for thread in Path(f"/proc/{process}/task").iterdir():
            with suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread.name), {processor})


class Lag:
    """The lateness of the loop's timers since the last look."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._seen = self._read()

    def _read(self) -> tuple[float, float]:
        found = {sample.name: sample.value for sample in self._gateway.samples() if sample.name.startswith("sluice_event_loop_lag_seconds")}
        return found["sluice_event_loop_lag_seconds_sum"], found["sluice_event_loop_lag_seconds_count"]

    def mean(self) -> float:
        """Seconds."""
        before, self._seen = self._seen, self._read()
        return (self._seen[0] - before[0]) / max(1, self._seen[1] - before[1])


def test_a_gateway_without_processor_time_loses_nothing_and_keeps_its_connections(
    rabbitmq: RabbitMQ, start_gateway: StartGateway, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    gateway: Gateway = start_gateway([amqp_listener(f"{LOOPBACK}:{rabbitmq.port}")], [])
    over, processor = tmp_path / "over", min(os.sched_getaffinity(0))
    with Queue(rabbitmq.url, "starved") as queue, Queue(rabbitmq.url, "beating") as other, ExitStack() as rivals:
        with Sender(gateway, other.name, heartbeat=HEARTBEAT_S).sending() as sender:
            publishing = go_publish(
                gateway.amqp_url(), "", queue.name, "starved", connections=CONNECTIONS, window=WINDOW, seconds=1, until=str(over)
            )
            wait_until(lambda: gateway.get("/v1/status")["connections"] == CONNECTIONS + 1, within=30, what="publishers")
            put_on(processor, gateway.process.pid)
            lag = Lag(gateway)
            time.sleep(CALM_S)
            calm = lag.mean()
            for number in range(RIVALS):
                rivals.enter_context(Process([sys.executable, "-c", ENDLESS, str(processor)], log=tmp_path / f"rival-{number}"))
            time.sleep(LASTS_S)  # how long it lasts is the fault itself
            starved, before = lag.mean(), sender.confirmed
            wait_until(lambda: sender.confirmed > before, within=60, what="messages to go on")
            rivals.close()
            over.touch()
            published = publishing.result()
        lag.mean()
        assert published.closed == [""] * CONNECTIONS
        assert published.count("A") == published.sent > 1000
        expect_confirm(gateway, queue.name)

        def has_fallen() -> bool:
            time.sleep(2)
            return lag.mean() < max(starved / 2, 2 * calm)

        wait_until(has_fallen, within=60, what="the lag to fall")
        record_property(
            "remark", f"timers {1000 * calm:.1f} ms late on average, starved {1000 * starved:.1f} ms; {published.sent} messages"
        )
        assert starved > 2 * calm or calm > LATE_S, "that was no starvation"
        stored = [name for name in queue.drain() if name != PROBE]
        assert len(stored) == len(set(stored)) == published.sent
