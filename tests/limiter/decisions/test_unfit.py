"""Requests that no wait lets pass: larger than a rule's `max_message_size`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from limiter.judge import Judge
from limiter.limits import NEVER, SECOND, Limit, Rate
from limiter.request import Request
from limiter.rules.errors import RuleError
from limiter.rules.live_change import Override
from limiter.rules.rule import FIT, TOO_LARGE
from limiter.rules.rule_set import Match, Rule, RuleSet
from support.models.asking import key_of

NOW = 1_000 * SECOND
SMALL = Rule("small", Match(topic="orders"), limit=Limit(messages=Rate(10), messages_burst=10), max_message_size=1000)


def ask(judge: Judge, *sizes: int, count: int = 1, topic: str = "orders") -> list[Request]:
    requests = [Request(key_of(judge, topic), count, 1, size) for size in sizes]
    judge.decide(requests, NOW)
    return requests


def test_what_is_larger_never_passes_and_spends_nothing() -> None:
    judge = Judge(RuleSet((SMALL,)))
    requests = ask(judge, 1000, 1001, 1000, 1001, 1001, 0)
    assert [each.passed for each in requests] == [1, 0, 1, 0, 0, 1]
    assert [each.unfit for each in requests] == [FIT, TOO_LARGE, FIT, TOO_LARGE, TOO_LARGE, FIT]
    refused = requests[1]
    assert refused.rule is not None
    assert (refused.rule.name, refused.wait_ns) == ("small", NEVER)
    (state,) = judge.states(NOW)
    assert (state.admitted, state.over_limit, state.breaker) == (3, 3, "closed")
    assert judge.checks() == {"ok": 3, "limited_shadow": 0, "limited_enforced": 3}


def test_it_opens_no_breaker_for_those_that_fit() -> None:
    judge = Judge(RuleSet((replace(SMALL, open_for_ns=SECOND),)))
    assert [each.passed for each in ask(judge, *[5000] * 50, 10)] == [0] * 50 + [1]


def test_a_rule_may_have_nothing_but_a_size() -> None:
    judge = Judge(RuleSet((Rule("sizes", max_message_size=10),)))
    assert [each.passed for each in ask(judge, 10, 11, count=100_000)] == [100_000, 0]


def test_each_level_has_its_own() -> None:
    judge = Judge(RuleSet((SMALL, Rule("of clients", per="client", max_message_size=10))))
    large, larger, other = *ask(judge, 11, 2000), *ask(judge, 11, topic="bills")
    assert [each.rule.name for each in (large, larger, other) if each.rule is not None] == ["of clients", "small", "of clients"]


def test_in_shadow_mode_it_passes_and_is_counted() -> None:
    judge = Judge(RuleSet((replace(SMALL, mode="shadow"),)))
    fits, large = ask(judge, 1000, 1001, count=3)
    assert [(each.passed, each.shadow_refused, each.unfit) for each in (fits, large)] == [(3, 0, FIT), (3, 3, FIT)]
    assert judge.checks() == {"ok": 3, "limited_shadow": 3, "limited_enforced": 0}


def test_another_size_holds_from_the_next_batch() -> None:
    judge = Judge(RuleSet((SMALL,)))
    (waiting,) = ask(judge, 2000)
    judge.replace(RuleSet((replace(SMALL, max_message_size=2000),)))
    waiting.again = True
    judge.decide([waiting], NOW)
    assert (waiting.passed, waiting.unfit) == (1, FIT)
    judge.replace(RuleSet((replace(SMALL, max_message_size=1999),)))
    assert ask(judge, 2000)[0].unfit == TOO_LARGE


@pytest.mark.parametrize("size", [0, -1, (1 << 30) + 1])
def test_a_size_that_no_message_has_is_an_error(size: int) -> None:
    with pytest.raises(RuleError, match="outside 1B to 1GiB"):
        replace(SMALL, max_message_size=size)


@pytest.mark.parametrize("mode", ["enforce", "shadow"])
def test_what_is_delivered_is_as_large_as_it_is(mode: str) -> None:
    """Refused it would come back without end; a rule for both operations says how large what is published may be."""
    both = replace(SMALL, match=Match(operation=("produce", "consume")), per="user", open_for_ns=0, mode=mode)
    judge = Judge(RuleSet((both,)))
    request = Request(key_of(judge, "orders", user="shop", operation="consume"), 1, 1, 2000)
    judge.decide([request], NOW)
    assert (request.passed, request.unfit, request.shadow_refused) == (1, FIT, 0)


def test_it_is_for_what_is_published() -> None:
    with pytest.raises(RuleError, match="is for what is published"):
        replace(SMALL, match=Match(topic="orders", operation="consume"))


def test_a_live_change_keeps_it() -> None:
    changed = Override(messages=Rate(50)).over(SMALL)
    assert (changed.max_message_size, changed.mode) == (1000, "enforce")
    alone = Override(action="delay").over(Rule("sizes", max_message_size=10))
    assert (alone.max_message_size, alone.mode) == (10, "enforce")
