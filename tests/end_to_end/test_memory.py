"""What the gateway keeps in memory: a flat amount while a broker hangs, whoever pushes, and nothing lost; little for an idle connection."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest

from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.clients.programs import go_publish
from support.gateways import Gateway, StartGateway, amqp_listener
from support.processes import wait_until

pytestmark = [pytest.mark.rabbitmq, pytest.mark.slow]

PUBLISHERS = 25
BUDGET = 512 * 1024
BODY = 16 * 1024
EACH = 1200  # messages of a publisher: more than the sockets between it and the broker hold, however slowly it fills them


def test_a_stalled_broker_leaves_memory_flat_and_loses_nothing(rabbitmq: RabbitMQ, start_gateway: StartGateway) -> None:
    gateway: Gateway = start_gateway(
        [amqp_listener(f"127.0.0.1:{rabbitmq.port}")],
        [{"name": "all", "match": {"protocol": "amqp"}, "per": "topic", "limit": {"messages": "1M/s"}}],
        memory={"per_connection": f"{BUDGET // 1024}KiB"},
    )
    with Queue(rabbitmq.url, "stalled") as queue:
        warm = go_publish(gateway.amqp_url(), "", queue.name, "warm", connections=PUBLISHERS, count=20, size=BODY).result()
        assert warm.count("A") == 20 * PUBLISHERS
        base = gateway.resident_bytes()
        flood = go_publish(
            gateway.amqp_url(), "", queue.name, "flood", connections=PUBLISHERS, count=EACH, rate=200, size=BODY, window=0, patience=600
        )

        def all_under_way() -> bool:
            items = gateway.get("/v1/connections")["items"]
            return len(items) == PUBLISHERS and all(item["messages_forwarded"] > 0 for item in items)

        def stopped(item: dict[str, Any]) -> bool:
            return (item["state"], item["bottleneck"]) == ("flow", "broker") and item["send_blocked_seconds"] > 1

        def all_stopped() -> bool:
            """But for those few whose sockets hold all they have: the kernel may let one grow to 32 MiB."""
            items = gateway.get("/v1/connections")["items"]
            through = [item for item in items if not stopped(item)]
            return len(through) < PUBLISHERS // 4 and all(item["messages_forwarded"] == EACH for item in through)

        wait_until(all_under_way, within=30, what="the first messages of every connection")
        rabbitmq.pause()
        try:
            sizes = []
            for _ in range(16):
                time.sleep(0.25)
                sizes.append(gateway.resident_bytes())
            try:  # a busy machine fills sockets late
                wait_until(all_stopped, within=60, what="the broker's standstill to reach every publisher")
            except TimeoutError as error:
                items = gateway.get("/v1/connections")["items"]
                seen = Counter((item["state"], item["bottleneck"], stopped(item), item["messages_forwarded"] == EACH) for item in items)
                error.add_note(f"state, bottleneck, stopped for a second, all of it forwarded: {seen}")
                raise
        finally:
            rabbitmq.resume()
        published = flood.result()
        arrived = queue.drain()
    assert published.sent * BODY > 10 * PUBLISHERS * BUDGET, "too small a flood to show anything"
    assert max(sizes) - base < PUBLISHERS * BUDGET
    assert published.count("A") == published.sent
    assert sorted(arrived) == sorted([*warm.ids("A"), *published.ids("A")])
