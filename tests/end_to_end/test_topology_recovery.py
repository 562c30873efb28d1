"""A client's topology after its broker was restarted, at a limit on declaring: 500 queues are there again, late, and without an error.

Java, Bunny and aio-pika recover by themselves, Spring AMQP declares its beans anew, and an application on pika does so itself.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker

from support.brokers.rabbitmq import RabbitMQ
from support.clients.probes import PYTHON_LIBRARIES, tool_of_debian
from support.clients.programs import CLIENTS, Program
from support.environments import environment
from support.gateways import Gateway, amqp_listener
from support.java import compiled, java
from support.processes import LOOPBACK

QUEUES: Final = 500
RATE: Final = 50  # declares a second
BURST: Final = 50
RESOURCE_LOCKED: Final = 405
LEAST_S: Final = (QUEUES - BURST) / RATE - 1.0  # a second of tokens may have come in while nothing was asked
RULE: Final = {
    "name": "declares", "match": {"operation": "declare"}, "per": "client", "action": "delay",
    "limit": {"messages": f"{RATE}/s", "burst": {"messages": BURST}},
}  # fmt: skip


def python(name: str, home: Path) -> list[str]:
    del home
    own = sys.executable if name == "pika" else str(environment("clients", *PYTHON_LIBRARIES))
    return [own, str(CLIENTS / "python" / f"topology_{name}.py")]


COMMANDS: Final[dict[str, Callable[[Path], list[str]]]] = {
    "pika": lambda home: python("pika", home),
    "aio-pika": lambda home: python("aio_pika", home),
    "bunny": lambda _: [tool_of_debian("ruby", "ruby-bunny"), str(CLIENTS / "ruby" / "topology.rb")],
    "java": lambda home: java(compiled(CLIENTS / "java" / "amqp", "amqp-client"), "Topology", home),
    "spring": lambda home: java(compiled(CLIENTS / "java" / "spring", "spring-rabbit"), "Topology", home),
}


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    with RabbitMQ(tmp_path_factory.mktemp("rabbitmq")) as broker:
        yield broker


def is_there(broker: RabbitMQ, number: int) -> bool:
    """Whether that queue is: its owner alone may look at it."""
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as direct, pytest.raises(ChannelClosedByBroker) as caught:
        direct.channel().queue_declare(f"topology.{number}", passive=True)
    return int(caught.value.reply_code) == RESOURCE_LOCKED


def declared(gateway: Gateway) -> dict[str, float]:
    return gateway.messages_by_fate("amqp", "%2F/amq.default/", "declare")


@pytest.mark.long
@pytest.mark.rabbitmq
@pytest.mark.parametrize("library", COMMANDS)
def test_a_topology_is_declared_anew_after_a_restart_of_the_broker(
    mortal: RabbitMQ, tmp_path: Path, library: str, record_property: Callable[[str, object], None]
) -> None:
    with Gateway(tmp_path / "gateway", [amqp_listener(f"{LOOPBACK}:{mortal.port}")], [RULE]) as gateway, Program.none_outlives():
        program = Program([*COMMANDS[library](tmp_path), gateway.amqp_url(), str(QUEUES)], cwd=tmp_path)
        lines = program.lines()
        assert next(lines) == {"declared": QUEUES}
        assert declared(gateway)["forwarded"] == QUEUES
        mortal.kill()
        mortal.start_node()
        began = time.monotonic()
        recovered = next(lines)
        took = time.monotonic() - began
        record_property("remark", f"{library}: {took:.1f} s after the broker was there, {recovered['seconds']:.1f} s by its own clock")
        assert recovered["errors"] == []
        assert recovered["seconds"] >= LEAST_S, "that was no limit"
        assert is_there(mortal, 0)
        assert is_there(mortal, QUEUES - 1)
        fates = declared(gateway)
        assert fates["forwarded"] >= 2 * QUEUES
        assert fates["refused"] == fates["dropped"] == 0
        program.stop()
