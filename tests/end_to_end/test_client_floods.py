"""7,000 confirmed messages, every seventh refused: message by message, an ack is a message in the queue and a nack is one refused.

The refused ones stand alone between runs of messages that pass, whose acks the broker gives in bulk: the hardest case for the translation
of confirms. Go and Bunny take a bulk ack's word for every tag below it, so a bulk ack that reached over a refused tag would show as a lie.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.clients.probes import Probe
from support.clients.programs import go_publish, java_publish
from support.gateways import Gateway, StartGateway, amqp_listener

pytestmark = pytest.mark.rabbitmq

COUNT = 7_000
EVERY = 7
NOTHING_PASSES = {"name": "refused", "match": {"protocol": "amqp", "queue": "every-seventh"}, "limit": {"messages": "0/s"}}


def flood(library: str, url: str, key: str, probe: Callable[[str], Probe], home: Path) -> tuple[str, list[str]]:
    """A letter for each message in the order of publishing (A acked, N nacked, ? no answer), and the messages' ids."""
    if library in {"go", "java"}:
        settings: dict[str, Any] = {"count": COUNT, "every": EVERY, "everykey": "every-seventh"}
        if library == "go":
            published = go_publish(url, "", key, "run", **settings).result()
        else:
            published = java_publish(home, url, "", key, "run", **settings).result()
        return published.outcomes[0], [f"run-0-{number}" for number in range(COUNT)]
    order = {"mode": "flood", "count": COUNT, "every": EVERY, "every_key": "every-seventh", "free": "free"}
    report = probe(library).ask(url=url, key=key, run="run", **order)
    if report.nacked is not None:
        assert report.nacked == list(range(EVERY, COUNT + 1, EVERY)), "the library's own list of refused tags"
    return report.outcomes, [f"run-{number}" for number in range(COUNT)]


@pytest.mark.parametrize("library", ["go", "java", "aio-pika", "bunny"])
def test_every_seventh_refused_and_no_ack_or_nack_is_a_lie(
    library: str, rabbitmq: RabbitMQ, start_gateway: StartGateway, probe: Callable[[str], Probe], tmp_path: Path
) -> None:
    gateway: Gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}")], [NOTHING_PASSES])
    with (
        Queue(rabbitmq.url, f"six-of-seven-{library}") as queue,
        Queue(rabbitmq.url, "every-seventh") as refused,
        Queue(rabbitmq.url, "free"),
    ):
        outcomes, ids = flood(library, gateway.amqp_url(), queue.name, probe, tmp_path)
        arrived = queue.drain()
        assert refused.depth() == 0
    passed = [identity for number, identity in enumerate(ids, 1) if number % EVERY]
    assert outcomes == "".join("A" if number % EVERY else "N" for number in range(1, COUNT + 1))
    assert arrived == passed
