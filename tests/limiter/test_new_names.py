"""New names are bounded for each client address and second, without anybody's limit giving way."""

from __future__ import annotations

from limiter.judge import Judge
from limiter.keys import Key, Origin
from limiter.limits import SECOND, Limit, Rate
from limiter.new_names import AT_ONCE, MAX_CLIENTS, NAME_NS, PER_S, ClientsNames, NewNames
from limiter.request import Request
from limiter.rules.rule import Match, Override, Rule
from limiter.rules.rule_set import RuleSet
from limiter.topics import amqp_topic, rocketmq_topic

BEGIN = 10**15


def rule(name: str, rate: int, topic: str | None = None, per: str = "topic") -> Rule:
    return Rule(name, match=Match(protocol="rocketmq", topic=topic), per=per, limit=Limit(messages=Rate(rate)), open_for_ns=0)


RULES = (
    rule("named", 1, "named"),
    rule("shut", 0, "shut.*"),
    rule("used", 1, "used.*"),
    rule("all", 1),
    rule("clients", 50, None, "client"),
)


def key(judge: Judge, origin: Origin, topic: str, group: bytes | None = None) -> Key:
    return judge.key(origin, topic.encode() + b"\xff" + (group or b""), rocketmq_topic(topic.encode()), group)


def passed(judge: Judge, found: Key, now: int, count: int = 10) -> int:
    request = Request(found, count, 1, 0)
    judge.decide([request], now)
    return request.passed


def flooding(*rules: Rule) -> tuple[Judge, Origin]:
    """A judge, and a client that has used all the new names it has at once."""
    judge = Judge(RuleSet(rules), bounds_names=True)
    origin = judge.origin("rocketmq", "l", "10.0.0.1", None)
    judge.origins.now = BEGIN
    for number in range(AT_ONCE):
        assert not key(judge, origin, f"t{number}").unnamed
    return judge, origin


def test_a_client_has_so_many_at_once_and_a_second() -> None:
    names = NewNames()
    assert [names.take(0) for _ in range(AT_ONCE + 1)] == [True] * AT_ONCE + [False]
    assert [names.take(SECOND) for _ in range(PER_S + 1)] == [True] * PER_S + [False]
    assert not names.take(SECOND + NAME_NS - 1)
    assert names.take(SECOND + NAME_NS)
    assert [names.take(BEGIN) for _ in range(AT_ONCE + 1)] == [True] * AT_ONCE + [False]


def test_the_table_of_clients_is_bounded() -> None:
    clients = ClientsNames()
    first = clients.of("l", "10.0.0.1")
    for number in range(MAX_CLIENTS - 1):
        clients.of("l", str(number))
    assert clients.of("l", "10.0.0.1") is first
    clients.of("l", "one more")
    assert clients.of("l", "10.0.0.1") is first
    assert clients.of("other", "10.0.0.1") is not first


def test_further_names_share_a_key_and_are_not_remembered() -> None:
    judge, origin = flooding(*RULES)
    one, other = key(judge, origin, "new-1"), key(judge, origin, "new-2")
    assert one is other
    assert (one.unnamed, one.text, len(origin.keys)) == (True, "__other__", AT_ONCE)
    assert passed(judge, one, BEGIN, 45) == 45, "as many topics as messages, each with a full bucket"
    assert passed(judge, one, BEGIN, 45) == 5, "the client's own limit holds"
    judge.origins.now = BEGIN + SECOND
    assert not key(judge, origin, "new-1").unnamed, "its turn has come"


def test_a_client_that_comes_back_or_brings_friends_has_no_more() -> None:
    judge, origin = flooding(*RULES)
    assert key(judge, judge.origin("rocketmq", "l", "10.0.0.1", "another"), "new").unnamed
    judge.release(origin)
    assert key(judge, judge.origin("rocketmq", "l", "10.0.0.1", None), "new").unnamed
    assert not key(judge, judge.origin("rocketmq", "l", "10.0.0.2", None), "new").unnamed


def test_what_is_named_shut_changed_or_in_use_is_told_apart() -> None:
    judge, origin = flooding(*RULES)
    other = judge.origin("rocketmq", "l", "10.0.0.2", None)
    assert passed(judge, key(judge, other, "used.1"), BEGIN) == 1
    for topic in ("named", "used.1"):
        assert not key(judge, origin, topic).unnamed
    shut = key(judge, origin, "shut.1")
    assert shut is key(judge, origin, "shut.2") is not key(judge, origin, "new")
    assert passed(judge, shut, BEGIN) == 0
    assert passed(judge, key(judge, origin, "used.1"), BEGIN) == 0
    changed = RuleSet(RULES, overrides={rocketmq_topic(b"new"): Override(messages=Rate(0))})
    judge.replace(changed)
    assert passed(judge, key(judge, origin, "new"), BEGIN) == 0


def test_things_of_levels_between_are_told_apart() -> None:
    judge, origin = flooding(rule("groups", 1, None, "group"), rule("all", 1))
    assert key(judge, origin, "new-1", b"a") is key(judge, origin, "new-2", b"a") is not key(judge, origin, "new-1", b"b")
    assert passed(judge, key(judge, origin, "new-1", b"a"), BEGIN) == 1
    assert passed(judge, key(judge, origin, "new-2", b"a"), BEGIN) == 0
    assert passed(judge, key(judge, origin, "new-2", b"b"), BEGIN) == 1
    for number in range(200):
        key(judge, origin, "new", b"%d" % number)
    assert len(origin.together) <= 64


def test_topics_of_a_group_go_on_sharing_its_bucket() -> None:
    grouping = Rule("g", match=Match(protocol="amqp"), limit=Limit(messages=Rate(3)), routing_key_words=1, open_for_ns=0)
    judge = Judge(RuleSet((grouping,)), bounds_names=True)
    origin = judge.origin("amqp", "l", "10.0.0.1", None)
    judge.origins.now = BEGIN
    keys = [judge.key(origin, b"%d" % number, amqp_topic(b"/", b"x", b"order.%d" % number)) for number in range(AT_ONCE + 10)]
    assert len(set(keys)) == 1
    assert len(origin.keys) == AT_ONCE
    assert [passed(judge, keys[at], BEGIN, 2) for at in (0, -1)] == [2, 1]


def test_a_queue_is_always_told_apart() -> None:
    judge, origin = flooding(*RULES)
    assert not judge.key(origin, b"q", amqp_topic(b"/", b"", b"q"), None, "consume", told_apart=True).unnamed


def test_without_a_bound_all_are_told_apart() -> None:
    judge = Judge(RuleSet(RULES))
    origin = judge.origin("rocketmq", "l", "10.0.0.1", None)
    assert not any(key(judge, origin, f"t{number}").unnamed for number in range(AT_ONCE + 10))
