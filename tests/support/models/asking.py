"""Short ways to ask a judge, for tests."""

from __future__ import annotations

from limiter.judge import Judge
from limiter.keys import Key
from limiter.limits import Limit, Rate
from limiter.request import Request
from limiter.rules.rule_set import Match, Rule, RuleSet
from limiter.topics import TopicName, amqp_topic, rocketmq_topic

SECOND = 1_000_000_000


def per_topic(messages_per_second: int, **fields: object) -> Rule:
    """A rule for every topic, with the default burst of a second."""
    return Rule("topics", limit=Limit(messages=Rate(messages_per_second)), **fields)  # type: ignore[arg-type]


def judge_of(*rules: Rule, max_keys: int = 1000, live: int = 0) -> Judge:
    return Judge(RuleSet(rules), max_keys, live)


def key_of(
    judge: Judge, topic: str | TopicName, listener: str = "l", client: str = "10.0.0.1", user: str | None = None, **more: object
) -> Key:
    """The key of a topic (text: RocketMQ) from an origin."""
    name = rocketmq_topic(topic.encode()) if isinstance(topic, str) else topic
    origin = judge.origin(name.protocol, listener, client, user, name.vhost)
    return judge.key(origin, repr((name, more)).encode(), name, **more)  # type: ignore[arg-type]


def ask(judge: Judge, key: Key | None, now: int, count: int = 1, messages: int = 1, size: int = 0) -> Request:
    """One request, judged."""
    request = Request(key, count, messages, size)
    judge.decide([request], now)
    return request


def orders(vhost: bytes = b"/", exchange: bytes = b"orders", routing_key: bytes = b"order.created") -> TopicName:
    return amqp_topic(vhost, exchange, routing_key)


__all__ = ["SECOND", "Limit", "Match", "Rate", "Rule", "RuleSet", "ask", "judge_of", "key_of", "orders", "per_topic", "rocketmq_topic"]
