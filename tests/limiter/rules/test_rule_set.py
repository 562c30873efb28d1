"""Which rule holds: the precedence of `docs/design/contract.md` 3."""

from __future__ import annotations

import pytest

from limiter.limits import SECOND
from limiter.quota_snapshot import Quota
from limiter.rules.rule_set import Effective
from limiter.topics import TopicName, amqp_topic, parse_topic
from support.cases import in_one_loop
from support.models.asking import Limit, Match, Rate, Rule, RuleSet, orders, rocketmq_topic

from limiter.rules.rule_set import Override, RuleError  # isort: skip

ORDERS = rocketmq_topic(b"orders")


def rule(name: str, rate: int, per: str = "topic", **match: str) -> Rule:
    return Rule(name, match=Match(**match), per=per, limit=Limit(messages=Rate(rate)), place=f"limits.yaml:{rate}")


def holds(rules: RuleSet, name: TopicName, **asking: object) -> list[tuple[str, str, str, float]]:
    """(level, origin, rule, rate) of each level."""
    return [
        (one.per, one.origin, one.rule.name, one.limit.messages.per_second if one.limit.messages else -1.0)
        for one in rules.effective(name, **asking)  # type: ignore[arg-type]
    ]


CATCH_ALL = rule("catch-all", 2000, protocol="rocketmq")
GLOB = rule("glob", 300, topic="ord*")
EXACT = rule("exact", 40, topic="orders")
QUOTA = {ORDERS: Quota("rocketmq", "orders", messages=(7, 9))}
OVERRIDE = {ORDERS: Override(messages=Rate(1), by="alice", at=5.0, reason="why")}


@pytest.mark.parametrize(
    ("rules", "quotas", "overrides", "expected"),
    [
        ((), {}, {}, []),
        ((CATCH_ALL,), {}, {}, [("topic", "default", "catch-all", 2000)]),
        ((CATCH_ALL, GLOB), {}, {}, [("topic", "default", "glob", 300)]),
        ((GLOB, CATCH_ALL), {}, {}, [("topic", "default", "glob", 300)]),
        ((GLOB, rule("later", 5, topic="order?")), {}, {}, [("topic", "default", "glob", 300)]),
        ((CATCH_ALL, GLOB), QUOTA, {}, [("topic", "quota", "glob", 7)]),
        ((CATCH_ALL, GLOB, EXACT), QUOTA, {}, [("topic", "file", "exact", 40)]),
        ((CATCH_ALL, GLOB, EXACT, rule("again", 41, topic="orders")), QUOTA, {}, [("topic", "file", "exact", 40)]),
        ((CATCH_ALL, GLOB, EXACT), QUOTA, OVERRIDE, [("topic", "override", "exact", 1)]),
        ((CATCH_ALL, GLOB), QUOTA, OVERRIDE, [("topic", "override", "glob", 1)]),
        ((), QUOTA, {}, [("topic", "quota", "unruled", 7)]),
        ((), {}, OVERRIDE, [("topic", "override", "unruled", 1)]),
    ],
)
def test_precedence_within_a_level(
    rules: tuple[Rule, ...],
    quotas: dict[TopicName, Quota],
    overrides: dict[TopicName, Override],
    expected: list[tuple[str, str, str, float]],
) -> None:
    assert holds(RuleSet(rules, quotas=quotas, overrides=overrides), ORDERS) == expected
    assert holds(RuleSet(rules, quotas=quotas, overrides=overrides), rocketmq_topic(b"another")) == (
        [("topic", "default", "catch-all", 2000)] if CATCH_ALL in rules else []
    )


def test_the_two_rules_of_the_contracts_example_both_hold() -> None:
    """The catch-all stands first in the file, and yet retries have their own limit: a bare rule is the default of its level."""
    rules = RuleSet((CATCH_ALL, rule("retries", 100, protocol="rocketmq", topic="%RETRY%*")))
    assert holds(rules, rocketmq_topic(b"%RETRY%g")) == [("topic", "default", "retries", 100)]
    assert holds(rules, ORDERS) == [("topic", "default", "catch-all", 2000)]


def test_a_rule_that_asks_for_more_than_protocol_and_listener_is_not_bare() -> None:
    rules = RuleSet((rule("group", 5, group="g"), CATCH_ALL, rule("client", 6, client="10.0.0.0/8"), GLOB))
    assert holds(rules, ORDERS, client="10.0.0.1")[0][2] == "client"
    assert holds(rules, ORDERS, client="10.0.0.1", group=b"g")[0][2] == "group"
    assert holds(rules, ORDERS)[0][2] == "glob"


def test_of_two_rules_that_name_the_key_exactly_the_first_in_the_file_holds() -> None:
    any_vhost = rule("any-vhost", 5, exchange="orders", routing_key="order.created")
    this_vhost = rule("this-vhost", 6, vhost="/", exchange="orders", routing_key="order.created")
    assert holds(RuleSet((any_vhost, this_vhost)), orders()) == [("topic", "file", "any-vhost", 5)]
    assert holds(RuleSet((this_vhost, any_vhost)), orders()) == [("topic", "file", "this-vhost", 6)]
    assert holds(RuleSet((this_vhost, any_vhost)), orders(vhost=b"shop")) == [("topic", "file", "any-vhost", 5)]


def test_levels_add_up_in_the_order_of_the_file() -> None:
    rules = RuleSet((rule("all", 9, "rule"), CATCH_ALL, rule("c", 8, "client"), rule("l", 7, "listener"), rule("u", 6, "user")))
    assert [one.per for one in rules.effective(ORDERS)] == ["rule", "topic", "client", "listener", "user"]


def test_of_one_level_only_one_rule_holds() -> None:
    rules = RuleSet((rule("a", 9, "rule", topic="o*"), rule("b", 8, "rule", topic="*"), rule("c", 7, "rule")))
    assert holds(rules, ORDERS) == [("rule", "default", "a", 9)]
    assert holds(rules, rocketmq_topic(b"x")) == [("rule", "default", "b", 8)]


@pytest.mark.parametrize(
    ("match", "exact"),
    [
        ({"vhost": "/", "exchange": "orders", "routing_key": "order.created"}, True),
        ({"exchange": "orders", "routing_key": "order.created"}, True),
        ({"vhost": "/", "exchange": "orders", "routing_key": "order.*"}, False),
        ({"vhost": "/", "exchange": "orders", "routing_key": "order.#"}, False),
        ({"vhost": "/", "exchange": "orders", "routing_key": "order*"}, False),
        ({"vhost": "*", "exchange": "orders", "routing_key": "order.created"}, False),
        ({"vhost": "/", "exchange": "ord*", "routing_key": "order.created"}, False),
        ({"vhost": "/", "routing_key": "order.created"}, False),
        ({"vhost": "/", "exchange": "orders"}, False),
        ({"protocol": "amqp"}, False),
    ],
)
def test_an_amqp_key_is_named_exactly_by_exchange_and_routing_key_without_patterns(match: dict[str, str], exact: bool) -> None:
    (one,) = RuleSet((rule("r", 5, "topic", **match),)).effective(orders())
    assert one.origin == ("file" if exact else "default")


@in_one_loop
@pytest.mark.parametrize(
    ("match", "name", "matches"),
    [
        ({"vhost": "/"}, orders(), True),
        ({"vhost": "shop"}, orders(), False),
        ({"exchange": "orders"}, orders(), True),
        ({"exchange": "amq.default"}, orders(exchange=b""), True),
        ({"exchange": ""}, orders(exchange=b""), True),
        ({"exchange": "*"}, orders(exchange=b""), True),
        ({"queue": "mail"}, amqp_topic(b"/", b"", b"mail"), True),
        ({"queue": "mail"}, amqp_topic(b"/", b"orders", b"mail"), False),
        ({"queue": "ma*"}, amqp_topic(b"/", b"amq.default", b"mail"), True),
        ({"routing_key": "#"}, orders(routing_key=b""), True),
        ({"routing_key": "*"}, orders(routing_key=b""), False),
        ({"protocol": "rocketmq"}, orders(), False),
        ({"topic": "order.created"}, orders(), False),
        ({"routing_key": "orders"}, ORDERS, False),
        ({"user": "alice"}, orders(), False),
        ({"topic": "%RETRY%*"}, rocketmq_topic(b"%RETRY%billing"), True),
        ({"topic": "%RETRY%*"}, rocketmq_topic(b"%DLQ%billing"), False),
        ({"topic": "%DLQ%*"}, rocketmq_topic(b"%DLQ%billing"), True),
        ({"namespace": "shop"}, rocketmq_topic(b"shop%orders"), True),
        ({"namespace": "shop"}, rocketmq_topic(b"%RETRY%shop%billing"), True),
        ({"namespace": "shop"}, rocketmq_topic(b"shopping%orders"), False),
        ({"namespace": "sh*"}, rocketmq_topic(b"%DLQ%shop%billing"), True),
        ({"namespace": "*"}, ORDERS, False),
        ({"namespace": "*"}, rocketmq_topic(b"%RETRY%billing"), False),
        ({"namespace": "RETRY"}, rocketmq_topic(b"%RETRY%billing"), False),
        ({"protocol": "amqp", "operation": "consume"}, orders(), False),
        ({}, orders(), True),
        ({}, ORDERS, True),
    ],
)
def test_matching(match: dict[str, str], name: TopicName, matches: bool) -> None:
    assert bool(RuleSet((rule("r", 5, "topic", **match),)).effective(name)) == matches


@pytest.mark.parametrize(
    ("match", "asking", "matches"),
    [
        ({"listener": "main"}, {"listener": "main"}, True),
        ({"listener": "main"}, {"listener": "vip"}, False),
        ({"listener": "main"}, {}, True),
        ({"user": "al*"}, {"user": "alice"}, True),
        ({"user": "alice"}, {"user": None}, False),
        ({"client": "10.0.0.0/8"}, {"client": "::ffff:10.1.1.1"}, True),
        ({"client": "10.0.0.0/8"}, {"client": "192.168.0.1"}, False),
        ({"group": "g*"}, {"group": b"g1"}, True),
        ({"group": "g"}, {"group": None}, False),
        ({}, {"operation": "consume"}, False),
        ({"operation": "produce"}, {}, True),
    ],
)
def test_a_rule_matches_by_client_user_group_listener_and_operation(
    match: dict[str, str], asking: dict[str, object], matches: bool
) -> None:
    assert bool(RuleSet((rule("r", 5, "topic", **match),)).effective(ORDERS, **asking)) == matches  # type: ignore[arg-type]


def test_a_rule_for_deliveries_is_for_queues_and_for_nothing_published() -> None:
    rules = RuleSet((rule("r", 5, "topic", queue="job*", operation="consume"),))
    queue = amqp_topic(b"/", b"", b"jobs")
    assert [bool(rules.effective(queue, operation=operation)) for operation in ("consume", "produce")] == [True, False]
    assert not rules.effective(amqp_topic(b"/", b"", b"mail"), operation="consume")


@pytest.mark.parametrize("per", ["exchange", "vhost"])
def test_levels_only_amqp_has(per: str) -> None:
    rules = RuleSet((rule("r", 5, per),))
    assert rules.effective(ORDERS) == []
    assert len(rules.effective(orders())) == 1


@pytest.mark.parametrize("per", ["group", "namespace"])
def test_levels_only_rocketmq_has(per: str) -> None:
    rules = RuleSet((rule("r", 5, per),))
    assert len(rules.effective(ORDERS)) == 1
    assert rules.effective(orders()) == []


@pytest.mark.parametrize(("per", "named"), [("group", "g"), ("namespace", "shop")])
def test_a_rule_may_name_a_group_or_a_namespace_exactly(per: str, named: str) -> None:
    rules = RuleSet((rule("stars", 1, per, **{per: "*"}), rule("named", 5, per, **{per: named})))
    assert holds(rules, rocketmq_topic(b"shop%orders"), group=b"g") == [(per, "file", "named", 5)]
    assert holds(rules, rocketmq_topic(b"mall%orders"), group=b"h") == [(per, "default", "stars", 1)]


@pytest.mark.parametrize(
    ("per", "names"),
    [("group", {}), ("user", {"user": "shop"}), ("namespace", {"namespace": "shop"})],
)
def test_topics_of_one_group_user_or_namespace_share_a_bucket(per: str, names: dict[str, str]) -> None:
    rules = RuleSet((rule("r", 5, per, protocol="rocketmq", **names),))
    topics = (rocketmq_topic(b"shop%orders"), rocketmq_topic(b"shop%mail"), rocketmq_topic(b"%RETRY%shop%g"))
    found = {rules.effective(topic, group=b"g", user="shop")[0].identity for topic in topics}
    assert len(found) == 1


def test_a_connection_may_have_several_users_and_each_of_their_rules_a_bucket() -> None:
    rules = RuleSet((rule("a", 5, "connection", user="a"), rule("b", 6, "connection", user="b")))
    identities = {rules.effective(ORDERS, user=user, connection=17)[0].identity for user in ("a", "b")}
    assert len(identities) == 2


@pytest.mark.parametrize(
    ("per", "match", "exact"),
    [
        ("client", {"client": "10.0.0.1"}, True),
        ("client", {"client": "10.0.0.1/32"}, True),
        ("client", {"client": "10.0.0.0/24"}, False),
        ("listener", {"listener": "main"}, True),
        ("listener", {"listener": "m*"}, False),
        ("user", {"user": "alice"}, True),
        ("vhost", {"vhost": "/"}, True),
        ("exchange", {"vhost": "/", "exchange": "orders"}, True),
        ("exchange", {"exchange": "orders"}, True),
        ("exchange", {"exchange": "ord*"}, False),
    ],
)
def test_a_rule_may_name_what_its_level_is_for(per: str, match: dict[str, str], exact: bool) -> None:
    rules = RuleSet((rule("general", 1, per), rule("named", 5, per, **match)))
    (one,) = rules.effective(orders(), listener="main", client="10.0.0.1", user="alice")
    assert (one.rule.name, one.origin) == ("named", "file" if exact else "default")


@pytest.mark.parametrize(
    "topic", [b"RMQ_SYS_TRANS_HALF_TOPIC", b"rmq_sys_wheel_timer", b"SCHEDULE_TOPIC_XXXX", b"Cluster_REPLY_TOPIC", b"TBW102"]
)
def test_system_topics_are_exempt_unless_a_rule_names_them(topic: bytes) -> None:
    broad = (
        CATCH_ALL, rule("stars", 5, topic="*"), rule("l", 5, "listener"), rule("c", 5, "client", client="10.0.0.1"),
        rule("g", 5, "group", group="g"), rule("u", 5, "user", user="u"), rule("n", 5, "namespace"), rule("r", 5, "rule"),
    )  # fmt: skip
    asking = {"listener": "l", "client": "10.0.0.1", "group": b"g", "user": "u"}
    assert holds(RuleSet(broad), rocketmq_topic(topic), **asking) == []
    named = (*broad, rule("named", 6, topic=topic.decode()))
    assert holds(RuleSet(named), rocketmq_topic(topic), **asking) == [("topic", "file", "named", 6)]
    override = {rocketmq_topic(topic): Override(messages=Rate(3))}
    assert holds(RuleSet(broad, overrides=override), rocketmq_topic(topic), **asking) == [("topic", "override", "unruled", 3)]


@pytest.mark.parametrize("topic", [b"%RETRY%g", b"%DLQ%g"])
def test_retry_and_dead_letter_topics_are_no_system_topics(topic: bytes) -> None:
    assert holds(RuleSet((CATCH_ALL,)), rocketmq_topic(topic)) == [("topic", "default", "catch-all", 2000)]


def test_an_amqp_key_is_no_system_topic() -> None:
    assert len(RuleSet((rule("r", 5),)).effective(orders(routing_key=b"TBW102"))) == 1


def test_a_default_changed_live_leaves_overrides_alone() -> None:
    change = {"catch-all": Override(messages=Rate(50), by="bob", at=7.0)}
    rules = RuleSet((CATCH_ALL,), rule_overrides=change, overrides=OVERRIDE)
    assert holds(rules, ORDERS) == [("topic", "override", "catch-all", 1)]
    (other,) = rules.effective(rocketmq_topic(b"other"))
    assert (other.origin, other.by, other.at, other.place) == ("default", "bob", 7.0, "limits.yaml:2000")
    assert other.limit.messages == Rate(50)
    assert rules.file_rules == (CATCH_ALL,)
    changed = rules.rule("catch-all")
    assert changed is not None
    assert changed.limit.messages == Rate(50)


def test_a_live_change_of_a_rule_that_is_gone_is_ignored() -> None:
    assert holds(RuleSet((CATCH_ALL,), rule_overrides={"gone": Override(messages=Rate(1))}), ORDERS)[0][3] == 2000


def test_an_override_stands_on_the_quota_where_that_would_hold() -> None:
    (one,) = RuleSet((CATCH_ALL,), quotas=QUOTA, overrides={ORDERS: Override(bytes=Rate(5))}).effective(ORDERS)
    assert one.limit == Limit(messages=Rate(7), messages_burst=9, bytes=Rate(5))


def test_changes_and_quotas_over_a_rule_that_paces_leave_out_what_pacing_has_not() -> None:
    """They may be older than the rule's algorithm: nothing of that may fail while messages are judged."""
    paced = Rule("paced", match=Match(protocol="rocketmq"), limit=Limit(messages=Rate(50)), algorithm="pacing")
    change = Override(messages=Rate(5), burst_ns=SECOND, messages_burst=7, open_for_ns=SECOND)
    (one,) = RuleSet((paced,), overrides={ORDERS: change}).effective(ORDERS)
    assert (one.limit, one.rule.algorithm, one.rule.breaker_ns()) == (Limit(messages=Rate(5)), "pacing", 0)
    (one,) = RuleSet((paced,), quotas=QUOTA).effective(ORDERS)
    assert (one.limit, one.rule.algorithm) == (Limit(messages=Rate(7)), "pacing")
    with pytest.raises(RuleError, match="has no burst"):
        RuleSet((paced,), rule_overrides={"paced": Override(burst_ns=SECOND)})


def test_a_change_of_a_rate_keeps_the_time_to_warm_up() -> None:
    warming = Rule("warming", limit=Limit(messages=Rate(50), warm_up_ns=5 * SECOND), algorithm="warm_up")
    (one,) = RuleSet((warming,), overrides={ORDERS: Override(messages=Rate(5), burst_ns=SECOND)}).effective(ORDERS)
    assert (one.limit, one.rule.algorithm) == (Limit(messages=Rate(5), burst_ns=SECOND, warm_up_ns=5 * SECOND), "warm_up")
    (one,) = RuleSet((warming,), quotas=QUOTA).effective(ORDERS)
    assert one.limit == Limit(messages=Rate(7), messages_burst=9, warm_up_ns=5 * SECOND)


def test_an_override_tells_its_author_time_reason_and_end() -> None:
    (one,) = RuleSet((CATCH_ALL,), overrides=OVERRIDE).effective(ORDERS)
    assert (one.by, one.at, one.reason, one.expires_at) == ("alice", 5.0, "why", None)


def test_expired_changes_do_not_hold() -> None:
    changes = {
        ORDERS: Override(messages=Rate(1), expires_at=100.0),
        rocketmq_topic(b"b"): Override(messages=Rate(1), expires_at=300.0),
        rocketmq_topic(b"c"): Override(messages=Rate(1)),
    }
    of_rules = {"catch-all": Override(messages=Rate(3), expires_at=200.0)}
    early = RuleSet((CATCH_ALL,), of_rules, changes, now_s=99.9)
    assert (holds(early, ORDERS)[0][3], early.next_expiry) == (1, 100.0)
    later = RuleSet((CATCH_ALL,), of_rules, changes, now_s=100.0)
    assert (holds(later, ORDERS)[0][3], later.next_expiry) == (3, 200.0)
    latest = RuleSet((CATCH_ALL,), of_rules, changes, now_s=300.0)
    assert (holds(latest, ORDERS)[0][3], latest.next_expiry) == (2000, None)
    assert holds(latest, rocketmq_topic(b"c"))[0][3] == 1


def test_overrides_and_quotas_are_for_producing() -> None:
    consume = Rule("pulls", match=Match(protocol="amqp", operation="consume"), limit=Limit(messages=Rate(11)))
    queue = amqp_topic(b"/", b"", b"jobs")
    quotas = {queue: Quota("amqp", queue.text(), messages=(7, 7))}
    rules = RuleSet((CATCH_ALL, consume), overrides={queue: Override(messages=Rate(3))}, quotas=quotas)
    assert holds(rules, queue, operation="consume") == [("topic", "default", "pulls", 11)]
    assert holds(rules, queue)[0][3] == 3


def test_an_override_of_nothing_on_nothing_limits_nothing() -> None:
    (one,) = RuleSet((), overrides={ORDERS: Override(action="drop")}).effective(ORDERS)
    assert one.rule.mode == "off"


@pytest.mark.parametrize(
    ("per", "name", "thing"),
    [
        ("topic", orders(), "%2F/orders/order.created"),
        ("exchange", orders(exchange=b""), "%2F/amq.default"),
        ("vhost", orders(), "%2F"),
        ("client", ORDERS, "10.0.0.1"),
        ("user", ORDERS, ""),
        ("listener", ORDERS, "main"),
        ("rule", ORDERS, ""),
        ("connection", ORDERS, "17"),
        ("group", ORDERS, "g"),
        ("namespace", ORDERS, ""),
        ("namespace", rocketmq_topic(b"%RETRY%shop%billing"), "shop"),
    ],
)
def test_each_level_says_what_its_bucket_is_for(per: str, name: TopicName, thing: str) -> None:
    (one,) = RuleSet((rule("r", 5, per),)).effective(name, listener="main", client="::ffff:10.0.0.1", group=b"g", connection=17)
    assert (one.per, one.thing) == (per, thing)


@pytest.mark.parametrize(
    ("routing_key", "thing"),
    [
        (b"order.eu.4711", "%2F/orders/order.eu.#"),
        (b"order.eu.4711.item", "%2F/orders/order.eu.#"),
        (b"order.eu", "%2F/orders/order.eu.#"),
        (b"order..x", "%2F/orders/order..#"),
        (b"order.%.x", "%2F/orders/order.%25.#"),
        (b"order.\xff.x", "%2F/orders/order.%FF.#"),
        (b"order", "%2F/orders/order"),
        (b"", "%2F/orders/"),
    ],
)
def test_topics_that_agree_in_their_first_words_share_a_bucket(routing_key: bytes, thing: str) -> None:
    by_words = Rule("by-words", match=Match(exchange="orders"), limit=Limit(messages=Rate(5)), routing_key_words=2)
    (one,) = RuleSet((by_words,)).effective(orders(routing_key=routing_key))
    assert (one.thing, one.identity) == (thing, ("topic", "by-words", "amqp", thing))


def test_an_override_takes_its_topic_out_of_a_group_of_topics() -> None:
    by_words = Rule("by-words", match=Match(exchange="orders"), limit=Limit(messages=Rate(5)), routing_key_words=1)
    name = orders(routing_key=b"order.1")
    (one,) = RuleSet((by_words,), overrides={name: Override(messages=Rate(9))}).effective(name)
    assert (one.origin, one.thing, one.identity) == ("override", "%2F/orders/order.1", ("topic", "", "amqp", "%2F/orders/order.1"))


GROUP = orders(routing_key=b"order.eu.#")
BY_WORDS = Rule("by-words", match=Match(exchange="orders"), limit=Limit(messages=Rate(5)), routing_key_words=2)
IN_GROUP = [b"order.eu.4711", b"order.eu", b"order.eu.#", b"order.eu.#.x"]


@pytest.mark.parametrize("routing_key", IN_GROUP)
def test_an_override_of_a_groups_name_is_for_all_its_topics_and_keeps_their_bucket(routing_key: bytes) -> None:
    name = orders(routing_key=routing_key)
    (before,) = RuleSet((BY_WORDS,)).effective(name)
    (one,) = RuleSet((BY_WORDS,), overrides={GROUP: Override(messages=Rate(2))}).effective(name)
    assert (one.origin, one.thing, one.limit.messages) == ("override", "%2F/orders/order.eu.#", Rate(2))
    assert one.identity == before.identity


@pytest.mark.parametrize("routing_key", [b"order.us.1", b"order", b""])
def test_an_override_of_a_groups_name_is_for_no_other_topic(routing_key: bytes) -> None:
    name = orders(routing_key=routing_key)
    (one,) = RuleSet((BY_WORDS,), overrides={GROUP: Override(messages=Rate(2))}).effective(name)
    assert (one.origin, one.limit.messages) == ("default", Rate(5))


def test_an_override_of_a_topic_holds_over_that_of_its_group() -> None:
    name = orders(routing_key=b"order.eu.1")
    rules = RuleSet((BY_WORDS,), overrides={GROUP: Override(messages=Rate(2)), name: Override(messages=Rate(9))})
    (one,) = rules.effective(name)
    assert (one.thing, one.limit.messages) == ("%2F/orders/order.eu.1", Rate(9))


def test_a_key_spelt_like_a_group_is_no_group_where_no_rule_groups() -> None:
    plain = Rule("plain", match=Match(exchange="orders"), limit=Limit(messages=Rate(5)))
    rules = RuleSet((plain,), overrides={GROUP: Override(messages=Rate(2))})
    assert [one.origin for one in rules.effective(orders(routing_key=b"order.eu.1"))] == ["default"]
    assert [(one.origin, one.thing) for one in rules.effective(GROUP)] == [("override", "%2F/orders/order.eu.%23")]


def test_a_quota_of_a_groups_name_is_for_all_its_topics() -> None:
    quotas = {parse_topic("amqp", "%2F/orders/order.eu.#"): Quota("amqp", "%2F/orders/order.eu.#", messages=(7, 9))}
    (one,) = RuleSet((BY_WORDS,), quotas=quotas).effective(orders(routing_key=b"order.eu.1"))
    assert (one.origin, one.thing, one.limit.messages) == ("quota", "%2F/orders/order.eu.#", Rate(7))


def test_the_identity_of_a_bucket_leaves_out_the_listener_and_the_limit() -> None:
    def identity(rules: RuleSet, listener: str) -> tuple[str, str, str, str]:
        (one,) = rules.effective(ORDERS, listener=listener)
        assert isinstance(one, Effective)
        return one.identity

    ordinary = identity(RuleSet((CATCH_ALL,)), "rocket")
    assert ordinary == identity(RuleSet((CATCH_ALL,)), "rocket-vip")
    assert ordinary == identity(RuleSet((CATCH_ALL, EXACT)), "rocket")
    assert ordinary == identity(RuleSet((CATCH_ALL,), overrides=OVERRIDE), "rocket")


def test_names_are_unique() -> None:
    with pytest.raises(RuleError, match=r"name: 'exact' is taken by limits.yaml:40; each rule needs a name of its own"):
        RuleSet((EXACT, EXACT))


def test_an_override_that_makes_no_sense_for_the_protocol_is_found_at_once() -> None:
    with pytest.raises(RuleError, match="reply is RocketMQ's"):
        RuleSet((), overrides={orders(): Override(reply="system_busy")})


def test_generations_differ() -> None:
    assert RuleSet(()).generation != RuleSet(()).generation


def test_repr() -> None:
    assert repr(RuleSet((CATCH_ALL,), revision=3)) == "<RuleSet revision=3 rules=1 overrides=0 rule_overrides=0 quotas=0>"
    assert repr(RuleSet((CATCH_ALL,)).effective(ORDERS)) == "[<Effective topic 'orders' default catch-all>]"


def test_an_amqp_topic_may_be_delayed_for_8_s_whatever_its_rule_is_for() -> None:
    name = TopicName("amqp", b"/", b"orders", b"x")
    generic = Rule("all", limit=Limit(messages=Rate(5)), reply="system_busy")
    rules = RuleSet((generic,), overrides={name: Override(max_delay_ns=8 * SECOND)})
    (effective,) = rules.effective(name)
    assert (effective.rule.name, effective.rule.max_delay_ns, effective.limit) == ("all", 8 * SECOND, generic.limit)


@pytest.mark.parametrize("longest", [8 * SECOND, 2_500_000_001])
def test_a_limit_that_may_hold_rocketmqs_clients_may_not_delay_beyond_2_5_s(longest: int) -> None:
    generic = Rule("all", limit=Limit(messages=Rate(5)))
    change = Override(max_delay_ns=longest)
    with pytest.raises(RuleError, match="RocketMQ's clients give up after 3s"):
        RuleSet((generic,), overrides={rocketmq_topic(b"orders"): change})
    with pytest.raises(RuleError, match=r"8s with match: \{protocol: amqp\}"):
        RuleSet((generic,), {"all": change})


@pytest.mark.parametrize(
    ("rate", "holds"), [(1e-9, Rate(1, 10**6 * SECOND)), (4e-7, Rate(1, 10**6 * SECOND)), (0.5, Rate(1, 2 * SECOND)), (0, Rate(0))]
)
def test_a_small_quota_does_not_close_its_topic(rate: float, holds: Rate) -> None:
    quota = Quota("rocketmq", "orders", (rate, 5), (rate, 5))
    (found,) = RuleSet((), quotas={ORDERS: quota}).effective(ORDERS)
    assert (found.limit.messages, found.limit.bytes, found.limit.is_shut()) == (holds, holds, rate == 0)
