"""The ledger: bounded, and nobody gains by its bounds."""

from __future__ import annotations

import pytest

from limiter.judge import Judge
from limiter.keys import Key
from limiter.quota_snapshot import Quota
from limiter.rules.rule_set import Override
from support.models.asking import SECOND, Limit, Match, Rate, Rule, RuleSet, ask, judge_of, key_of, per_topic, rocketmq_topic

BEGIN = 100 * SECOND


def levels(judge: Judge) -> int:
    return judge.usage()["levels"]


def test_it_is_bounded_and_the_overflow_is_one_bucket_and_counted() -> None:
    judge = judge_of(per_topic(10), max_keys=3)
    for number in range(3):
        ask(judge, key_of(judge, f"t{number}"), BEGIN, count=5)
    passed = [ask(judge, key_of(judge, f"made-up-{number}"), BEGIN, count=5).passed for number in range(20)]
    assert levels(judge) == 3
    assert passed == [5, 5] + [0] * 18  # one burst for all of them together
    assert judge.usage()["overflowed"] == 20


def test_overflow_is_apart_for_each_rule_and_level() -> None:
    judge = judge_of(per_topic(10, match=Match(topic="a*")), Rule("b", match=Match(topic="b*"), limit=Limit(messages=Rate(4))), max_keys=1)
    ask(judge, key_of(judge, "first"), BEGIN)
    ask(judge, key_of(judge, "a0"), BEGIN, count=1)
    assert ask(judge, key_of(judge, "a1"), BEGIN, count=50).passed == 10
    assert ask(judge, key_of(judge, "b1"), BEGIN, count=50).passed == 4


def test_a_live_change_of_one_name_is_not_the_limit_of_all_on_the_overflow() -> None:
    judge = judge_of(per_topic(10), max_keys=1)
    ask(judge, key_of(judge, "first"), BEGIN, count=5)
    changed = {rocketmq_topic(b"changed"): Override(messages=Rate(2))}
    published = {rocketmq_topic(b"published"): Quota("rocketmq", "published", messages=(3, 3))}
    judge.replace(RuleSet((per_topic(10),), None, changed, published), BEGIN)
    passed = [ask(judge, key_of(judge, name), BEGIN, count=50).passed for name in ("first", "changed", "published", "made-up", "too")]
    assert passed == [5, 2, 3, 10, 0]


def test_the_longest_idle_goes_first_when_it_is_full() -> None:
    judge = judge_of(per_topic(10), max_keys=2)
    old, new = key_of(judge, "old"), key_of(judge, "new")
    ask(judge, old, BEGIN, count=10)
    ask(judge, new, BEGIN + 3 * SECOND, count=10)
    ask(judge, old, BEGIN + 6 * SECOND)  # used since: now the other one is longest idle
    ask(judge, key_of(judge, "third"), BEGIN + 20 * SECOND)
    assert {state.thing for state in judge.states(BEGIN + 20 * SECOND)} == {"old", "third"}
    assert judge.usage()["forgotten"] == 1


def test_a_bucket_that_is_not_full_is_never_forgotten() -> None:
    """A flooder who makes up names to have his own bucket forgotten gets no second burst."""
    judge = judge_of(Rule("slow", limit=Limit(messages=Rate(1, 60 * SECOND), messages_burst=5)), max_keys=2)
    flooder = key_of(judge, "flood")
    assert ask(judge, flooder, BEGIN, count=100).passed == 5
    for number in range(100):
        ask(judge, key_of(judge, f"made-up-{number}"), BEGIN + number * SECOND // 10)
    again = key_of(judge, "flood", client="10.0.0.2")
    assert ask(judge, again, BEGIN + 30 * SECOND, count=100).passed == 0


def test_forgetting_costs_the_forgotten_nothing() -> None:
    judge = judge_of(per_topic(10), max_keys=1)
    key = key_of(judge, "orders")
    ask(judge, key, BEGIN, count=10)
    ask(judge, key_of(judge, "other"), BEGIN + 10 * SECOND)
    assert {state.thing for state in judge.states(BEGIN + 10 * SECOND)} == {"other"}
    assert ask(judge, key, BEGIN + 20 * SECOND, count=50).passed == 10  # its key found a new bucket by itself
    assert ask(judge, key, BEGIN + 20 * SECOND).passed == 0


def test_a_key_on_the_overflow_gets_its_own_bucket_when_there_is_room() -> None:
    judge = judge_of(per_topic(10), max_keys=1)
    ask(judge, key_of(judge, "first"), BEGIN, count=10)
    late, later = key_of(judge, "late"), key_of(judge, "later")
    assert ask(judge, late, BEGIN, count=10).passed == 10
    assert ask(judge, later, BEGIN, count=10).passed == 0
    assert {state.thing for state in judge.states(BEGIN) if not state.overflow} == {"first"}
    ask(judge, late, BEGIN + 5 * SECOND)
    assert {state.thing for state in judge.states(BEGIN + 5 * SECOND) if not state.overflow} == {"late"}
    assert judge.usage()["overflowed"] == 2  # looking for room again is not counted again


def test_slow_buckets_do_not_stand_in_the_way() -> None:
    judge = judge_of(
        Rule("slow", match=Match(topic="slow*"), limit=Limit(messages=Rate(1, 3600 * SECOND))),
        per_topic(1000),
        max_keys=30,
    )
    for number in range(20):
        ask(judge, key_of(judge, f"slow{number}"), BEGIN)
    for number in range(10):
        ask(judge, key_of(judge, f"fast{number}"), BEGIN + SECOND)
    for number in range(20):
        ask(judge, key_of(judge, f"new{number}"), BEGIN + (10 + 5 * number) * SECOND)
    things = {state.thing for state in judge.states(BEGIN + 200 * SECOND)}
    assert {f"slow{number}" for number in range(20)} <= things
    assert "new19" in things


def test_a_key_does_not_lose_a_level_to_another_of_its_own() -> None:
    """Two levels, room for one: the limit must hold although the second level finds no room."""
    judge = judge_of(per_topic(10), Rule("clients", per="client", limit=Limit(messages=Rate(1000))), max_keys=1)
    key = key_of(judge, "orders")
    assert sum(ask(judge, key, BEGIN + moment, count=5).passed for moment in range(10)) == 10


def test_overflow_survives_a_reload_and_goes_with_its_rule() -> None:
    judge = judge_of(per_topic(10), max_keys=1)
    ask(judge, key_of(judge, "first"), BEGIN)
    late = key_of(judge, "late")
    assert ask(judge, late, BEGIN, count=50).passed == 10
    judge.replace(RuleSet((per_topic(10),)))
    assert ask(judge, late, BEGIN).passed == 0
    judge.replace(RuleSet((Rule("renamed", limit=Limit(messages=Rate(10))),)))
    ask(judge, late, BEGIN)
    assert [state.effective.rule.name for state in judge.states(BEGIN) if state.overflow] == ["renamed"]


@pytest.mark.parametrize("size", [0, -1])
def test_a_ledger_without_room_is_an_error(size: int) -> None:
    with pytest.raises(ValueError, match="max_keys"):
        judge_of(max_keys=size)


@pytest.mark.slow
def test_twenty_thousand_made_up_topics_leave_the_ledger_at_its_size() -> None:
    judge = judge_of(per_topic(5), max_keys=500)
    origin = judge.origin("rocketmq", "l", "10.0.0.1", None)
    passed = 0
    for number in range(20_000):
        name = key_of(judge, "x").name._replace(topic=b"t%d" % number)
        passed += ask(judge, Key(origin, name, None, "produce"), BEGIN + number * 1000, count=5).passed
    assert levels(judge) == 500
    assert passed <= 500 * 5 + 5 + 5 * 20_000 * 1000 // SECOND + 5  # a burst each for those with a bucket, one for all others


def test_room_is_made_after_the_clock_was_set_back() -> None:
    judge = judge_of(per_topic(10), max_keys=1)
    ask(judge, key_of(judge, "before"), BEGIN)
    ask(judge, key_of(judge, "before"), 2 * SECOND)  # the new time
    ask(judge, key_of(judge, "after"), 4 * SECOND)
    assert [state.thing for state in judge.states(4 * SECOND)] == ["after"]
