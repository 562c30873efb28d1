"""New names are bounded for each client address and second, without anybody's limit giving way."""

from __future__ import annotations

import time

import pytest

from limiter.decisions.alike_names import MAX_TOGETHER
from limiter.decisions.origins import LINGER_NS, MAX_LINGERING
from limiter.judge import Judge
from limiter.keys import Key, Origin
from limiter.limits import SECOND, Limit, Rate
from limiter.new_names import AT_ONCE, MAX_CLIENTS, NAME_NS, PER_S, ClientsNames, NewNames
from limiter.request import Request
from limiter.rules.live_change import Override
from limiter.rules.match import Match
from limiter.rules.rule import Rule
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


def beyond(judge: Judge, origin: Origin, topic: str, group: bytes = b"") -> Key:
    found = judge.origins.beyond(origin, b"", topic.encode(), group)
    assert found is not None
    return found


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


def test_a_client_that_connects_for_each_message_uses_a_name_once() -> None:
    judge = Judge(RuleSet(RULES), bounds_names=True)
    for number in range(3 * AT_ONCE):
        judge.origins.tick(BEGIN + number * NAME_NS // 3)
        origin = judge.origin("rocketmq", "l", "10.0.0.1", None)
        assert not key(judge, origin, f"t{number % 3}").unnamed
        judge.release(origin)
    assert judge.usage()["keys"] == 3


def test_who_does_not_come_back_is_forgotten() -> None:
    judge = Judge(RuleSet(RULES), bounds_names=True)
    for number in range(MAX_LINGERING + 5):
        origin = judge.origin("rocketmq", "l", str(number), None)
        key(judge, origin, "t")
        judge.release(origin)
    assert judge.usage()["origins"] == judge.usage()["keys"] == MAX_LINGERING, "those that went last"
    back = judge.origin("rocketmq", "l", str(MAX_LINGERING), None)
    judge.origins.tick(LINGER_NS - 1)
    assert judge.usage()["origins"] == MAX_LINGERING
    judge.origins.tick(LINGER_NS)
    assert (judge.usage()["origins"], judge.usage()["keys"]) == (1, 1)
    judge.release(back)
    judge.origins.tick(2 * LINGER_NS - 1)
    assert judge.usage()["origins"] == 1, "since it left again"
    judge.origins.tick(2 * LINGER_NS)
    assert judge.usage()["origins"] == 0


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
    keys = [key(judge, origin, f"new-{number}", b"%d" % number) for number in range(200)]
    assert all(each.unnamed for each in keys)
    assert len(origin.together) == MAX_TOGETHER + 1
    assert sum(passed(judge, each, BEGIN) for each in keys) == MAX_TOGETHER - 1, "of 'a' and 'b' all is used, further ones share one bucket"


def test_things_without_end_do_not_open_what_a_rule_closes() -> None:
    shut = Rule("shut", match=Match(protocol="rocketmq", topic="shut.*"), per="group", limit=Limit(messages=Rate(0)), open_for_ns=0)
    judge, origin = flooding(shut, rule("groups", 1, None, "group"))
    for number in range(200):
        key(judge, origin, "new", b"%d" % number)
    assert passed(judge, beyond(judge, origin, "shut.1", b"other"), BEGIN) == 0
    assert passed(judge, beyond(judge, origin, "new", b"other"), BEGIN) == 1


@pytest.mark.parametrize("further", [0, 20], ids=["few patterns", "found by the index"])
def test_look_ups_find_what_the_rules_say(further: int) -> None:
    """The quick way answers as the walk over all rules, or leaves it to that; so do rules that nothing meets."""
    rules = (
        *RULES,
        rule("ends", 1, "*.end"),
        rule("within", 1, "*middle*"),
        *(rule(f"not met {number}", 1, f"nothing-{number}*") for number in range(further)),
        Rule("by client", match=Match(protocol="rocketmq", client="10.0.0.1", topic="c.*"), per="client", limit=Limit(messages=Rate(9))),
    )
    judge, origin = flooding(*rules)
    used = key(judge, judge.origin("rocketmq", "l", "10.0.0.2", None), "used.1")
    assert passed(judge, used, BEGIN) == 1
    topics = [
        "rmq_sys_x",
        "%RETRY%a",
        "new-1",
        "new-2",
        "shut.1",
        "shut.2",
        "used.2",
        "a.end",
        "a.middle.b",
        "a.middle.end",
        "shut.end",
        "c.1",
        "c.end",
        "é",
        "a/b",
    ]
    for topic in [*topics, *topics]:
        quick = beyond(judge, origin, topic)
        assert quick is judge.key(origin, topic.encode(), rocketmq_topic(topic.encode()))
        assert quick.unnamed
    assert beyond(judge, origin, "new-1") is beyond(judge, origin, "new-3") is not beyond(judge, origin, "shut.3")
    for topic in ("named", "used.1"):
        assert judge.origins.beyond(origin, b"", topic.encode(), b"") is None, topic
    assert judge.origins.beyond(origin, b"", b"\xff", b"") is None
    judge.origins.now = BEGIN + SECOND
    assert judge.origins.beyond(origin, b"", b"new-1", b"") is None, "its turn has come"


def test_groups_without_end_share_the_key_of_each_topic_that_is_told_apart() -> None:
    judge, origin = flooding(*RULES, rule("system", 1, "%RETRY%named"))
    assert passed(judge, key(judge, judge.origin("rocketmq", "l", "10.0.0.2", None), "used.1"), BEGIN) == 1
    before = len(origin.keys)
    for topic, passes in (("named", 1), ("%RETRY%named", 1), ("used.1", 0), ("shut.1", 0)):
        keys = {judge.origins.beyond(origin, b"", topic.encode(), b"%d" % number) for number in range(200)}
        (one,) = keys
        assert one is not None
        assert passed(judge, one, BEGIN) == passes, topic
    assert len(origin.keys) == before + 3
    changed = RuleSet(RULES, overrides={rocketmq_topic(b"named"): Override(messages=Rate(0))})
    judge.replace(changed)
    one = judge.origins.beyond(origin, b"", b"named", b"another")
    assert one is not None
    assert passed(judge, one, BEGIN + SECOND // 2) == 0


def test_look_ups_find_a_routing_key_in_use() -> None:
    judge = Judge(RuleSet((Rule("all", match=Match(protocol="amqp"), limit=Limit(messages=Rate(1)), open_for_ns=0),)), bounds_names=True)
    origin, other = (judge.origin("amqp", "l", f"10.0.0.{number}", "u") for number in (1, 2))
    judge.origins.now = BEGIN
    for number in range(AT_ONCE):
        judge.key(origin, b"%d" % number, amqp_topic(b"/", b"x", b"%d" % number))
    passed(judge, judge.key(other, b"a", amqp_topic(b"/", b"x", b"a/b.c")), BEGIN)
    new = judge.origins.beyond(origin, b"x", b"new", b"")
    assert new is not None
    assert new.unnamed
    assert judge.origins.beyond(origin, b"x", b"new-2", b"") is new is judge.origins.beyond(origin, b"y", b"new", b"")
    assert judge.origins.beyond(origin, b"x", b"a/b.c", b"") is None
    changed = RuleSet(judge.rules.file_rules, overrides={amqp_topic(b"/", b"x", b"new"): Override(messages=Rate(0))})
    judge.replace(changed)
    assert judge.origins.beyond(origin, b"x", b"new", b"") is None


@pytest.mark.parametrize("by_exchange", [False, True])
def test_exchanges_without_end_share_a_key_but_where_a_topic_is_in_use(by_exchange: bool) -> None:
    looking = Rule("e", match=Match(protocol="amqp", exchange="shut.*"), limit=Limit(messages=Rate(0)), open_for_ns=0)
    every = Rule("all", match=Match(protocol="amqp"), limit=Limit(messages=Rate(1)), open_for_ns=0)
    judge = Judge(RuleSet((*(looking,) * by_exchange, every)), bounds_names=True)
    origin = judge.origin("amqp", "l", "10.0.0.1", "u")
    judge.origins.now = BEGIN
    for number in range(AT_ONCE):
        judge.key(origin, b"%d" % number, amqp_topic(b"/", b"x", b"%d" % number))
    used = judge.key(judge.origin("amqp", "l", "10.0.0.2", "u"), b"a", amqp_topic(b"/", b"e150", b"k"))
    assert passed(judge, used, BEGIN, 1) == 1
    keys = {judge.origins.beyond(origin, b"e%d" % number, b"k", b"") for number in range(200)}
    assert None in keys, "a topic in use is told apart, whatever the exchange before"
    assert len(keys) == 2
    shut = judge.origins.beyond(origin, b"shut.1", b"k", b"")
    assert shut is not None
    assert passed(judge, shut, BEGIN) == (0 if by_exchange else 10), "as many topics as messages, each with a full bucket"


def test_a_new_exchange_costs_a_few_times_what_a_new_routing_key_costs() -> None:
    """1.6 times as much; a walk over the rules took 4.5 times as long, for every exchange once 64 were met."""
    judge = Judge(RuleSet((Rule("all", match=Match(protocol="amqp"), limit=Limit(messages=Rate(1)), open_for_ns=0),)), bounds_names=True)
    origin = judge.origin("amqp", "l", "10.0.0.1", "u")
    judge.origins.now = BEGIN
    for number in range(AT_ONCE):
        judge.key(origin, b"%d" % number, amqp_topic(b"/", b"x", b"%d" % number))
    names = [b"n%d" % number for number in range(2000)]

    def seconds(exchanges: list[bytes], keys: list[bytes]) -> float:
        began = time.thread_time()
        for exchange, routing_key in zip(exchanges, keys, strict=True):
            judge.origins.beyond(origin, exchange, routing_key, b"")
        return time.thread_time() - began

    # In turn, and the least of many: a neighbour on the same core makes both dear, or one of a pair.
    ratio = min(seconds(names, [b"k"] * len(names)) / seconds([b"x"] * len(names), names) for _ in range(40))
    assert ratio < 2.2


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
