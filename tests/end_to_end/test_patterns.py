"""Routing key patterns of rules against the bindings of a real topic exchange: the same words must match the same keys."""

from __future__ import annotations

import random
from collections import defaultdict
from itertools import product

import pika
import pytest

from limiter.rules.patterns import WORDS, routing_key_pattern
from support.brokers.rabbitmq import RabbitMQ

EXCHANGE = "patterns"
RANDOM_PATTERNS = 120
RANDOM_KEYS = 120


def patterns_and_keys() -> tuple[list[str], list[str]]:
    """All short ones, and longer ones drawn with a fixed seed; only patterns with a word of their own meaning."""
    draw = random.Random(20261121)
    patterns = [".".join(words) for length in (1, 2) for words in product(("a", "*", "#", ""), repeat=length)]
    patterns += [".".join(draw.choices(["a", "b", "", "*", "#"], k=draw.randint(3, 6))) for _ in range(RANDOM_PATTERNS)]
    keys = ["", *(".".join(words) for length in (1, 2, 3) for words in product(("a", "b", ""), repeat=length))]
    keys += [".".join(draw.choices(["a", "b", "", "*", "#", "é"], k=draw.randint(1, 7))) for _ in range(RANDOM_KEYS)]
    return sorted({pattern for pattern in patterns if routing_key_pattern(pattern).kind == WORDS}), sorted(set(keys))


@pytest.mark.rabbitmq
def test_patterns_match_what_the_brokers_bindings_match(rabbitmq: RabbitMQ) -> None:
    patterns, keys = patterns_and_keys()
    assert len(patterns) * len(keys) > 10_000
    with pika.BlockingConnection(pika.URLParameters(rabbitmq.url + "?heartbeat=0")) as connection:
        channel = connection.channel()
        channel.exchange_declare(EXCHANGE, "topic", auto_delete=True)
        queues = {}
        for pattern in patterns:
            queues[pattern] = channel.queue_declare("", exclusive=True).method.queue
            channel.queue_bind(queues[pattern], EXCHANGE, pattern)
        channel.confirm_delivery()
        for key in keys:
            channel.basic_publish(EXCHANGE, key, key.encode())
        bound = defaultdict(set)
        for pattern, queue in queues.items():
            while True:
                method, _, body = channel.basic_get(queue, auto_ack=True)
                if method is None:
                    break
                bound[pattern].add(body.decode())
    for pattern in patterns:
        matcher = routing_key_pattern(pattern)
        assert {key for key in keys if matcher.matches(key)} == bound[pattern], pattern
