"""Buckets that belong to a connection, and routing keys with ids in them, through real sessions."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from limiter.limits import Limit, Rate
from limiter.rules.rule_set import Match, Rule, RuleSet
from support.amqp import frames as amqp
from support.rocketmq import frames as rocketmq
from support.wires.wires import Wires

FIVE = Limit(messages=Rate(5, 60_000_000_000), messages_burst=5)
PER_CONNECTION = Rule("each", per="connection", limit=FIVE, open_for_ns=0, fallback="drop")
PER_TOPIC = Rule("topics", limit=FIVE, open_for_ns=0, fallback="drop")


def amqp_connection(wires: Wires) -> tuple[socket.socket, socket.socket]:
    """A session with channel 1 open, without confirms: what is over the limit is dropped and counted."""
    client, broker = wires.connect("amqp")
    broker.sendall(amqp.broker_opens())
    client.sendall(amqp.greeting(channels=(1,)))
    wires.run()
    wires.received(broker)
    return client, broker


def offer(wires: Wires, protocol: str, client: socket.socket, broker: socket.socket, count: int = 8) -> int:
    """Send `count` messages; how many reached the broker."""
    if protocol == "amqp":
        client.sendall(b"".join(amqp.publish(1, "orders", b"x") for _ in range(count)))
        wires.run()
        return amqp.names(wires.received(broker)).count("Basic.Publish")
    client.sendall(b"".join(rocketmq.send("orders", opaque=number) for number in range(count)))
    wires.run()
    return len(rocketmq.split_frames(wires.received(broker)))


@pytest.mark.parametrize("protocol", ["amqp", "rocketmq"])
def test_each_connection_has_a_bucket_of_its_own(protocol: str) -> None:
    with Wires(PER_CONNECTION) as wires:
        pairs = [amqp_connection(wires) if protocol == "amqp" else wires.connect(protocol) for _ in range(2)]
        assert [offer(wires, protocol, *pair) for pair in pairs] == [5, 5]
        assert offer(wires, protocol, *pairs[0]) == 0


@pytest.mark.parametrize("protocol", ["amqp", "rocketmq"])
def test_connections_that_were_open_before_the_rule_came_are_told_apart_too(protocol: str) -> None:
    with Wires(PER_TOPIC) as wires:
        pairs = [amqp_connection(wires) if protocol == "amqp" else wires.connect(protocol) for _ in range(2)]
        assert [offer(wires, protocol, *pair) for pair in pairs] == [5, 0]
        wires.enforce(RuleSet((PER_CONNECTION,)))
        assert [offer(wires, protocol, *pair) for pair in pairs] == [5, 5]
        for client, broker in pairs:
            client.close()
            broker.close()
        wires.run()
        assert wires.judge.usage()["origins"] == wires.judge.usage()["levels"] - 1 == 0  # the topic's level is left


def test_routing_keys_that_a_session_has_met_are_one_topic_from_when_a_rule_says_so() -> None:
    """Names that a session remembers are not older than the rules."""
    plain = Rule("plain", limit=Limit(messages=Rate(1000, 1_000_000_000)))
    by_words = Rule("by-words", match=Match(exchange="orders"), limit=FIVE, open_for_ns=0, fallback="drop", routing_key_words=2)
    both = b"".join(amqp.publish(1, f"order.eu.{number}", b"x", exchange="orders") for number in (1, 2))
    with Wires(plain) as wires:
        client, _ = amqp_connection(wires)
        for rules in (RuleSet((plain,)), RuleSet((by_words,)), RuleSet((plain,))):
            wires.enforce(rules)
            client.sendall(4 * both)
            wires.run()
        assert wires.totals("amqp", "%2F/orders/order.eu.#")["received"] == 8
        assert [wires.totals("amqp", f"%2F/orders/order.eu.{number}")["received"] for number in (1, 2)] == [8, 8]


def test_routing_keys_with_ids_in_them_are_one_topic_to_limits_and_counters() -> None:
    by_words = Rule("by-words", match=Match(exchange="orders"), limit=FIVE, open_for_ns=0, fallback="drop", routing_key_words=2)
    with Wires(by_words) as wires:
        client, broker = amqp_connection(wires)
        flood: Any = [amqp.publish(1, f"order.eu.{number}", b"x", exchange="orders") for number in range(3000)]
        client.sendall(b"".join(flood))
        wires.run()
        assert amqp.names(wires.received(broker)).count("Basic.Publish") == 5
        totals = wires.totals("amqp", "%2F/orders/order.eu.#")
        assert (totals["received"], totals["forwarded"], totals["dropped"]) == (3000, 5, 2995)
        assert len(wires.accounts.topics) == 1
        assert len(wires.judge.states(0)) == 1
