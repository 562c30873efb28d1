"""What a first limit of an installation page is worth: a flood at the gateway, and what a real RabbitMQ got of it."""

from __future__ import annotations

import shlex

from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.floods import flood_until_refused
from support.pages import ROOT, blocks

RATE = 100  # messages a second, of the pages


def command_of(page: str) -> list[str]:
    """The words after `sluice` of the page's `limits set`."""
    shown = blocks(ROOT / f"docs/deploy/{page}.md", "sh", "text")
    (line,) = [line for block in shown for line in block.text.splitlines() if "limits set" in line]
    words = shlex.split(line)
    return words[words.index("limits") :]


def first_queue(rabbitmq: RabbitMQ) -> Queue:
    """For the topic of the pages: bound at the broker itself."""
    return Queue(rabbitmq.url, "first", exchange="orders", keys=("order.created",))


def assert_limited(url: str, queue: Queue) -> None:
    """Publish through the gateway at `url` until 100 are refused: at most burst and rate pass, and the broker has exactly those."""
    counted = flood_until_refused(url, "orders", "order.created")
    assert counted.refused >= 100, counted
    assert counted.confirmed <= RATE * (1 + counted.seconds) + 1, counted
    assert len(queue.contents()) == counted.confirmed
