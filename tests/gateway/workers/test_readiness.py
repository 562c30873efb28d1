"""Readiness of several workers, as probes and Prometheus have it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from support.brokers import swallowing
from support.gateways import Gateway, amqp_listener
from support.processes import LOOPBACK, wait_until


def ready(gateway: Gateway) -> tuple[bool, float]:
    """`/readyz`, and `sluice_ready` of one scrape."""
    (value,) = [sample.value for sample in gateway.samples() if sample.name == "sluice_ready"]
    return gateway.answers("/readyz"), value


@pytest.mark.slow
def test_sluice_ready_follows_readyz_when_the_broker_goes(tmp_path: Path) -> None:
    settings = {"gateway": {"name": "two", "state_directory": "state", "workers": 2}}
    with (
        swallowing.SwallowingBroker(swallowing.amqp) as broker,
        Gateway(tmp_path, [amqp_listener(broker.address)], [], settings) as gateway,
    ):
        wait_until(lambda: ready(gateway) == (True, 1), within=30, what="both workers are ready")
        port = gateway.port("rabbit")
        broker.__exit__()
        with socket.create_connection((LOOPBACK, port)) as client:  # for which a worker connects to the broker
            client.sendall(b"AMQP\0\0\x09\x01")
            client.recv(100)
        wait_until(lambda: ready(gateway) == (False, 0), within=60, what="a worker has noticed that its broker is gone")
