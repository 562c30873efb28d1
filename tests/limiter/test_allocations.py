"""What a decision allocates: compiled nothing, interpreted nothing that stays."""

from __future__ import annotations

import tracemalloc

import pytest

from gateway.build import build
from limiter.judge import Judge
from limiter.limits import Limit, Rate
from limiter.request import Request
from limiter.rules.rule_set import Rule, RuleSet
from support.models.asking import SECOND, key_of

BATCH = 1000
COMPILED = build().kind == "compiled"
ROUNDS = 5
CALLS = 200 if COMPILED else 5  # in a round; compiled, that is a million decisions

BOTH = Limit(messages=Rate(2_000_003), bytes=Rate(400_000_009))


@pytest.mark.parametrize(
    "rules",
    [(Rule("a", limit=Limit(messages=Rate(2_000_003))),), tuple(Rule(per, per=per, limit=BOTH) for per in ("topic", "client", "user"))],
    ids=["one level", "three levels"],
)
def test_a_million_decisions_keep_nothing(rules: tuple[Rule, ...]) -> None:
    judge = Judge(RuleSet(rules))
    key = key_of(judge, "orders")
    requests = [Request(key, 1, 1, 200) for _ in range(BATCH)]
    moments = [1000 * SECOND + number * 1_000_000 for number in range(CALLS * (ROUNDS + 1))]
    decide = judge.decide
    rounds = [moments[begin : begin + CALLS] for begin in range(0, len(moments), CALLS)]
    for now in rounds[0]:
        decide(requests, now)
    measured = []
    tracemalloc.start()
    try:
        for moments in rounds[1:]:
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            for now in moments:
                decide(requests, now)
            after, peak = tracemalloc.get_traced_memory()
            measured.append((after - before, peak - before))
    finally:
        tracemalloc.stop()
    kept, in_hand = min(kept for kept, _ in measured), min(most for _, most in measured)  # other threads of the process allocate, too
    assert sum(request.passed for request in requests) == BATCH
    assert kept < (200 if COMPILED else 4000), "something is kept"  # interpreted, numbers are objects: as many as there are states
    if COMPILED:
        assert in_hand < 200, "a decision allocates"  # the loop of this test has an iterator and a number in hand
