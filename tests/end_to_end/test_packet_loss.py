"""A network that loses packets (F31 of docs/design/reliability.md), on both hops of a gateway before a real RabbitMQ: TCP mends it.

All of them are in a network namespace of their own, whose loopback loses packets by a filter.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.clients.fresh import PROBE, expect_confirm
from support.clients.programs import go_publish
from support.gateways import StartGateway, amqp_listener
from support.namespaces import losing, own_loopback
from support.processes import LOOPBACK

pytestmark = [pytest.mark.namespaces, pytest.mark.rabbitmq, pytest.mark.long]

CONNECTIONS = 4
COUNT = 200  # messages of a connection
RATE = 50  # of a connection, a second


def sent_again() -> int:
    """Segments that TCP has sent again in this thread's namespace."""
    names, values = (line.split() for line in Path("/proc/thread-self/net/snmp").read_text().splitlines() if line.startswith("Tcp:"))
    return int(values[names.index("RetransSegs")])


@pytest.mark.parametrize("part", [0.01, 0.1])
def test_a_network_that_loses_packets_delays_and_loses_no_message(
    tmp_path: Path, start_gateway: StartGateway, part: float, record_property: Callable[[str, object], None]
) -> None:
    with own_loopback(), RabbitMQ(tmp_path / "rabbitmq") as rabbitmq:
        gateway = start_gateway([amqp_listener(f"{LOOPBACK}:{rabbitmq.port}")], [])
        with Queue(rabbitmq.url, "lossy") as queue:
            before = sent_again()
            with losing(part):
                published = go_publish(
                    gateway.amqp_url(), "", queue.name, "lossy", connections=CONNECTIONS, count=COUNT, rate=RATE, window=50
                ).result()
                lost = sent_again() - before
            record_property("remark", f"{lost} segments sent again, {published.sent} messages")
            assert lost > 0, "that was no loss"
            assert published.closed == [""] * CONNECTIONS, "no heartbeat was missed"
            assert published.count("A") == published.sent == CONNECTIONS * COUNT
            expect_confirm(gateway, queue.name)
            stored = [name for name in queue.drain() if name != PROBE]
            assert len(stored) == len(set(stored)) == published.sent
        assert gateway.stop() == 0
