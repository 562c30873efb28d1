"""Storms of all that a client of RabbitMQ can do, each under its limit, beside a neighbour: its messages cost the gateway no more than
`test_isolation.py` lets other storms cost it, by the same method.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

import pytest

from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.clients.disturber import STORMS, Amqp, Disturber
from support.gateways import Gateway, amqp_listener
from support.isolation import percentile, window
from support.processes import LOOPBACK

ROUNDS: Final = 20  # of a window in the calm and one with the storm; as many more where they were dear, and all count together
SENDS: Final = 100
RATE: Final = 400  # messages a second
MOST: Final = {"publishes": 18, "requeues": 18, "declares": 18, "copies": 18, "connects": 25}  # units, at p99: of `storm` and `churn` there
STORED: Final = 200  # messages that come again and again
LIMITS: Final = {"publishes": 500, "requeues": 200, "declares": 50, "copies": 1000, "connects": 10}
LEAST: Final = {"publishes": 3000, "requeues": 300, "declares": 1000, "copies": 300, "connects": 20}  # in all, or it was no storm
QUIET: Final = "quiet"
NOISY: Final = "noisy"


def rule(name: str, match: dict[str, object], per: str = "rule", **more: object) -> dict[str, object]:
    limit = {"messages": f"{LIMITS[name]}/s", "burst": "100ms"}
    return {"name": name, "match": {"protocol": "amqp", **match}, "per": per, "limit": limit, **more}


RULES: Final = {
    "publishes": rule("publishes", {"queue": NOISY}),
    "requeues": rule("requeues", {"queue": NOISY, "operation": "requeue"}),
    "declares": rule("declares", {"operation": "declare"}),
    "copies": rule("copies", {"routing_key": f"{NOISY}*"}),
    "connects": rule("connects", {"operation": "connect"}, action="delay", max_delay="500ms"),
}


def times(stormy: list[float], calm: list[float], which: int) -> float:
    """A percentile, in units: what a message costs in the calm, the median."""
    return percentile(stormy, which) / percentile(calm, 50)


@pytest.mark.long
@pytest.mark.rabbitmq
@pytest.mark.parametrize("kind", STORMS)
def test_a_storm_under_its_limit_leaves_its_neighbour_alone(
    rabbitmq: RabbitMQ, tmp_path: Path, record_property: Callable[[str, object], None], kind: str
) -> None:
    wire = Amqp(QUIET)
    calm: list[float] = []
    stormy: list[float] = []
    storms = 0
    with ExitStack() as stack:
        stack.enter_context(Queue(rabbitmq.url, QUIET))
        noisy = stack.enter_context(Queue(rabbitmq.url, NOISY))
        gateway = stack.enter_context(Gateway(tmp_path, [amqp_listener(f"{LOOPBACK}:{rabbitmq.port}")], [RULES[kind]]))
        disturber = stack.enter_context(Disturber("amqp", kind, gateway.port("rabbit"), NOISY))
        client = stack.enter_context(closing(wire.connected(gateway.port("rabbit"))))

        def send(number: int) -> None:
            client.sendall(wire.message(b"x" * 200, number))
            wire.await_answer(client)

        window([gateway.process.pid], send, SENDS, RATE)
        while len(calm) < ROUNDS * SENDS or (len(calm) < 2 * ROUNDS * SENDS and times(stormy, calm, 99) > MOST[kind]):
            for _ in range(ROUNDS):
                calm += window([gateway.process.pid], send, SENDS, RATE)
                if kind == "requeues":
                    noisy.fill(STORED - noisy.depth(), b"x" * 200)
                with disturber.disturbing() as done:
                    stormy += window([gateway.process.pid], send, SENDS, RATE)
                storms += done["done"]
    found = ", ".join(f"p{each} {times(stormy, calm, each):.1f} times" for each in (50, 90, 99))
    told = f"{1e6 * percentile(calm, 50):.0f} µs in the calm; under {storms} {kind} {found}"
    record_property("remark", told)
    assert storms >= LEAST[kind], told
    assert times(stormy, calm, 99) <= MOST[kind], told
