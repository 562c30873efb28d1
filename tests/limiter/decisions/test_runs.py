"""Runs: requests of one key judged together have the verdicts, the buckets and the counts of requests judged one by one."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from limiter.decisions.runs import NATIVE_BELOW
from limiter.judge import Judge
from limiter.keys import Key
from limiter.request import Request
from limiter.reservation import Reservation
from support.models.asking import SECOND, Limit, Match, Rate, Rule, RuleSet, key_of
from support.models.twice import BEGIN, BESIDE, MS, TOPICS, counts, rules_of, some_levels


@dataclass(frozen=True)
class Asked:
    """One request, as it is asked of both judges."""

    topic: int
    count: int = 1
    messages: int = 1
    size: int = 200
    again: bool = False
    prepaid: bool = False
    reserves: bool = False
    copies: tuple[int, ...] = ()

    def of(self, keys: list[Key]) -> Request:
        request = Request(keys[self.topic], self.count, self.messages, self.size)
        request.again = self.again
        request.prepaid = self.prepaid
        request.wait_ns, request.shadow_refused, request.bypassed = 7, 7, True  # of the verdict before
        if self.reserves:
            request.reservation = Reservation(self.messages, self.size)
        if self.copies and not self.reserves:
            request.copies = [keys[topic] for topic in self.copies]
        return request


class Twice:
    """Two judges of the same rules: one that judges in runs, one that cannot."""

    def __init__(self, *rules: Rule) -> None:
        self.runs, self.singly = Judge(RuleSet(rules)), Judge(RuleSet((*rules, BESIDE)))
        self.keys = [[key_of(judge, name, user="shop") for name in TOPICS] for judge in (self.runs, self.singly)]

    def replace(self, *rules: Rule) -> None:
        self.runs.replace(RuleSet(rules))
        self.singly.replace(RuleSet((*rules, BESIDE)))

    def ask(self, batch: list[Asked], now: int) -> list[Request]:
        """The requests, judged; the other judge says the same of each and has counted the same."""
        together, apart = ([asked.of(keys) for asked in batch] for keys in self.keys)
        self.runs.decide(together, now)
        for request in apart:
            self.singly.decide([request], now)
        assert [verdict(request) for request in together] == [verdict(request) for request in apart]
        assert self.runs.checks() == self.singly.checks()
        assert counts(self.runs, now) == counts(self.singly, now)
        return together


def verdict(request: Request) -> tuple[object, ...]:
    named = None if request.rule is None or request.bucket is None else (request.rule.name, request.bucket.owner_text())
    return request.passed, request.wait_ns, named, request.shadow_refused, request.bypassed, request.unfit


numbers = st.integers(0, 5) | st.sampled_from([1, 1, 1, 30])
sizes = st.sampled_from([200, 200, 0, 1, 999, NATIVE_BELOW - 1, NATIVE_BELOW, 2**31, 2**62 - 1, 2**62, 2**63 - 1])
one_asked = st.builds(
    Asked,
    st.sampled_from([0, 0, 0, 0, 1, 2]),
    count=numbers | st.sampled_from([NATIVE_BELOW, 10**6]),
    messages=numbers | st.just(2**61),
    size=sizes,
    again=st.sampled_from([False, False, False, True]),
    prepaid=st.sampled_from([False] * 9 + [True]),
    reserves=st.sampled_from([False] * 9 + [True]),
    copies=st.sampled_from([()] * 9 + [(1,), (1, 2), (0, 2, 2)]),
)
likely = st.lists(st.builds(Asked, topic=st.sampled_from([0, 0, 0, 1]), size=st.sampled_from([200, 200, 300])), min_size=1, max_size=20)
some_batches = st.lists(
    st.tuples(
        st.sampled_from([0, 1, MS, 30 * MS, SECOND, 100 * SECOND, -MS, -3 * SECOND]) | st.integers(0, SECOND),
        likely | st.lists(one_asked, min_size=1, max_size=12),
        st.booleans(),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=150, deadline=None)
@given(levels=some_levels, other=some_levels, batches=some_batches, protects=st.booleans(), largest=st.sampled_from([None, None, 200, 999]))
@example(  # a counter that no native integer holds
    levels={"topic": (Limit(bytes=Rate(0)), 0)},
    other={"topic": (Limit(bytes=Rate(1)), 0)},
    batches=[
        (0, [Asked(0)], False),
        (0, [Asked(0, count=NATIVE_BELOW, messages=2**61, size=0), *[Asked(0, count=0, messages=0)] * 2], True),
    ],
    protects=False,
    largest=None,
)
def test_runs_are_judged_as_one_by_one(
    levels: dict[str, tuple[Limit, int]],
    other: dict[str, tuple[Limit, int]],
    batches: list[tuple[int, list[Asked], bool]],
    protects: bool,
    largest: int | None,
) -> None:
    """Over levels that add up, largest messages, breakers, debts, caps, numbers no native integer holds, clocks going back, other rules."""
    twice = Twice(*rules_of(levels, protects=protects, largest=largest))
    now = BEGIN
    for later, batch, swaps in batches:
        now += later
        if swaps:
            levels, other = other, levels
            twice.replace(*rules_of(levels, protects=protects, largest=None))
        twice.ask(batch, now)


def test_a_breaker_that_opens_in_the_middle_of_a_batch_refuses_what_follows() -> None:
    twice = Twice(Rule("topics", limit=Limit(messages=Rate(10)), open_for_ns=SECOND))
    judged = twice.ask([Asked(0, count=3) for _ in range(6)], BEGIN)
    assert [request.passed for request in judged] == [3, 3, 3, 1, 0, 0]
    assert [request.wait_ns for request in judged] == [0, 0, 0, SECOND, SECOND, SECOND]
    judged = twice.ask([Asked(0)] * 3, BEGIN + SECOND)
    assert [request.passed for request in judged] == [1, 1, 1]


def test_a_cheaper_request_passes_after_a_refusal() -> None:
    twice = Twice(Rule("topics", limit=Limit(bytes=Rate(1000)), open_for_ns=0))
    judged = twice.ask([Asked(0, size=800), Asked(0, size=300), Asked(0, size=300), Asked(0, size=200), Asked(0, size=1)], BEGIN)
    assert [request.passed for request in judged] == [1, 0, 0, 1, 0]
    assert [request.wait_ns for request in judged] == [0, SECOND // 10, SECOND // 10, 0, MS]


@pytest.mark.parametrize(("before", "passed"), [(0, 5), (1, 4), (200, 4), (201, 3)])
def test_as_many_alike_pass_as_fit_whatever_stands_before_them(before: int, passed: int) -> None:
    twice = Twice(Rule("topics", limit=Limit(messages=Rate(1000), bytes=Rate(1000)), open_for_ns=0))
    judged = twice.ask([Asked(0, size=before), *[Asked(0)] * 7, Asked(0, size=0), Asked(0, size=0, again=True)], BEGIN)
    assert [request.passed for request in judged] == [1, *[1] * passed, *[0] * (7 - passed), 1, 1]


def test_requests_of_a_high_cost_pass_as_often_as_it_fits_into_what_is_left() -> None:
    twice = Twice(Rule("topics", limit=Limit(bytes=Rate(7 * NATIVE_BELOW)), open_for_ns=0))
    judged = twice.ask([Asked(0, count=2, size=NATIVE_BELOW - 1) for _ in range(5)], BEGIN)
    assert [request.passed for request in judged] == [2, 2, 2, 1, 0]


def test_a_request_that_costs_more_than_the_burst_goes_into_debt_in_the_middle_of_a_batch() -> None:
    twice = Twice(Rule("topics", limit=Limit(messages=Rate(10)), open_for_ns=0))
    judged = twice.ask([Asked(0, messages=0), Asked(0, messages=32), Asked(0, messages=0), Asked(0)], BEGIN)
    assert [request.passed for request in judged] == [1, 1, 0, 0]


@pytest.mark.parametrize("size", [NATIVE_BELOW, 2**62, 2**63 - 1])
def test_numbers_whose_product_is_no_native_integer_are_judged_alone(size: int) -> None:
    twice = Twice(Rule("topics", limit=Limit(messages=Rate(10))), Rule("clients", per="client", limit=Limit(bytes=Rate(10**14 + 1))))
    judged = twice.ask(
        [Asked(0), Asked(0, count=NATIVE_BELOW - 1, size=NATIVE_BELOW - 1), Asked(0, size=size), Asked(0, messages=2**61)], BEGIN
    )
    assert [request.passed for request in judged] == [1, 9, 0, 0]


def test_a_run_ends_where_another_key_draws_from_the_same_bucket() -> None:
    twice = Twice(Rule("clients", per="client", limit=Limit(messages=Rate(10)), open_for_ns=0))
    judged = twice.ask([Asked(0, count=4), Asked(1, count=4), Asked(0, count=4), Asked(0)], BEGIN)
    assert [request.passed for request in judged] == [4, 4, 2, 0]


def test_topics_go_in_runs_while_their_cap_keeps_nobody_from_anything_and_singly_when_it_does() -> None:
    cap = Rule("cap", per="listener", limit=Limit(messages=Rate(1000), bytes=Rate(1_000_000)))
    twice = Twice(cap, Rule("mine", Match(topic=TOPICS[0]), limit=Limit(messages=Rate(500)), protected=True))
    passed = [0, 0, 0]
    for turn in range(200):
        batch = [Asked(which, size=200 + 300 * (number % 3)) for which in (0, 1, 2) for number in range((1, 2, 9)[which])]
        judged = twice.ask(batch, BEGIN + turn * 7 * MS)
        for asked, request in zip(batch, judged, strict=True):
            passed[asked.topic] += request.passed
    assert passed[0] == 200  # protected
    assert passed[1] > passed[2] // 5 > 0
    assert sum(passed) < 200 * 12


def test_where_the_judge_fails_in_the_middle_of_a_run_nothing_of_it_is_taken() -> None:
    """What fails passes without a verdict (`limiter.executor`), and so does the run: it must not be charged as well."""
    judge = Judge(RuleSet((Rule("topics", limit=Limit(messages=Rate(10))),)))
    key = key_of(judge, "orders")
    judge.decide([Request(key, 1, 1, 0)], BEGIN)
    broken = [Request(key, 2, 1, 0), "no request"]
    with pytest.raises(Exception, match="number 0"):
        judge.decide(broken, BEGIN)  # type: ignore[arg-type]
    request = Request(key, 20, 1, 0)
    judge.decide([request], BEGIN)
    assert request.passed == 9
