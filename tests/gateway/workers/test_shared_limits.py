"""Every algorithm's limit over three workers lets pass what it does in one process."""

from __future__ import annotations

import pytest

from limiter.limits import SECOND, Limit
from limiter.operations import DECLARE, PRODUCE
from limiter.rules.match import Match
from limiter.rules.rule import Rule
from limiter.rules.rule_set import RuleSet
from support.models.shared_limits import InFlight, Spender, everywhere, moving, passed_in_one_process, rule_of, work
from support.models.workers import BEGIN, MS, run, world

WORKERS = 3


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    clock = [BEGIN]
    monkeypatch.setattr("control_plane.workers.child.now_ns", lambda: clock[0])
    return clock


@pytest.mark.parametrize("rate", [200, 3000])
@pytest.mark.parametrize("algorithm", ["token_bucket", "pacing", "warm_up"])
def test_three_workers_pass_what_one_process_does(now: list[int], algorithm: str, rate: int) -> None:
    """With a load everywhere, from the start on; then at one of them, each second at another. In 9 s within 2 %."""
    rule = rule_of(algorithm, rate)
    offer = 2 * rate // 1000 + 1
    loads = [everywhere(WORKERS, offer, 3), everywhere(WORKERS, offer, 9), moving(WORKERS, 3 * offer, 3), moving(WORKERS, 3 * offer, 9)]
    _, _, pairs = world(RuleSet((rule,)), WORKERS)
    passed = [sum(run(pairs, now, milliseconds, offers) for milliseconds, offers in load) for load in loads]
    expected = passed_in_one_process(rule, loads)
    assert passed[1::2] == pytest.approx(expected[1::2], rel=0.02)
    assert passed[::2] == pytest.approx(expected[::2], abs=rate / 2), "lines are spent at first, and fill where the load has gone"


def test_the_load_of_one_worker_is_spaced(now: list[int]) -> None:
    """What it is granted comes in slices of some 20 ms, and does not pass in such."""
    _, _, pairs = world(RuleSet((rule_of("pacing", 1000),)), WORKERS)
    run(pairs, now, 1000, [5, 0, 0])
    passed = [run(pairs, now, 5, [5, 0, 0]) for _ in range(400)]
    assert max(passed) <= 5 * 9 / 8 + 2, "of an interval of 1 ms, which may be 8/9 of that where slices came late"
    assert min(passed) >= 3
    assert sum(passed) == pytest.approx(2000, rel=0.02)


def test_workers_that_begin_after_the_first_are_warm_as_it_is(now: list[int]) -> None:
    """What warms up is the limit, not the worker's part of it."""
    _, _, pairs = world(RuleSet((rule_of("warm_up", 1000),)), WORKERS)
    cold = run(pairs, now, 1000, [5, 0, 0])
    run(pairs, now, 3000, [5, 0, 0])
    assert cold < 900
    assert run(pairs, now, 1000, [0, 5, 0]) == pytest.approx(1000, rel=0.1)
    now[0] += 10_000 * MS
    assert run(pairs, now, 1000, [0, 0, 5]) < 900


@pytest.mark.parametrize("rate", [20, 1000])
def test_one_limit_of_costs_holds_over_workers_and_what_is_dear_has_its_turn(now: list[int], rate: int) -> None:
    parent, _, pairs = world(RuleSet((work(rate),)), 2)
    spenders = [Spender(pair.judge, operation) for pair, operation in zip(pairs, (PRODUCE, DECLARE), strict=True)]

    def spent(seconds: int) -> list[int]:
        before = [spender.spent for spender in spenders]
        for _ in range(1000 * seconds):
            for pair, spender in zip(pairs, spenders, strict=True):
                spender.step(now[0])
                pair.bucket_ids.changed.update(dict.fromkeys(spender.key.buckets))
            now[0] += MS
            if now[0] // MS % 10 == 0:
                for pair in pairs:
                    pair.exchange(now[0])
        return [spender.spent - then for spender, then in zip(spenders, before, strict=True)]

    first = spent(3)
    then = spent(30)
    assert sum(first) <= 4 * rate + 2 * 10, "the burst, and what each owes for the one that it let go"
    assert sum(then) == pytest.approx(30 * rate, rel=0.02)
    assert min(then) >= 0.3 * sum(then)
    assert spenders[1].longest_ns <= 3 * 10 * SECOND // rate + 50 * MS
    for pair in pairs:
        pair.tell(now[0])
    (state,) = parent.states(now[0])
    assert state.admitted == sum(first) + sum(then)


@pytest.mark.parametrize("algorithm", ["concurrency", "adaptive"])
def test_three_workers_have_in_flight_together_what_one_process_may(now: list[int], algorithm: str) -> None:
    """A flood at all of them, then at one; each request takes 20 ms. An adaptive one finds its ceiling: the broker never gets slower."""
    rule = Rule("all", Match(), per="topic", limit=Limit(concurrent=60), algorithm=algorithm, open_for_ns=0)
    parent, owner, pairs = world(RuleSet((rule,)), WORKERS)
    flights = [InFlight(pair.judge, 20) for pair in pairs]
    most = 0
    for offers in ([9, 9, 9], [0, 0, 9]):
        passed = 0
        for millisecond in range(6000):
            for pair, in_flight, offer in zip(pairs, flights, offers, strict=True):
                came = in_flight.offer(pair.key, offer, now[0])
                passed += came if millisecond >= 3000 else 0
            most = max(most, sum(in_flight.count for in_flight in flights))
            now[0] += MS
            if now[0] // MS % 10 == 0:
                for pair in pairs:
                    pair.exchange(now[0])
        assert passed == pytest.approx(60 * 3000 / 20, rel=0.02)
    assert most <= 60 + WORKERS - 1
    (state,) = parent.states(now[0])
    assert (state.in_flight, state.concurrent, state.fill) == (60, 60, 0.0)
    owner.member_left(3)
    assert parent.states(now[0])[0].in_flight == 0
