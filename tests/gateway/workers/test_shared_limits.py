"""Every algorithm's limit over three workers lets pass what it does in one process."""

from __future__ import annotations

import pytest

from limiter.limits import Limit
from limiter.rules.rule import Match, Rule
from limiter.rules.rule_set import RuleSet
from support.models.shared_limits import InFlight, everywhere, moving, passed_in_one_process, rule_of
from support.models.workers import BEGIN, MS, run, world

WORKERS = 3


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    clock = [BEGIN]
    monkeypatch.setattr("gateway.workers.child.now_ns", lambda: clock[0])
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
