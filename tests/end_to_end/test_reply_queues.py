"""Reply queues: names that come and go without end, through one connection. They cost a bounded memory, and hide no topic."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest

from support.amqp import frames as amqp
from support.brokers.stand_ins import rabbitmq
from support.gateways import Gateway, StartGateway, amqp_listener
from support.processes import HANG_S, LOOPBACK, wait_until

MIB = 1 << 20
NAMES = 900_000
BURST = 1000  # names; sent at once
FULL_AFTER = 150_000  # names: now the tables are full: 10,000 topics have totals, the log has 100,000 names on probation (`known_names.py`)
# What 750,000 more names may add: two seconds of the log (one is written while the next is gathered) with more lines than any before, each
# up to 50,000 at 0.9 kB. Between 47 and 81 MiB were seen. One table that keeps all of them adds more, be it 200 bytes for each.
MOST = 112 * MIB
REAL = "%2F/amq.default/real"


def forwarded(gateway: Gateway) -> int:
    """How many publishes have gone on, which the series of /metrics do not say: one that gives way to another takes its count along."""
    return sum(int(each.get("messages_forwarded", 0)) for each in gateway.get("/v1/connections")["items"])  # a busy worker describes none


def seen(gateway: Gateway) -> tuple[bool, bool]:
    """Whether the topic is in /v1/topics, and in /metrics."""
    listed = gateway.get("/v1/topics?q=real")["items"]
    series = [each for each in gateway.samples() if each.name == "sluice_messages_received_total"]
    return REAL in [each["topic"] for each in listed], REAL in [each.labels["topic"] for each in series]


def published_and_seen(client: socket.socket, gateway: Gateway) -> bool:
    client.sendall(amqp.publish(1, "real"))
    return seen(gateway) == (True, True)


@pytest.mark.parametrize("workers", [1, 2])
def test_hundreds_of_thousands_of_reply_queues_leave_memory_flat_and_hide_no_topic(start_gateway: StartGateway, workers: int) -> None:
    """Until November 2026 the first 10,000 names hid all later ones from /v1/topics, and the first 500 from /metrics, for good."""
    with rabbitmq() as broker, ExitStack() as stack:
        gateway = start_gateway([amqp_listener(broker.address)], [], gateway={"workers": workers, "state_directory": "state"})
        client = stack.enter_context(socket.create_connection((LOOPBACK, gateway.port("rabbit")), timeout=HANG_S))
        client.sendall(amqp.greeting(channels=(1,), heartbeat=600))
        before, after = amqp.publish(1, f"amq.gen-{0:020}").split(b"%020d" % 0)
        resident = []
        names = (
            NAMES if workers == 1 else FULL_AFTER + BURST
        )  # of two processes' memory nothing is asserted, and their tables are full by then
        for first in range(0, names, BURST):
            if first == FULL_AFTER:
                wait_until(lambda: forwarded(gateway) == FULL_AFTER, within=60, what="the first names have gone on")
                gateway.samples()  # which first moves all counts to the tables
                resident.append(gateway.resident_bytes())
            client.sendall(b"".join(b"%b%020d%b" % (before, number, after) for number in range(first, first + BURST)))
        wait_until(lambda: published_and_seen(client, gateway), within=60, what="the topic that is used is shown", every=0.5)
        resident.append(gateway.resident_bytes())
    if workers == 1:  # else it is the parent that was looked at
        assert resident[1] - resident[0] < MOST
