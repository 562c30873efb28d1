"""The two sides of a comparison: a broker spoken to directly, and a broker of its own behind a gateway without limits.

Both brokers are fresh and alike, so that nothing one run leaves behind reaches the other, and both runs can go on at the same time.
Both sides listen on port 5672, which some suites have built in, each on a loopback address of its own (all of 127.0.0.0/8 is this
machine), so neither needs 127.0.0.1:5672.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.brokers.rabbitmq import RabbitMQ
from support.gateways import Gateway, amqp_listener
from support.processes import is_free

PORT = 5672


class PortTakenError(RuntimeError):
    """Somebody listens on port 5672 of every address; the message says how to find out who."""


@dataclass(frozen=True)
class Side:
    """Where a suite finds its broker."""

    name: str  # "direct" or "gateway"
    address: str  # its port is 5672
    broker: RabbitMQ
    scratch: Path  # for logs and results
    gateway: Gateway | None = None

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@{self.address}:{PORT}/"

    @property
    def management_url(self) -> str:
        """The broker's own management API; the gateway has nothing to do with it."""
        return f"http://127.0.0.1:{self.broker.management_port}"

    def complaints(self) -> list[str]:
        """The errors the gateway has logged so far; without limits and with a healthy broker there is no cause for any."""
        lines = self.gateway.log().splitlines() if self.gateway is not None else []
        return [line for line in lines if '"level": "error"' in line or line.startswith("Traceback")]


def loopback_addresses(count: int) -> list[str]:
    """Addresses on which port 5672 is free, in a part of 127.0.0.0/8 that depends on the process. Raises PortTakenError."""
    network = f"127.{1 + os.getpid() % 250}"
    found = [address for number in range(1, 100) if is_free(address := f"{network}.{number}.1", PORT)][:count]
    if len(found) < count:
        taken = f"port {PORT} is taken on {network}.0.0/16: somebody listens on all addresses"
        raise PortTakenError(f"{taken}. Find out who (ss -ltnp 'sport = :{PORT}') and stop it")
    return found


@contextmanager
def behind_a_gateway(directory: Path) -> Iterator[Side]:
    """The gateway's side, running; everything is stopped at the end, the gateway must then exit 0."""
    hidden, front = loopback_addresses(2)
    folder = directory / "gateway"
    folder.mkdir(parents=True)
    with RabbitMQ(folder, management=True, bind=(hidden, PORT)) as broker:
        listener = amqp_listener(f"{hidden}:{PORT}") | {"bind": f"{front}:{PORT}"}
        with Gateway(directory / "sluice", [listener], rules=[]) as gateway:
            yield Side("gateway", front, broker, folder, gateway)


@contextmanager
def both_sides(directory: Path) -> Iterator[tuple[Side, Side]]:
    """The direct side and the gateway's."""
    with behind_a_gateway(directory) as gateways:
        (plain,) = loopback_addresses(1)
        folder = directory / "direct"
        folder.mkdir()
        with RabbitMQ(folder, management=True, bind=(plain, PORT)) as broker:
            yield Side("direct", plain, broker, folder), gateways
