"""Costs: one limit stands for messages by their size, for copies and for operations."""

from __future__ import annotations

import pytest

from limiter.judge import Judge
from limiter.keys import Key
from limiter.limits import SECOND, Limit, LimitChange, Rate
from limiter.quota_snapshot import Quota
from limiter.request import Request
from limiter.reservation import Overdraft, Reservation
from limiter.rules.cost import MAX_COST, MAX_STEP, Cost
from limiter.rules.errors import RuleError
from limiter.rules.level_keys import LevelKey
from limiter.rules.live_change import Override
from limiter.rules.match import Match
from limiter.rules.rule import Rule
from limiter.rules.rule_set import RuleSet
from limiter.topics import amqp_topic, rocketmq_topic
from support.models.asking import judge_of, key_of

NOW = 1_000 * SECOND
WORK = Rule(
    "work", Match(operation=("produce", "consume", "declare")), per="user", limit=Limit(messages=Rate(100)), open_for_ns=0,
    cost=Cost(step=4096, copy=3, operations=(("declare", 10),)),
)  # fmt: skip


def key(judge: Judge, operation: str = "produce", topic: str = "t") -> Key:
    return key_of(judge, topic, user="shop", operation=operation)


def ask(judge: Judge, operation: str = "produce", count: int = 1, messages: int = 1, size: int = 0, now: int = NOW) -> Request:
    request = Request(key(judge, operation), count, messages, size)
    judge.decide([request], now)
    return request


def spent(judge: Judge) -> int:
    (state,) = judge.states(NOW)
    return state.admitted


@pytest.mark.parametrize(
    ("operation", "messages", "size", "cost"),
    [
        ("produce", 1, 0, 1), ("produce", 1, 4096, 1), ("produce", 1, 4097, 2), ("produce", 1, 40_000, 10), ("consume", 1, 8193, 3),
        ("produce", 5, 4096, 5), ("produce", 5, 40_000, 10), ("declare", 1, 0, 10), ("declare", 3, 0, 30),
    ],
)  # fmt: skip
def test_a_message_costs_its_steps_and_an_operation_what_is_said(operation: str, messages: int, size: int, cost: int) -> None:
    judge = judge_of(WORK)
    assert ask(judge, operation, messages=messages, size=size).passed == 1
    assert spent(judge) == cost


def test_all_of_it_is_under_one_limit() -> None:
    judge = judge_of(WORK)
    assert ask(judge, "declare", count=7).passed == 7
    assert ask(judge, size=4096 * 3, count=9).passed == 9
    assert ask(judge, "consume", count=9).passed == 3
    refused = ask(judge, "declare")
    assert (refused.passed, refused.wait_ns, refused.bucket and refused.bucket.owner_text()) == (0, SECOND // 10, "user shop")
    assert ask(judge, "declare", now=NOW + SECOND // 10).passed == 1


def test_a_copy_costs_what_is_said_for_the_rules_that_say_it() -> None:
    judge = judge_of(WORK, Rule("topics", limit=Limit(messages=Rate(5)), open_for_ns=0))
    request = Request(key(judge), 2, 1, 10_000)
    request.copies = [key(judge, topic="a"), key(judge, topic="b")]
    judge.decide([request], NOW)
    assert request.passed == 2
    assert {state.thing: state.admitted for state in judge.states(NOW)} == {"shop": 2 * (3 + 2 * 3), "t": 2, "a": 2, "b": 2}


def test_bytes_are_counted_as_ever() -> None:
    judge = judge_of(Rule("work", per="user", limit=Limit(messages=Rate(100), bytes=Rate(10_000)), cost=Cost(step=10), open_for_ns=0))
    assert ask(judge, size=100, count=3).passed == 3
    (state,) = judge.states(NOW)
    assert (state.admitted, state.admitted_bytes) == (30, 300)


def test_an_answer_is_reserved_and_settled_at_its_cost() -> None:
    judge = judge_of(WORK)
    request = Request(key(judge, "consume"), 1, 0, 0)
    request.reservation = Reservation(2, 20_000)
    judge.decide([request], NOW)
    assert (request.passed, ask(judge, count=100).passed) == (1, 95)
    request.messages, request.size, request.again = 4, 40_000, True
    judge.decide([request], NOW)
    assert spent(judge) == 95 + 10
    assert ask(judge).wait_ns == 6 * SECOND // 100


def test_an_answer_that_brings_nothing_gives_all_of_it_back() -> None:
    judge = judge_of(WORK)
    request = Request(key(judge, "consume"), 1, 0, 0)
    request.reservation = Reservation(1, 400_000)
    judge.decide([request], NOW)
    assert ask(judge, count=100).passed == 2
    judge.decide([request], NOW)
    assert ask(judge, count=100).passed == 98


def test_what_is_overdrawn_is_charged_at_its_cost() -> None:
    judge = judge_of(WORK)
    request = Request(key(judge, "consume"), 1, 1, 4096 * 150)
    request.reservation = Overdraft(taken=True)
    judge.decide([request], NOW)
    assert (request.passed, ask(judge).wait_ns, spent(judge)) == (1, 51 * SECOND // 100, 150)


def test_a_rule_in_shadow_mode_and_a_candidate_count_costs_too() -> None:
    tried = Rule("work", per="user", limit=Limit(messages=Rate(100)), candidate=LimitChange(messages=Rate(10)), cost=Cost(step=10))
    shadow = Rule("all", per="rule", limit=Limit(messages=Rate(20)), mode="shadow", cost=Cost(step=5))
    judge = judge_of(tried, shadow)
    request = ask(judge, size=100, count=2)
    assert (request.passed, request.shadow_refused) == (2, 1)
    (counts,) = judge.candidates(NOW).values()
    assert (counts.admitted, counts.refused) == (10, 10)


def test_requests_of_one_key_cost_each_their_own() -> None:
    judge = judge_of(Rule("work", limit=Limit(messages=Rate(10)), cost=Cost(step=10), open_for_ns=0))
    requests = [Request(key_of(judge, "t"), 1, 1, size) for size in (5, 50, 5, 50, 5)]
    judge.decide(requests, NOW)
    assert [each.passed for each in requests] == [1, 1, 1, 0, 1]


def test_a_message_that_costs_more_than_the_burst_passes_a_full_bucket_and_is_paid_for_after() -> None:
    judge = judge_of(Rule("work", limit=Limit(messages=Rate(10)), cost=Cost(step=10), open_for_ns=0))
    large = Request(key_of(judge, "t"), 1, 1, 300)
    judge.decide([large], NOW)
    after = Request(key_of(judge, "t"), 1, 1, 0)
    judge.decide([after], NOW)
    assert (large.passed, after.passed, after.wait_ns) == (1, 0, 21 * SECOND // 10)


@pytest.mark.parametrize("cost", [2, 10, 150])
@pytest.mark.parametrize("flood", [1.1, 20])
def test_what_is_dear_waits_for_its_cost_however_many_cheap_ones_come(cost: int, flood: float) -> None:
    """An operation held beside a flood of publishes, each of which takes a token as it comes; and the limit holds."""
    rule = Rule(
        "work", Match(operation=("produce", "declare")), per="user", limit=Limit(messages=Rate(100)), open_for_ns=0,
        cost=Cost(operations=(("declare", cost),)),
    )  # fmt: skip
    judge = judge_of(rule)
    publish, declare = key(judge), Request(key(judge, "declare"), 1, 1, 0)
    took = 0
    passed = now = 0
    step = int(SECOND / (100 * flood))
    for number in range(int(10 * 100 * flood)):
        now = NOW + number * step
        some = Request(publish, 1, 1, 0)
        judge.decide([some], now)
        passed += some.passed
        if number * step > 2 * SECOND and not took and number % 7 == 0:
            judge.decide([declare], now)
            declare.again = True
            took = declare.passed and number * step - 2 * SECOND
            passed += cost * declare.passed
    assert 0 < took < (cost / 100 + 2) * SECOND
    assert passed <= 100 + 100 * (now - NOW) / SECOND + cost


def test_however_many_dear_ones_wait_half_of_the_rate_is_left_for_cheap_ones() -> None:
    rule = Rule(
        "work", Match(operation=("produce", "declare")), per="user", limit=Limit(messages=Rate(100)), open_for_ns=0,
        cost=Cost(operations=(("declare", 10),)),
    )  # fmt: skip
    judge = judge_of(rule)
    publish = key(judge)
    declares = [Request(key(judge, "declare"), 1, 1, 0) for _ in range(50)]
    cheap = dear = 0
    for number in range(20_000):  # each millisecond
        now = NOW + number * SECOND // 1000
        some = Request(publish, 1, 1, 0)
        judge.decide([*declares, some], now)
        cheap += some.passed
        dear += sum(declare.passed for declare in declares)
        declares = [Request(declare.key, 1, 1, 0) if declare.passed else declare for declare in declares]
    assert cheap + 10 * dear <= 100 + 100 * 20 + 10
    assert cheap >= 0.45 * 100 * 20
    assert 10 * dear >= 0.45 * 100 * 20


def test_a_quota_counts_messages() -> None:
    quota = Quota("rocketmq", "t", (5.0, 5))
    rules = RuleSet(
        (Rule("work", limit=Limit(messages=Rate(100)), cost=Cost(step=10), open_for_ns=0),), quotas={rocketmq_topic(b"t"): quota}
    )
    judge = Judge(rules)
    request = Request(key_of(judge, "t"), 9, 1, 1000)
    judge.decide([request], NOW)
    assert request.passed == 5


def test_a_rule_that_changes_keeps_its_costs_and_a_bucket_finds_another() -> None:
    judge = judge_of(WORK)
    assert ask(judge, "declare", count=5).passed == 5
    judge.replace(
        RuleSet((Rule("work", WORK.match, per="user", limit=WORK.limit, open_for_ns=0, cost=Cost(operations=(("declare", 2),))),))
    )
    assert ask(judge, "declare", count=50).passed == 25


# ---- what a rule may say -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "more"),
    [
        ("cost.declare", {"cost": Cost(operations=(("declare", 2),))}),
        ("cost.step", {"match": Match(operation="open"), "per": "user", "cost": Cost(step=10)}),
        ("cost.copy", {"match": Match(operation="consume"), "cost": Cost(copy=2)}),
        ("cost.copy", {"copies": "ignore", "cost": Cost(copy=2)}),
        ("cost", {"algorithm": "concurrency", "limit": Limit(concurrent=5), "cost": Cost(step=10)}),
        ("cost", {"limit": Limit(bytes=Rate(5)), "cost": Cost(step=10)}),
        ("ceiling", {"ceiling": True, "cost": Cost(step=10)}),
        ("per", {"match": Match(operation=("produce", "consume"))}),
        ("per", {"match": Match(operation=("produce", "declare")), "per": "exchange"}),
        ("match.operation", {"match": Match(operation=("declare", "declare")), "per": "user"}),
        ("action", {"match": Match(operation=("produce", "declare")), "per": "user", "action": "drop"}),
        (
            "algorithm",
            {"match": Match(operation=("produce", "open")), "per": "user", "algorithm": "adaptive", "limit": Limit(concurrent=5)},
        ),
    ],
)
def test_what_does_not_fit_is_refused(field: str, more: dict[str, object]) -> None:
    with pytest.raises(RuleError) as caught:
        Rule("r", **{"limit": Limit(messages=Rate(5)), **more})  # type: ignore[arg-type]
    assert caught.value.field == field


@pytest.mark.parametrize("said", [{"copy": 0}, {"copy": MAX_COST + 1}, {"step": 0}, {"step": MAX_STEP + 1}, {"operations": (("open", 0),)}])
def test_costs_have_bounds(said: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="outside"):
        Cost(**said)  # type: ignore[arg-type]


def test_a_rule_of_several_operations_has_no_breaker_and_is_no_cap() -> None:
    work = Rule("work", Match(operation=("produce", "declare")), per="listener", limit=Limit(messages=Rate(5), bytes=Rate(5)))
    assert (work.breaker_ns(), work.is_cap()) == (0, False)


def test_the_wait_of_one_operation_is_not_that_of_another() -> None:
    """Where a client has declared before it consumes: a consumer that was taken away comes back when a message may pass."""
    rule = Rule(
        "all", Match(protocol="amqp", operation=("consume", "declare")), per="user", limit=Limit(messages=Rate(10), messages_burst=100),
        open_for_ns=0, cost=Cost(operations=(("declare", 50),)),
    )  # fmt: skip
    judge = judge_of(rule)
    name = amqp_topic(b"/", b"", b"q")
    declares, consumes = (key_of(judge, name, user="shop", operation=operation) for operation in ("declare", "consume"))
    judge.decide([Request(declares, 1, 1, 0), Request(consumes, 20, 1, 10)], NOW)
    assert judge.wait_of(declares, 0, NOW) == 2 * SECOND
    assert judge.wait_of(consumes, 10, NOW) == 0


@pytest.mark.parametrize("first", ["produce", "requeue"])
@pytest.mark.parametrize("per", ["client", "user"])
def test_live_limits_of_one_thing_for_two_operations_are_two_limits(first: str, per: str) -> None:
    thing = {"client": "10.0.0.1", "user": "shop"}[per]
    changes = {
        LevelKey("produce", per, "", thing): Override(messages=Rate(1000)),
        LevelKey("requeue", per, "", thing): Override(messages=Rate(20)),
    }
    judge = Judge(RuleSet((), level_overrides=changes))
    name = amqp_topic(b"/", b"", b"jobs")
    passed = {}
    for operation in (first, "requeue" if first == "produce" else "produce"):
        request = Request(key_of(judge, name, user="shop", operation=operation), 500, 1, 10)
        judge.decide([request], NOW)
        passed[operation] = request.passed
    assert passed == {"produce": 500, "requeue": 20}


@pytest.mark.parametrize("first", ["produce", "requeue"])
def test_a_live_limit_of_a_queues_requeues_is_not_its_topics(first: str) -> None:
    """As the page has it: `sluice limits set queue / jobs --operation requeue --messages 20/s`, beside a rule per topic."""
    name = amqp_topic(b"/", b"", b"jobs")
    change = {LevelKey("requeue", "topic", "amqp", name.text()): Override(messages=Rate(20))}
    judge = Judge(RuleSet((Rule("each", limit=Limit(messages=Rate(1000))),), level_overrides=change))
    passed = {}
    for operation in (first, "requeue" if first == "produce" else "produce"):
        request = Request(key_of(judge, name, user="shop", operation=operation), 500, 1, 10)
        judge.decide([request], NOW)
        passed[operation] = request.passed
    assert passed == {"produce": 500, "requeue": 20}
