"""Many rules: what a key costs when it is new, and that it is matched once."""

from __future__ import annotations

from functools import cache

from limiter.judge import Judge
from limiter.rules.rule_set import Effective, Match, Override, Rule, RuleSet
from limiter.topics import TopicName, rocketmq_topic
from support.models.asking import Limit, Rate, ask, key_of, orders

LIMIT = Limit(messages=Rate(5))


@cache  # at the first test that has them, and not in each process that collects it
def many() -> tuple[Rule, ...]:
    exact = [Rule(f"exact{number}", Match(exchange="orders", routing_key=f"k{number}.x"), limit=LIMIT) for number in range(10_000)]
    patterns = [Rule(f"pattern{number}", Match(exchange="orders", routing_key=f"*.t{number}.#"), limit=LIMIT) for number in range(1000)]
    return (*exact, *patterns, Rule("all", limit=LIMIT))


@cache
def many_rules() -> RuleSet:
    return RuleSet(many())


def said(found: list[Effective]) -> list[tuple[object, ...]]:
    return [(each.per, each.identity, each.origin, each.rule, each.by) for each in found]


def holding(rules: RuleSet, routing_key: bytes) -> str:
    (found,) = rules.effective(orders(routing_key=routing_key))
    return found.rule.name


def test_ten_thousand_names_and_a_thousand_patterns_are_found() -> None:
    assert holding(many_rules(), b"k9999.x") == "exact9999"
    assert holding(many_rules(), b"order.t999.eu") == "pattern999"
    assert holding(many_rules(), b"order.t1000.eu") == "all"


def test_a_key_is_matched_once_until_the_rules_change() -> None:
    judge = Judge(many_rules())
    key = key_of(judge, orders(routing_key=b"order.t7.x"))
    ask(judge, key, 0)
    buckets = key.buckets
    for moment in range(100):
        ask(judge, key, moment)
    assert key.buckets is buckets
    judge.replace(RuleSet(many(), like=many_rules()))
    ask(judge, key, 100)
    assert key.buckets is not buckets
    assert [bucket.rule.name for bucket in key.buckets] == ["pattern7"]


def test_a_live_change_does_not_compile_the_files_rules_again() -> None:
    changes: dict[TopicName, Override] = {orders(routing_key=b"new"): Override(messages=Rate(1), by="ann")}
    of_rules = {"pattern7": Override(messages=Rate(2), by="bob"), "exact3": Override(mode="off")}
    alike = RuleSet(many(), of_rules, changes, revision=2, like=many_rules())
    assert alike._matchers is many_rules()._matchers
    assert RuleSet(many()[:-1], like=many_rules())._matchers is not many_rules()._matchers
    anew = RuleSet(many(), of_rules, changes, revision=2)
    for routing_key in (b"new", b"order.t7.x", b"k3.x", b"k4.x", b"other"):
        name = orders(routing_key=routing_key)
        assert said(alike.effective(name)) == said(anew.effective(name))
    assert alike.generation > many_rules().generation


def test_a_set_made_like_another_does_not_change_that_one() -> None:
    before = RuleSet((Rule("clients", per="client", limit=LIMIT),))
    after = RuleSet(before.file_rules, overrides={rocketmq_topic(b"t"): Override(messages=Rate(1))}, like=before)
    assert [each.per for each in after.effective(rocketmq_topic(b"t"), client="10.0.0.1")] == ["client", "topic"]
    assert [each.per for each in before.effective(rocketmq_topic(b"t"), client="10.0.0.1")] == ["client"]
