"""The intraday raise: which quota holds in this hour, where it stands among the rules, and what a bucket has left when it changes."""

from __future__ import annotations

import pytest

from limiter.judge import Judge
from limiter.limits import MAX_PER_SECOND, Limit, Rate
from limiter.quota_snapshot import Quota
from limiter.request import Request
from limiter.rules.explanation import explain
from limiter.rules.hourly_raise import SLICE, HourlyRaise, raise_rate
from limiter.rules.rule_set import Match, Override, Rule, RuleSet
from limiter.rules.subject import Subject
from limiter.topics import TopicName, amqp_topic, rocketmq_topic

ORDERS = rocketmq_topic(b"orders")
QUOTA = Quota("rocketmq", "orders", messages=(10, 100), bytes=(1000.5, 4000), hourly_messages=3.0, hourly_bytes=2.0)
RULES = (Rule("all", Match(protocol="rocketmq"), limit=Limit(messages=Rate(1))),)
SECOND = 1_000_000_000


def asked(messages: float, size: float = 0.0, most: float = 4.0) -> HourlyRaise:
    return HourlyRaise({("rocketmq", "orders"): (messages, size)}, most)


@pytest.mark.parametrize(
    ("demand", "rate", "burst"),
    [
        (0.0, 10, 100),
        (3.3, 10, 100),  # 3 x 3.3 is below the published rate
        (10 / 3, 10, 100),
        (5.0, 15.0, 150),
        (5.013, 15.0, 150),  # three digits
        (3.51, 10.5, 105),
        (3.37, 10.1, 101),
        (40 / 3, 40.0, 400),
        (1e9, 40.0, 400),  # four times at most
    ],
)
def test_the_raise_is_the_factor_times_the_demand_within_its_bounds(demand: float, rate: float, burst: int) -> None:
    found = raise_rate((10, 100), 3.0, demand, 4.0)
    assert found is not None
    assert found == pytest.approx((rate, burst), rel=1e-9)


def test_what_has_no_factor_no_rate_or_no_room_stays_as_published() -> None:
    assert raise_rate(None, 3.0, 100.0, 4.0) is None
    assert raise_rate((10, 100), None, 100.0, 4.0) == (10, 100)
    assert raise_rate((0, 0), 3.0, 100.0, 4.0) == (0, 0)
    assert raise_rate((MAX_PER_SECOND, 1), 3.0, 1e18, 4.0) == (MAX_PER_SECOND, 1)


def test_each_dimension_is_raised_by_its_own_demand() -> None:
    found = asked(5.0, 100.0).raise_quota(QUOTA, "orders")
    assert found is not None
    assert (found.messages, found.bytes) == ((15.0, 150), (1000.5, 4000))
    assert asked(1.0, 100.0).raise_quota(QUOTA, "orders") is None
    assert asked(100.0).raise_quota(QUOTA, "others") is None


def test_only_published_quotas_are_raised_and_their_place_among_the_rules_stays() -> None:
    exact = Rule("exact", Match(protocol="rocketmq", topic="orders"), limit=Limit(messages=Rate(2)))
    hourly = asked(5.0)
    quotas = {ORDERS: QUOTA}
    (by_quota,) = RuleSet(RULES, quotas=quotas, hourly=hourly).effective(ORDERS)
    (by_file,) = RuleSet((exact,), quotas=quotas, hourly=hourly).effective(ORDERS)
    (live,) = RuleSet(RULES, overrides={ORDERS: Override(messages=Rate(7))}, quotas=quotas, hourly=hourly).effective(ORDERS)
    (without,) = RuleSet(RULES, hourly=hourly).effective(ORDERS)
    found = [(each.origin, each.limit.messages) for each in (by_quota, by_file, live, without)]
    assert found == [("quota+hour", Rate(15)), ("file", Rate(2)), ("override", Rate(7)), ("default", Rate(1))]
    assert by_quota.limit.messages_burst == 150


def test_a_rate_that_is_set_live_stands_with_its_burst_and_another_live_change_leaves_the_raise() -> None:
    """The demand of what the live change refuses would raise the burst that it passes."""
    quotas = {ORDERS: QUOTA}
    for override, rate, burst in (
        (Override(messages=Rate(7)), Rate(7), 100),
        (Override(bytes=Rate(7)), Rate(10), 100),
        (Override(action="delay"), Rate(15), 150),
    ):
        (live,) = RuleSet(RULES, overrides={ORDERS: override}, quotas=quotas, hourly=asked(5.0)).effective(ORDERS)
        assert (live.origin, live.limit.messages, live.limit.messages_burst) == ("override", rate, burst)


def test_a_group_of_topics_is_raised_by_the_demand_of_the_group() -> None:
    rule = Rule("groups", Match(protocol="amqp"), limit=Limit(messages=Rate(1)), routing_key_words=1)
    group = amqp_topic(b"/", b"events", b"order.#")
    quotas = {group: Quota("amqp", group.text(), messages=(10, 10), hourly_messages=3.0)}
    hourly = HourlyRaise({("amqp", "%2F/events/order.#"): (5.0, 0.0)}, 4.0)
    rules = RuleSet((rule,), quotas=quotas, hourly=hourly)
    for key in (b"order.eu", b"order.us", b"order.#"):
        (effective,) = rules.effective(amqp_topic(b"/", b"events", key))
        assert (effective.thing, effective.origin, effective.limit.messages) == ("%2F/events/order.#", "quota+hour", Rate(15))
    assert [len(pairs) for pairs in hourly.raise_all(quotas)] == [1]


def test_the_published_quota_is_explained_beside_its_raise() -> None:
    (found,) = explain(RuleSet(RULES, quotas={ORDERS: QUOTA}, hourly=asked(5.0)), Subject(ORDERS, "orders"))
    assert found.effective is not None
    assert found.effective.origin == "quota+hour"
    told = [(loss.origin, loss.limit.messages, loss.reason) for loss in found.losses]
    assert told == [
        ("quota", Rate(10), "as published; the demand of the last hour or of the last seconds has raised it"),
        ("default", Rate(1), "the published quota comes first; the rest is as here"),
    ]


def test_what_is_raised_is_told_in_slices() -> None:
    quotas: dict[TopicName, Quota] = {}
    for number in range(2 * SLICE + 1):
        quotas[rocketmq_topic(b"t%d" % number)] = Quota("rocketmq", f"t{number}", messages=(10, 10), hourly_messages=3.0)
    hourly = HourlyRaise({("rocketmq", f"t{number}"): (5.0, 0.0) for number in range(0, 2 * SLICE + 1, 2)}, 4.0)
    found = list(hourly.raise_all(quotas))
    assert [len(pairs) for pairs in found] == [SLICE // 2, SLICE // 2, 1]
    before, after = found[0][0]
    assert (before.messages, after.messages) == ((10, 10), (15.0, 15))


def passes(judge: Judge, count: int, now: int) -> int:
    origin = judge.origin("rocketmq", "one", "10.0.0.7", None)
    request = Request(judge.key(origin, b"orders", ORDERS), count, 1, 10)
    judge.decide([request], now)
    return request.passed


def test_a_raise_refills_no_bucket_and_its_end_takes_nothing_from_one() -> None:
    """The fill stays in proportion: what is used up stays used up."""
    quotas = {ORDERS: Quota("rocketmq", "orders", messages=(10, 100), hourly_messages=3.0)}
    published, this_hour = RuleSet(RULES, quotas=quotas), RuleSet(RULES, quotas=quotas, hourly=asked(10.0))
    judge = Judge(published)
    assert passes(judge, 500, SECOND) == 100
    judge.replace(this_hour, SECOND)
    assert passes(judge, 500, SECOND) == 0
    assert passes(judge, 500, 2 * SECOND) == 30
    assert passes(judge, 500, 7 * SECOND) == 150
    judge.replace(published, 12 * SECOND)  # 150 of 300 are in it
    assert passes(judge, 500, 12 * SECOND) == 50
    judge.replace(this_hour, 12 * SECOND)
    judge.replace(published, 12 * SECOND)
    assert passes(judge, 500, 12 * SECOND) == 0
