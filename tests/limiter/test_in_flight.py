"""Requests in flight: slots are taken with the verdict and given back once, whatever becomes of the request."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limiter.algorithms.slots import ANSWERED, BUSY, FAILED, GIVEN_UP, MAX_WAIT_NS, MIN_WAIT_NS
from limiter.executor import Executor, Submission
from limiter.in_flight import Ending, Flight, end
from limiter.judge import Judge
from limiter.keys import Key
from limiter.limit_state import LimitState
from limiter.request import Request, UnjudgedError
from support.builds import build_of
from support.models.asking import SECOND, Limit, Rate, Rule, RuleSet, ask, judge_of, key_of

MS = 1_000_000
BEGIN = 5 * SECOND


def at_most(concurrent: int, name: str = "few", per: str = "topic", algorithm: str = "concurrency", **more: object) -> Rule:
    return Rule(name, per=per, limit=Limit(concurrent=concurrent), algorithm=algorithm, **more)  # type: ignore[arg-type]


def land(judge: Judge, flight: Flight | None, count: int, now: int, outcome: int = ANSWERED) -> None:
    endings: list[Ending] = []
    if flight is not None:
        end(endings, flight, count, outcome)
    judge.free_slots(endings, now)


def state(judge: Judge, now: int = BEGIN) -> LimitState:
    (found,) = judge.states(now)
    return found


def forwarded(judge: Judge, key: Key, count: int, now: int) -> Request:
    request = ask(judge, key, now, count=count)
    if request.flight is not None:
        request.flight.since = now
    return request


def test_so_many_pass_as_there_are_slots_and_each_answer_frees_one() -> None:
    judge = judge_of(at_most(3))
    key = key_of(judge, "orders")
    first = forwarded(judge, key, 5, BEGIN)
    assert first.passed == 3
    assert first.flight is not None
    assert (first.flight.left, state(judge).in_flight, state(judge).concurrent) == (3, 3, 3)
    assert ask(judge, key, BEGIN + SECOND).passed == 0  # time brings nothing back
    land(judge, first.flight, 2, BEGIN + SECOND)
    assert state(judge).in_flight == 1
    assert ask(judge, key, BEGIN + SECOND, count=5).passed == 2


def test_a_batch_of_many_messages_takes_one_slot() -> None:
    judge = judge_of(at_most(2))
    assert ask(judge, key_of(judge, "orders"), BEGIN, count=3, messages=32, size=1000).passed == 2


def test_the_wait_is_as_long_as_an_answer_has_taken_between_a_millisecond_and_a_second() -> None:
    judge = judge_of(at_most(1))
    key = key_of(judge, "orders")
    taken = forwarded(judge, key, 2, BEGIN)
    assert (taken.passed, taken.wait_ns) == (1, MIN_WAIT_NS)
    land(judge, taken.flight, 1, BEGIN + 30 * MS)
    assert forwarded(judge, key, 2, BEGIN + 30 * MS).wait_ns == 30 * MS
    assert state(judge, BEGIN + 30 * MS).wait_ns == 30 * MS
    judge = judge_of(at_most(1))
    key = key_of(judge, "orders")
    land(judge, forwarded(judge, key, 1, BEGIN).flight, 1, BEGIN + 60 * SECOND)
    assert forwarded(judge, key, 2, BEGIN + 60 * SECOND).wait_ns == MAX_WAIT_NS


@pytest.mark.parametrize("outcome", [FAILED, BUSY, GIVEN_UP])
def test_however_it_ends_the_slot_is_free_and_only_success_tells_a_latency(outcome: int) -> None:
    judge = judge_of(at_most(1))
    key = key_of(judge, "orders")
    land(judge, forwarded(judge, key, 1, BEGIN).flight, 1, BEGIN + 30 * MS, outcome)
    assert forwarded(judge, key, 2, BEGIN + 30 * MS).wait_ns == MIN_WAIT_NS
    assert state(judge).in_flight == 1


def test_the_end_of_a_request_counts_once_however_often_it_is_told() -> None:
    judge = judge_of(at_most(4))
    key = key_of(judge, "orders")
    flight = forwarded(judge, key, 2, BEGIN).flight
    forwarded(judge, key, 2, BEGIN)
    for _ in range(3):
        land(judge, flight, 5, BEGIN)
    assert state(judge).in_flight == 2


def test_a_refusal_at_another_level_takes_no_slot_and_one_here_spends_nothing_there() -> None:
    judge = judge_of(at_most(3), Rule("rate", per="client", limit=Limit(messages=Rate(2)), open_for_ns=0))
    key = key_of(judge, "orders")
    first = ask(judge, key, BEGIN, count=5)
    assert first.passed == 2
    assert first.flight is not None
    assert first.flight.left == 2
    assert {found.in_flight for found in judge.states(BEGIN) if found.per == "topic"} == {2}
    full = judge_of(at_most(1), Rule("rate", per="client", limit=Limit(messages=Rate(10)), open_for_ns=0))
    key = key_of(full, "orders")
    assert ask(full, key, BEGIN, count=5).passed == 1
    assert [found.fill for found in full.states(BEGIN) if found.per == "client"] == [0.9]


def test_two_levels_that_count_are_both_given_back() -> None:
    judge = judge_of(at_most(3), at_most(2, "all", "rule"))
    key = key_of(judge, "orders")
    request = forwarded(judge, key, 5, BEGIN)
    assert request.passed == 2
    assert [found.in_flight for found in judge.states(BEGIN)] == [2, 2]
    assert judge.in_flight() == {"few": 2, "all": 2}
    land(judge, request.flight, 2, BEGIN)
    assert [found.in_flight for found in judge.states(BEGIN)] == [0, 0]
    assert judge.in_flight() == {"few": 0, "all": 0}


def test_in_shadow_mode_it_counts_and_refuses_nothing() -> None:
    judge = judge_of(at_most(2, mode="shadow"))
    key = key_of(judge, "orders")
    request = forwarded(judge, key, 5, BEGIN)
    assert (request.passed, request.shadow_refused, state(judge).in_flight) == (5, 3, 2)
    land(judge, request.flight, 4, BEGIN)
    assert state(judge).in_flight == 0
    land(judge, request.flight, 1, BEGIN)
    assert state(judge).in_flight == 0


def test_a_request_that_is_never_answered_takes_no_slot_and_needs_none() -> None:
    judge = judge_of(at_most(1))
    key = key_of(judge, "orders")
    forwarded(judge, key, 1, BEGIN)
    request = Request(key, 7, 1, 0)
    request.unanswered = True
    judge.decide([request], BEGIN)
    assert (request.passed, request.flight, state(judge).in_flight, state(judge).wait_ns) == (7, None, 1, MIN_WAIT_NS)
    assert state(judge).admitted == 8
    assert ask(judge, key, BEGIN).passed == 0


def test_a_rate_beside_it_must_have_room_too_and_holds_for_what_is_never_answered() -> None:
    judge = judge_of(Rule("few", limit=Limit(concurrent=3, messages=Rate(5)), algorithm="concurrency"))
    key = key_of(judge, "orders")
    assert ask(judge, key, BEGIN, count=9).passed == 3
    request = Request(key, 9, 1, 0)
    request.unanswered = True
    judge.decide([request], BEGIN)
    assert request.passed == 2
    assert request.wait_ns == SECOND // 5


def test_a_request_that_gave_its_slots_back_to_wait_is_charged_for_nothing_else_twice() -> None:
    judge = judge_of(
        Rule("few", limit=Limit(concurrent=2, messages=Rate(4)), algorithm="concurrency"),
        Rule("rate", per="client", limit=Limit(messages=Rate(2)), open_for_ns=0),
    )
    key = key_of(judge, "orders")
    request = forwarded(judge, key, 2, BEGIN)
    assert request.passed == 2
    land(judge, request.flight, 2, BEGIN, GIVEN_UP)
    request.flight = None
    request.prepaid = request.again = True
    judge.decide([request], BEGIN)
    assert (request.passed, request.flight is not None) == (2, True)
    assert [(found.per, found.fill) for found in judge.states(BEGIN)] == [("topic", 0.0), ("client", 0.0)]
    assert judge.checks()["ok"] == 2


def test_a_lower_limit_lets_none_pass_until_fewer_are_in_flight() -> None:
    judge = judge_of(at_most(5))
    key = key_of(judge, "orders")
    request = forwarded(judge, key, 5, BEGIN)
    judge.replace(RuleSet((at_most(2),)), BEGIN)
    for left in (5, 4, 3, 2):
        assert ask(judge, key, BEGIN).passed == 0
        assert state(judge).in_flight == left
        land(judge, request.flight, 1, BEGIN)
    assert ask(judge, key, BEGIN).passed == 1


def test_requests_in_flight_stay_counted_through_other_algorithms_and_modes() -> None:
    rules: list[Rule] = [
        at_most(5, algorithm="adaptive"),
        Rule("few", limit=Limit(messages=Rate(1000)), open_for_ns=0),
        at_most(5, mode="shadow"),
        at_most(5),
    ]
    judge = judge_of(at_most(5))
    key = key_of(judge, "orders")
    request = forwarded(judge, key, 4, BEGIN)
    for rule in rules:
        judge.replace(RuleSet((rule,)), BEGIN)
        assert ask(judge, key, BEGIN, count=0).passed == 0
    assert state(judge).in_flight == 4
    land(judge, request.flight, 4, BEGIN)
    assert state(judge).in_flight == 0


def test_a_bucket_with_something_in_flight_is_not_forgotten() -> None:
    judge = judge_of(at_most(1), max_keys=1)
    key = key_of(judge, "orders")
    request = forwarded(judge, key, 1, BEGIN)
    later = BEGIN + 3600 * SECOND
    for number in range(20):
        ask(judge, key_of(judge, f"made-up-{number}"), later + number)
    assert ask(judge, key, later + SECOND).passed == 0
    land(judge, request.flight, 1, later)
    assert ask(judge, key, later + SECOND).passed == 1


def test_a_restart_begins_with_nothing_in_flight() -> None:
    before = judge_of(at_most(2))
    forwarded(before, key_of(before, "orders"), 2, BEGIN)
    rows = sum(before.fills(BEGIN), array("q"))
    after = judge_of(at_most(2))
    after.restore(before.secret, rows, BEGIN)
    assert ask(after, key_of(after, "orders"), BEGIN, count=9).passed == 2


@pytest.mark.skipif(build_of("limiter.judge")[0] == "compiled", reason="the compiled build lets nothing go wrong in this way")
@pytest.mark.parametrize("field", ["count", "messages"], ids=["before slots are taken", "after that"])
def test_where_the_judge_fails_nothing_stays_taken(field: str) -> None:
    judge = judge_of(at_most(3))
    key = key_of(judge, "orders")
    ask(judge, key, BEGIN, count=0)
    broken = Request(key, 2, 1, 0)
    setattr(broken, field, "two")  # whatever goes wrong in the middle
    with pytest.raises(UnjudgedError) as failure:
        judge.decide([broken], BEGIN)
    assert isinstance(failure.value.__cause__, TypeError)
    assert (broken.flight, state(judge).in_flight) == (None, 0)
    assert ask(judge, key, BEGIN, count=9).passed == 3


def test_where_the_judge_fails_what_was_judged_before_keeps_its_verdict_and_its_slots() -> None:
    """It had been charged; passed whole without a verdict, more would be in flight than slots are held."""
    judge = judge_of(at_most(3))
    key = key_of(judge, "orders")
    broken_key = key_of(judge, "broken")
    ask(judge, broken_key, BEGIN)
    broken_key.buckets = ["no bucket"]  # type: ignore[list-item]  # whatever goes wrong in the middle
    requests = [Request(key, 5, 1, 0), Request(broken_key, 2, 1, 0), Request(key, 4, 1, 0)]
    executor = Executor(judge.decide, threads=0)
    executor.submit(Submission(requests, BEGIN, None))
    (submission,) = executor.collect()
    assert [(request.passed, request.bypassed) for request in requests] == [(3, False), (2, True), (4, True)]
    assert (submission.unjudged, executor.failed) == (6, 1)
    land(judge, requests[0].flight, 3, BEGIN)
    assert ask(judge, key, BEGIN, count=9).passed == 3


def test_a_paid_request_that_waits_only_for_slots_is_not_charged_again_under_rules_without_slots() -> None:
    judge = judge_of(at_most(3))
    key = key_of(judge, "orders")
    waiting = ask(judge, key, BEGIN)
    land(judge, waiting.flight, 1, BEGIN)
    waiting.flight = None
    waiting.again = waiting.prepaid = True
    judge.replace(RuleSet((Rule("rate", limit=Limit(messages=Rate(5))),)), BEGIN)
    assert ask(judge, key, BEGIN, count=5).passed == 5
    judge.decide([waiting], BEGIN)
    assert waiting.passed == 1


SOME_RULES = [
    (at_most(4), at_most(6, "all", "rule")),
    (at_most(2, algorithm="adaptive"),),
    (at_most(9), Rule("rate", per="client", limit=Limit(messages=Rate(7)), open_for_ns=0)),
    (at_most(3, mode="shadow"), at_most(5, "all", "rule", algorithm="adaptive")),
    (Rule("few", limit=Limit(messages=Rate(1000)), open_for_ns=0),),
]
moves = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 2), st.integers(1, 8)),
        st.tuples(st.just("end"), st.integers(0, 50), st.integers(1, 9)),
        st.tuples(st.just("rules"), st.integers(0, len(SOME_RULES) - 1), st.just(0)),
        st.tuples(st.just("sleep"), st.integers(0, 100), st.integers(0, 2)),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(moves=moves, outcomes=st.lists(st.sampled_from([ANSWERED, FAILED, BUSY, GIVEN_UP]), min_size=1, max_size=10))
def test_after_any_sends_answers_and_changes_all_slots_are_free_in_the_end(
    moves: Sequence[tuple[str, int, int]], outcomes: list[int]
) -> None:
    judge = judge_of(*SOME_RULES[0], max_keys=2)
    keys = [key_of(judge, f"topic-{number}") for number in range(3)]
    flights: list[Flight] = []
    now = BEGIN
    for step, (what, which, amount) in enumerate(moves):
        if what == "send":
            request = forwarded(judge, keys[which], amount, now)
            if request.flight is not None:
                flights.append(request.flight)
        elif what == "end" and flights:
            land(judge, flights[which % len(flights)], amount, now, outcomes[step % len(outcomes)])
        elif what == "rules":
            judge.replace(RuleSet(SOME_RULES[which]), now)
        else:
            now += which * (MS, SECOND, 60 * SECOND)[amount % 3]
        for found in judge.states(now):
            assert found.in_flight is None or found.in_flight >= 0
    buckets = {id(hold.bucket): hold for flight in flights for hold in flight.holds}
    for flight in flights:
        land(judge, flight, flight.left, now, GIVEN_UP)
    assert [hold.slots.taken for hold in buckets.values()] == [0] * len(buckets)
    assert all(not found.in_flight for found in judge.states(now))
    assert not any(judge.in_flight().values())


def test_endings_alike_are_one_only_where_nothing_came_between() -> None:
    endings: list[Ending] = []
    first, second = Flight([], 10), Flight([], 10)
    for flight, count, outcome in (
        (first, 1, ANSWERED), (first, 2, ANSWERED), (second, 1, ANSWERED), (second, 3, FAILED), (first, 1, ANSWERED), (first, 1, ANSWERED),
        (first, 99, ANSWERED),
    ):  # fmt: skip
        end(endings, flight, count, outcome)
    found = [(each.flight is first, each.count, each.outcome) for each in endings]
    assert found == [(True, 3, ANSWERED), (False, 1, ANSWERED), (False, 3, FAILED), (True, 7, ANSWERED)]
