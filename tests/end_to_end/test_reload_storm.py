"""Reloads without a pause under load, half of them of a broken file (F51 of docs/design/reliability.md): no message notices."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.clients.fresh import PROBE, expect_confirm
from support.clients.programs import go_publish
from support.gateways import Gateway, StartGateway, amqp_listener, limit_path
from support.processes import LOOPBACK, wait_until

pytestmark = pytest.mark.rabbitmq

RELOADS = [300, pytest.param(1000, marks=pytest.mark.long)]
WARM_UP = 50  # reloads; after them memory is looked at
ALLOWED_BYTES = 8 << 20
CONNECTIONS = 4
RATE = 100  # messages of a connection, a second
BROKEN = ("rules: [", "rules: [{name: all, per: topic, limit: {messages: many}}]", "\x00\xff", "rules: 7")


def rules(number: int) -> list[dict[str, object]]:
    return [{"name": "all", "per": "topic", "limit": {"messages": f"{100_000 + number}/s"}}]


class Storm:
    """Reloads, by SIGHUP and over the admin API in turns, of a good file and a broken one in turns."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.number = 0

    def reload(self) -> None:
        """Over the admin API: the answer is of this very file. By SIGHUP: it may meet the next one."""
        self.number += 1
        broken = self.number % 2 == 0
        if broken:
            self.gateway.rules_file.write_text(BROKEN[self.number // 2 % len(BROKEN)], encoding="latin-1")
        else:
            self.gateway.write_rules(rules(self.number))
        if self.number % 4 < 2:
            answer = self.gateway.request("POST", "/v1/config:reload")
            assert answer.status == (422 if broken else 200), (self.number, answer)
        else:
            self.gateway.process.popen.send_signal(signal.SIGHUP)

    def end(self) -> int:
        """A good file and then a broken one, each of which is answered; the number of the good one."""
        while self.number % 4:
            self.reload()
        self.reload()
        good = self.number
        self.number += 2
        self.reload()
        return good

    def is_in_force(self, number: int) -> bool:
        rule = self.gateway.get(limit_path("amqp", "/", "amq.default", "storm"))
        return f"{100_000 + number}/s" in str(rule)


def connections_opened(gateway: Gateway) -> float:
    return sum(sample.value for sample in gateway.samples() if sample.name == "sluice_connections_opened_total")


@pytest.mark.parametrize("reloads", RELOADS)
def test_a_storm_of_reloads_disturbs_no_connection_and_leaves_the_last_good_file_in_force(
    rabbitmq: RabbitMQ, start_gateway: StartGateway, reloads: int, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    gateway: Gateway = start_gateway([amqp_listener(f"{LOOPBACK}:{rabbitmq.port}")], rules(0))
    storm = Storm(gateway)
    over = tmp_path / "over"
    with Queue(rabbitmq.url, "storm") as queue:
        publishing = go_publish(
            gateway.amqp_url(), "", queue.name, "storm", connections=CONNECTIONS, rate=RATE, window=50, seconds=1, until=str(over)
        )
        wait_until(lambda: gateway.get("/v1/status")["connections"] == CONNECTIONS, within=30, what="publishers")
        opened = connections_opened(gateway)
        for _ in range(WARM_UP):
            storm.reload()
        before = gateway.resident_bytes()
        for _ in range(reloads):
            storm.reload()
        grown = gateway.resident_bytes() - before
        good = storm.end()
        assert connections_opened(gateway) == opened, "nobody had to connect again"
        over.touch()
        published = publishing.result()
        record_property("remark", f"{storm.number} reloads, {published.sent} messages, {grown / 2**20:+.1f} MiB")
        assert published.closed == [""] * CONNECTIONS
        assert published.count("A") == published.sent > RATE
        assert storm.is_in_force(good)
        assert grown < ALLOWED_BYTES
        expect_confirm(gateway, queue.name)
        stored = [name for name in queue.drain() if name != PROBE]
        assert len(stored) == len(set(stored)) == published.sent
