"""Requests that name copies: all topics that they go to take them, or none."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limiter.judge import Judge
from limiter.keys import Key
from limiter.limits import NEVER, SECOND, Limit, Rate
from limiter.operations import REQUEUE
from limiter.request import Request
from limiter.rules.errors import RuleError
from limiter.rules.match import Match
from limiter.rules.rule import FIT, HAS_COPIES, TOO_LARGE, Rule
from support.models.asking import judge_of, key_of

NOW = 1_000 * SECOND


def limited(name: str, burst: int, **more: object) -> Rule:
    """A rule for one topic, without a breaker."""
    return Rule(name, Match(topic=name), limit=Limit(messages=Rate(1), messages_burst=burst), open_for_ns=0, **more)  # type: ignore[arg-type]


def ask(judge: Judge, topic: str, *copies: str, count: int = 1, size: int = 0) -> Request:
    request = Request(key_of(judge, topic), count, 1, size)
    request.copies = [key_of(judge, each) for each in copies] or None
    judge.decide([request], NOW)
    return request


def admitted(judge: Judge) -> dict[str, int]:
    return {state.thing or state.per: state.admitted for state in judge.states(NOW)}


def test_each_topic_pays_for_its_own_copy() -> None:
    judge = judge_of(limited("a", 5), limited("b", 5), limited("c", 5))
    assert ask(judge, "a", "b", "c", count=2).passed == 2
    assert admitted(judge) == {"a": 2, "b": 2, "c": 2}


def test_one_topic_that_may_not_take_it_refuses_it_for_all_and_is_named() -> None:
    judge = judge_of(limited("a", 5), limited("b", 1), limited("c", 5))
    assert ask(judge, "b").passed == 1
    refused = ask(judge, "a", "c", "b", "free")
    assert refused.passed == 0
    assert refused.bucket is not None
    assert (refused.bucket.owner_text(), refused.wait_ns, refused.unfit) == ("b", SECOND, FIT)
    assert admitted(judge) == {"a": 0, "b": 1, "c": 0}
    assert ask(judge, "a", "c", count=5).passed == 5


def test_what_topics_share_pays_for_all_of_them() -> None:
    judge = judge_of(Rule("users", per="rule", limit=Limit(messages=Rate(20), bytes=Rate(10_000)), open_for_ns=0))
    assert ask(judge, "a", *"bcd", count=7, size=100).passed == 5
    assert admitted(judge) == {"rule": 20}
    (state,) = judge.states(NOW)
    assert state.admitted_bytes == 2000


def test_more_copies_than_the_burst_go_into_debt_as_a_batch_does() -> None:
    judge = judge_of(Rule("users", per="rule", limit=Limit(messages=Rate(20)), open_for_ns=0))
    names = [f"t{number}" for number in range(49)]
    first, second = ask(judge, "a", *names), ask(judge, "a", *names)
    assert (first.passed, second.passed, second.wait_ns) == (1, 0, 50 * SECOND // 20)


@pytest.mark.parametrize("setting", ["count", "ignore"])
def test_a_rule_may_ignore_copies_and_counts_the_publish_all_the_same(setting: str) -> None:
    judge = judge_of(limited("a", 5, copies=setting), limited("b", 5, copies=setting))
    assert ask(judge, "a", "b").passed == 1
    assert admitted(judge) == {"a": 1, "b": 1 if setting == "count" else 0}


@pytest.mark.parametrize(("topic", "copies"), [("b", ["free"]), ("free", ["b"]), ("free", ["other", "b"])])
def test_a_rule_may_refuse_what_names_copies(topic: str, copies: list[str]) -> None:
    judge = judge_of(Rule("none", Match(topic="b"), copies="refuse"))
    assert ask(judge, "b").passed == 1
    refused = ask(judge, topic, *copies)
    assert refused.rule is not None
    assert (refused.passed, refused.unfit, refused.rule.name, refused.wait_ns) == (0, HAS_COPIES, "none", NEVER)
    assert ask(judge, "free", "other").passed == 1


def test_what_is_given_back_is_no_copy_in_shadow_mode_either() -> None:
    judge = judge_of(Rule("none", Match(topic="a"), copies="refuse", mode="shadow"))
    request = Request(key_of(judge, "a"), 1, 1, 0)
    request.copies = [key_of(judge, "a", operation=REQUEUE)]
    judge.decide([request], NOW)
    assert request.shadow_refused == 0


def test_in_shadow_mode_it_passes_and_is_counted() -> None:
    judge = judge_of(Rule("none", Match(topic="b"), copies="refuse", mode="shadow"), replace(limited("c", 1), mode="shadow"))
    assert [ask(judge, "a", "b").shadow_refused, ask(judge, "a", "c").shadow_refused, ask(judge, "a", "c").shadow_refused] == [1, 0, 1]


def test_a_copy_is_as_large_as_the_message() -> None:
    judge = judge_of(limited("a", 5), limited("b", 5, max_message_size=10))
    refused = ask(judge, "a", "b", size=11)
    assert (refused.passed, refused.unfit) == (0, TOO_LARGE)


def test_slots_are_the_publishs_one_in_each_limit_that_it_meets() -> None:
    judge = judge_of(Rule("few", per="rule", algorithm="concurrency", limit=Limit(concurrent=3)))
    first = ask(judge, "a", "b", "c", count=2)
    assert (first.passed, judge.in_flight()) == (2, {"few": 2})
    assert first.flight is not None
    assert ask(judge, "a", "b", count=2).passed == 1


def test_a_cap_counts_all_copies() -> None:
    cap = Rule("cap", Match(listener="l"), per="listener", limit=Limit(messages=Rate(10), messages_burst=10))
    judge = judge_of(cap)
    assert ask(judge, "a", "b", "c").passed == 1
    assert admitted(judge) == {"l": 3}


def test_rules_that_change_hold_for_copies_of_what_waits() -> None:
    judge = judge_of(limited("b", 1))
    ask(judge, "b")
    waiting = ask(judge, "a", "b")
    assert waiting.passed == 0
    waiting.again = True
    judge.replace(judge_of(limited("b", 100)).rules)
    judge.decide([waiting], NOW + 2 * SECOND)
    assert waiting.passed == 1


@pytest.mark.parametrize(
    "rule",
    [{"copies": "none"}, {"copies": "ignore", "limit": Limit()}, {"match": Match(operation="consume"), "copies": "refuse"}],
)
def test_what_says_nothing_is_an_error(rule: dict[str, object]) -> None:
    with pytest.raises(RuleError):
        Rule("wrong", **({"limit": Limit(messages=Rate(1))} | rule))  # type: ignore[arg-type]


TOPICS = "abcd"


@given(
    bursts=st.lists(st.integers(0, 6), min_size=4, max_size=4),
    shared=st.integers(0, 12),
    asked=st.lists(st.tuples(st.integers(0, 3), st.sets(st.integers(0, 3), max_size=3), st.integers(1, 3)), max_size=12),
)
def test_verdicts_are_those_of_counters_that_all_say_yes(bursts: list[int], shared: int, asked: list[tuple[int, set[int], int]]) -> None:
    """At one instant nothing comes in: each topic has its burst, and all together have one, no less than one request asks for."""
    rules = [limited(topic, burst + 1) for topic, burst in zip(TOPICS, bursts, strict=True)]
    over_all = Limit(messages=Rate(1), messages_burst=shared + 4)
    judge = judge_of(*rules, Rule("all", per="rule", limit=over_all, open_for_ns=0))
    keys: list[Key] = [key_of(judge, topic) for topic in TOPICS]
    left, in_all = [burst + 1 for burst in bursts], shared + 4
    for topic, copies, count in asked:
        named = sorted(copies - {topic})
        request = Request(keys[topic], count, 1, 0)
        request.copies = [keys[each] for each in named] or None
        judge.decide([request], NOW)
        expected = min(count, *(left[each] for each in [topic, *named]), in_all // (1 + len(named)))
        assert request.passed == expected
        in_all -= expected * (1 + len(named))
        for each in [topic, *named]:
            left[each] -= expected
