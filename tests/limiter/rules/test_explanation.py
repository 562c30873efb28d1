"""Explanations: which rule of each level holds, what lost to it and why, and which rules only the sender is missing for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limiter.limits import Limit, Rate
from limiter.quota_snapshot import Quota
from limiter.rules.explanation import MAX_SHOWN, Explanation, explain
from limiter.rules.rule_set import Match, Override, Rule, RuleSet
from limiter.rules.sender import Sender
from limiter.rules.subject import Subject
from limiter.topics import TopicName, amqp_topic, rocketmq_topic

ORDERS = rocketmq_topic(b"orders")


def rule(name: str, rate: int = 10, per: str = "topic", **match: Any) -> Rule:
    return Rule(name, Match(**match), per=per, limit=Limit(messages=Rate(rate)), place=f"limits.yaml:{rate}")


def explained(rules: RuleSet, name: TopicName = ORDERS, operation: str = "produce", **asking: str | None) -> list[Explanation]:
    group = asking.get("group")
    subject = Subject(
        name,
        name.text(),
        Sender(asking.get("listener"), asking.get("client"), asking.get("user")),
        None if group is None else group.encode(),
        operation,
    )
    return explain(rules, subject)


def told(found: Explanation) -> tuple[str | None, list[tuple[str, str]]]:
    """Which rule holds, and each loser with its reason."""
    holds = None if found.effective is None else found.effective.rule.name
    return holds, [(loss.rule, loss.reason) for loss in found.losses]


def test_each_loser_is_told_why() -> None:
    rules = RuleSet(
        (
            rule("all", 1, protocol="rocketmq"),
            rule("globs", 2, topic="ord*"),
            rule("later globs", 3, topic="o*"),
            rule("exact", 4, topic="orders"),
            rule("exact again", 5, topic="orders"),
            rule("others", 6, topic="bills"),
            rule("amqp", 7, protocol="amqp"),
            rule("consumers", 8, operation="consume"),
        )
    )
    (found,) = explained(rules)
    assert told(found) == (
        "exact",
        [
            ("exact again", "exact (limits.yaml:4) names it exactly too and comes earlier in the file"),
            ("globs", "exact (limits.yaml:4) names it exactly, which comes first"),
            ("later globs", "exact (limits.yaml:4) names it exactly, which comes first"),
            ("all", "exact (limits.yaml:4) names it exactly, which comes first"),
        ],
    )
    assert (found.rules, found.misses, found.more) == (6, [], 0)
    assert [loss.origin for loss in found.losses] == ["file", "default", "default", "default"]


def test_of_patterns_the_earlier_holds_and_a_bare_rule_only_where_none_does() -> None:
    rules = RuleSet((rule("all", 1), rule("first", 2, topic="o*"), rule("second", 3, topic="or*"), rule("all too", 4)))
    (found,) = explained(rules)
    assert told(found) == (
        "first",
        [
            ("second", "first (limits.yaml:2) matches too and comes earlier in the file"),
            ("all", "a rule for everything only holds where no pattern does, and first (limits.yaml:2) does"),
            ("all too", "a rule for everything only holds where no pattern does, and first (limits.yaml:2) does"),
        ],
    )
    (found,) = explained(rules, rocketmq_topic(b"bills"))
    assert told(found) == ("all", [("all too", "all (limits.yaml:1) is for everything too and comes earlier in the file")])


def test_a_live_change_is_told_with_what_it_stands_on_and_the_quota_it_hides() -> None:
    quota = Quota("rocketmq", "orders", messages=(70, 90))
    rules = RuleSet((rule("all", 1),), overrides={ORDERS: Override(messages=Rate(5))}, quotas={ORDERS: quota})
    (found,) = explained(rules)
    assert found.effective is not None
    assert (found.effective.origin, found.effective.limit) == ("override", Limit(messages=Rate(5), messages_burst=90))
    assert told(found)[1] == [
        ("orders", "a live change comes before the published quota"),
        ("all", "the live change of this key comes first; the rest is as here"),
    ]
    assert [(loss.origin, loss.limit.messages) for loss in found.losses] == [("quota", Rate(70)), ("default", Rate(1))]


def test_a_quota_comes_before_patterns_and_after_exact_names() -> None:
    quotas = {ORDERS: Quota("rocketmq", "orders", messages=(70, 90))}
    (found,) = explained(RuleSet((rule("all", 1), rule("exact", 2, topic="orders")), quotas=quotas))
    assert told(found) == (
        "exact",
        [
            ("orders", "exact names it exactly, which comes before the published quota"),
            ("all", "exact (limits.yaml:2) names it exactly, which comes first"),
        ],
    )
    (found,) = explained(RuleSet((rule("all", 1), rule("globs", 2, topic="o*")), quotas=quotas))
    assert told(found)[1] == [
        ("globs", "the published quota comes first; the rest is as here"),
        ("all", "a rule for everything only holds where no pattern does, and globs (limits.yaml:2) does"),
    ]


def test_no_published_quota_opens_what_a_rule_has_closed() -> None:
    quotas = {ORDERS: Quota("rocketmq", "orders", messages=(70, 90))}
    shut, all_ = rule("shut", 0, topic="o*"), rule("all", 1)
    (found,) = explained(RuleSet((all_, shut), quotas=quotas))
    assert found.effective is not None
    assert (found.effective.origin, found.effective.limit.messages) == ("default", Rate(0))
    assert told(found)[1][0] == ("orders", "shut lets nothing pass, which no published quota opens")
    (by_hand,) = RuleSet((all_, shut), quotas=quotas, overrides={ORDERS: Override(messages=Rate(5))}).effective(ORDERS)
    (opened,) = RuleSet((all_, shut), quotas=quotas, rule_overrides={"shut": Override(messages=Rate(3))}).effective(ORDERS)
    (tried,) = RuleSet((all_, replace(shut, mode="shadow")), quotas=quotas).effective(ORDERS)
    assert [each.limit.messages for each in (by_hand, opened, tried)] == [Rate(5), Rate(70), Rate(70)]


def test_a_live_change_alone_holds_where_no_rule_does() -> None:
    (found,) = explained(RuleSet((), overrides={ORDERS: Override(messages=Rate(5))}))
    assert (found.effective is not None, found.losses, found.rules) == (True, [], 0)


def test_of_a_rule_changed_live_the_files_limit_is_told() -> None:
    rules = RuleSet((rule("all", 1),), rule_overrides={"all": Override(messages=Rate(5), by="ci")})
    (found,) = explained(rules)
    assert found.effective is not None
    assert (found.effective.limit.messages, found.effective.by) == (Rate(5), "ci")
    assert told(found)[1] == [("all", "as the file has it; the rule is changed live by ci")]
    assert found.losses[0].limit.messages == Rate(1)


def test_a_key_of_a_group_is_told_of_both_live_changes() -> None:
    words = Rule("words", Match(protocol="amqp"), limit=Limit(messages=Rate(9)), routing_key_words=1, place="limits.yaml:1")
    name, group = amqp_topic(b"/", b"e", b"order.1"), amqp_topic(b"/", b"e", b"order.#")
    both = {name: Override(messages=Rate(5)), group: Override(messages=Rate(6))}
    (found,) = explained(RuleSet((words,), overrides=both), name)
    assert told(found) == (
        "words",
        [
            ("%2F/e/order.#", "a live change of the key itself comes before one of its group"),
            ("words", "the live change of this key comes first; the rest is as here"),
        ],
    )
    (found,) = explained(RuleSet((words,), overrides={group: Override(messages=Rate(6))}), name)
    assert told(found)[1] == [("words", "the live change of its group comes first; the rest is as here")]


def test_a_rule_of_several_listeners_names_them_where_a_message_comes_by_another() -> None:
    rules = RuleSet((rule("named", 5, listener=("rocket", "vip*"), topic="ord*"), rule("all", 4)))
    (other,) = explained(rules, listener="other")
    assert told(other)[0] == "all"
    assert ("named", "is for listener rocket or vip*, not other") in [(miss.rule, miss.reason) for miss in other.misses]
    assert [told(explained(rules, listener=name)[0])[0] for name in ("rocket", "vip-2")] == ["named", "named"]


def test_levels_on_which_nothing_holds_come_last_and_name_what_they_ask_for() -> None:
    rules = RuleSet(
        (
            rule("vips", 1, per="client", client="10.0.0.0/8"),
            rule("shop", 2, per="user", user="shop", topic="ord*"),
            rule("elsewhere", 3, per="group", group="billing", topic="bills"),
            rule("all", 4),
            rule("rabbits", 5, per="listener", listener="rocket"),
        )
    )
    found = explained(rules)
    assert [(each.per, told(each)[0], [(miss.rule, miss.reason) for miss in each.misses]) for each in found] == [
        ("topic", "all", []),
        ("client", None, [("vips", "is for client 10.0.0.0/8, and no client is given")]),
        ("user", None, [("shop", "is for user shop, and no user is given")]),
        ("group", None, []),
        ("listener", None, [("rabbits", "is for listener rocket, and no listener is given")]),
    ]
    asked = explained(rules, client="192.168.0.1", user="guest", listener="other")
    assert [[miss.reason for miss in each.misses] for each in asked] == [
        [],
        ["is for client 10.0.0.0/8, not 192.168.0.1"],
        ["is for user shop, not guest"],
        [],
        ["is for listener rocket, not other"],
    ]
    given = explained(rules, client="10.1.2.3", user="shop", listener="rocket")
    assert [(each.per, told(each)[0]) for each in given] == [
        ("client", "vips"),
        ("user", "shop"),
        ("topic", "all"),
        ("listener", "rabbits"),
        ("group", None),
    ]


def test_a_rule_for_one_sender_is_a_near_miss_beside_what_holds() -> None:
    rules = RuleSet((rule("shop", 1, user="shop"), rule("all", 2)))
    (found,) = explained(rules, user="guest")
    assert (told(found), [str(miss) for miss in found.misses]) == (("all", []), ["<Miss shop: is for user shop, not guest>"])


def test_other_operations_and_protocols_are_not_spoken_of() -> None:
    rules = RuleSet((rule("amqp", 1, per="exchange"), rule("consumers", 2, per="client", operation="consume"), rule("all", 3)))
    assert [each.per for each in explained(rules)] == ["topic"]
    assert [each.per for each in explained(rules, operation="consume")] == ["client"]


def test_long_lists_are_cut_and_counted() -> None:
    rules = RuleSet(
        (*(rule(f"r{number}", number, topic="o*") for number in range(MAX_SHOWN + 5)), *(rule(f"u{n}", 1, user=f"u{n}") for n in range(3)))
    )
    (found,) = explained(rules)
    assert (len(found.losses), len(found.misses), found.more) == (MAX_SHOWN, 3, 4)


topics = st.sampled_from(["orders", "ord*", "bills", "o*", "*", "[o]rders"])
matches = st.fixed_dictionaries(
    {},
    optional={
        "topic": topics,
        "protocol": st.just("rocketmq"),
        "user": st.sampled_from(["shop", "s*"]),
        "client": st.sampled_from(["10.0.0.1", "10.0.0.0/8"]),
        "listener": st.sampled_from(["rocket", "r*"]),
        "group": st.sampled_from(["billing", "b*"]),
        "operation": st.sampled_from(["produce", "consume"]),
    },
)
pers = st.sampled_from(["topic", "topic", "client", "user", "listener", "group", "rule"])


@settings(max_examples=150, deadline=None)
@given(
    written=st.lists(st.tuples(matches, pers), max_size=7),
    asking=st.fixed_dictionaries(
        {},
        optional={
            "user": st.sampled_from(["shop", "guest"]),
            "client": st.sampled_from(["10.0.0.1", "10.9.9.9", "192.168.0.1"]),
            "listener": st.sampled_from(["rocket", "other"]),
            "group": st.sampled_from(["billing", "other"]),
        },
    ),
    operation=st.sampled_from(["produce", "consume"]),
)
def test_the_explanation_names_the_same_rules_in_force_as_the_rule_set(
    written: list[tuple[dict[str, str], str]], asking: dict[str, str], operation: str
) -> None:
    """The explanation walks all rules, the rule set looks them up: they must agree, and nobody both holds and loses."""
    rules = RuleSet(tuple(rule(f"r{at}", at, per, **match) for at, (match, per) in enumerate(written)))
    group = asking.get("group")
    subject = Subject(
        ORDERS,
        "orders",
        Sender(asking.get("listener"), asking.get("client"), asking.get("user")),
        None if group is None else group.encode(),
        operation,
    )
    found = explain(rules, subject)
    assert {each.per: each.effective.rule.name for each in found if each.effective is not None} == {
        effective.per: effective.rule.name for effective in rules.matched(subject)
    }
    for each in found:
        told_of = [each.effective.rule.name] if each.effective is not None else []
        told_of += [loss.rule for loss in each.losses] + [miss.rule for miss in each.misses]
        assert len(told_of) == len(set(told_of))
        assert each.effective is not None or each.losses == []


@pytest.mark.parametrize("client", ["::ffff:10.0.0.1", "10.0.0.1"])
def test_an_address_is_the_same_however_it_is_written(client: str) -> None:
    (found,) = explained(RuleSet((rule("one", 1, per="client", client="10.0.0.1"),)), client=client)
    assert told(found)[0] == "one"


def test_repr() -> None:
    (found,) = explained(RuleSet((rule("all", 1), rule("all too", 2))))
    assert repr(found) == "<Explanation topic <Effective topic 'orders' default all> lost=1 missed=0>"
    assert repr(found.losses[0]).startswith("<Loss default all too: all (limits.yaml:1) is for everything too")
