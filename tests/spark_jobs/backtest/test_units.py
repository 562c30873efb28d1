"""Topics that share a bucket are replayed together; others are not."""

from __future__ import annotations

from limiter.limits import Limit, Rate
from limiter.rules.match import Match
from limiter.rules.rule import Rule
from spark_jobs.backtest.contender import make_contender
from spark_jobs.backtest.units import Seen, group_into_units

LIMIT = Limit(Rate(10))


def seen(topic: str, client: str = "10.0.0.1", user: str | None = None, lines: int = 100, protocol: str = "rocketmq") -> Seen:
    return Seen(protocol, topic, client, user, None, lines)


def groups(found: dict[tuple[str, str], int]) -> set[frozenset[str]]:
    by_unit: dict[int, set[str]] = {}
    for (_, topic), unit in found.items():
        by_unit.setdefault(unit, set()).add(topic)
    return {frozenset(topics) for topics in by_unit.values()}


def test_a_limit_per_topic_keeps_every_topic_by_itself() -> None:
    rules = [Rule("all", Match(protocol="rocketmq"), limit=LIMIT)]
    found = group_into_units([seen("a"), seen("b"), seen("c")], [make_contender("tried", rules)[0]])
    assert groups(found.of_topic) == {frozenset("a"), frozenset("b"), frozenset("c")}
    assert found.notes == []


def test_topics_of_one_client_stay_together_and_the_rule_is_named() -> None:
    rules = [Rule("each-client", Match(protocol="rocketmq"), per="client", limit=LIMIT)]
    lines = [seen("a", "10.0.0.1"), seen("b", "10.0.0.1"), seen("b", "10.0.0.2"), seen("c", "10.0.0.2"), seen("d", "10.0.0.3")]
    found = group_into_units(lines, [make_contender("tried", rules)[0]])
    assert groups(found.of_topic) == {frozenset("abc"), frozenset("d")}
    assert len(found.notes) == 1
    assert "3 topics with 80 % of the lines share buckets (rule each-client)" in found.notes[0]


def test_a_rule_for_some_topics_keeps_only_those_together() -> None:
    rules = [Rule("orders", Match(topic="orders.*"), per="rule", limit=LIMIT)]
    found = group_into_units([seen("orders.eu"), seen("orders.us"), seen("audit")], [make_contender("tried", rules)[0]])
    assert groups(found.of_topic) == {frozenset({"orders.eu", "orders.us"}), frozenset({"audit"})}


def test_routing_keys_that_share_words_share_a_unit() -> None:
    rules = [Rule("ids", Match(exchange="shop"), routing_key_words=1, limit=LIMIT)]
    lines = [seen(f"%2F/shop/{key}", protocol="amqp") for key in ("eu.1", "eu.2", "us.1")]
    found = group_into_units(lines, [make_contender("tried", rules)[0]])
    assert groups(found.of_topic) == {frozenset({"%2F/shop/eu.1", "%2F/shop/eu.2"}), frozenset({"%2F/shop/us.1"})}


def test_contenders_are_put_together_by_what_any_of_them_shares() -> None:
    one = make_contender("one", [Rule("eu", Match(topic="*.eu"), per="rule", limit=LIMIT)])[0]
    other = make_contender("other", [Rule("orders", Match(topic="orders.*"), per="rule", limit=LIMIT)])[0]
    found = group_into_units([seen("orders.eu"), seen("orders.us"), seen("stock.eu"), seen("audit")], [one, other])
    assert groups(found.of_topic) == {frozenset({"orders.eu", "orders.us", "stock.eu"}), frozenset({"audit"})}
