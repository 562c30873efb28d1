"""A worker's judge and its parent's, with the messages between them: one limit, counters that add up, and a worker that ends."""

from __future__ import annotations

import pytest

from control_plane.workers.child import leased_bucket
from gateway.workers.bucket_ids import announcement
from limiter.buckets.factory import BucketFactory
from limiter.judge import Judge
from limiter.leases.lease import Lease
from limiter.leases.owner import LeaseOwner
from limiter.limits import Lag, Limit, LimitChange, Rate
from limiter.request import Request
from limiter.reservation import Reservation
from limiter.rules.match import Match
from limiter.rules.rule import Rule
from limiter.rules.rule_set import Override, RuleSet
from limiter.topics import rocketmq_topic
from support.models.asking import ask, judge_of, key_of, orders
from support.models.workers import BEGIN, MS, Pair, run, world


def rules(rate: int, **more: object) -> RuleSet:
    return RuleSet((Rule("all", Match(protocol="rocketmq"), limit=Limit(messages=Rate(rate)), open_for_ns=0, **more),))  # type: ignore[arg-type]  # fields of a rule


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The clock by which the parent answers."""
    clock = [BEGIN]
    monkeypatch.setattr("control_plane.workers.child.now_ns", lambda: clock[0])
    return clock


def test_two_workers_hold_one_limit_and_the_parent_knows_what_they_admitted(now: list[int]) -> None:
    parent, _, pairs = world(rules(1000))
    assert run(pairs, now, 1000, (5, 0)) <= 2000
    for turn in range(4):
        assert run(pairs, now, 1000, (0, 5) if turn % 2 else (5, 0)) == pytest.approx(1000, rel=0.02)
    for pair in pairs:
        pair.tell(now[0])
    (state,) = parent.states(now[0])
    assert (state.thing, state.admitted) == ("t", sum(pair.passed for pair in pairs))
    assert state.over_limit == sum(bucket.over_limit for pair in pairs for bucket in pair.key.buckets) > 0


def test_a_worker_that_comes_to_a_limit_slowed_by_a_backlog_lends_itself_what_is_right_for_the_rate_of_now(now: list[int]) -> None:
    limit = Limit(messages=Rate(10_000), lag=Lag(100, Rate(20), group="workers"))
    held = RuleSet((Rule("all", Match(protocol="rocketmq"), limit=limit, algorithm="lag", open_for_ns=0),))
    parent, _, pairs = world(held)
    run(pairs, now, 100, (1, 0))
    (identity,) = (bucket.effective.identity for bucket in pairs[0].key.buckets)
    parent.set_rate(identity, Rate(20), now[0])
    pairs[0].judge.set_rate(identity, Rate(20), now[0])
    late = run(pairs, now, 1000, (0, 3))  # before the next look at the backlog
    assert late <= 3 * 10 + 20 + 20, "what comes in until it is told, the burst and a second's; it might have lent itself 2,500"


def test_counters_reported_twice_are_counted_once(now: list[int]) -> None:
    parent, _, (pair, _other) = world(rules(1000))
    pair.offer(10, now[0])
    pair.tell(now[0])
    pair.tell(now[0])
    pair.offer(5, now[0])
    pair.tell(now[0])
    assert parent.states(now[0])[0].admitted == 15


def test_candidates_are_tried_in_parts_and_their_counts_add_up(now: list[int]) -> None:
    held = rules(1000, candidate=LimitChange(messages=Rate(100)))
    parent, _, pairs = world(held)
    for offer in (80, 30):  # each worker's part is 50
        for pair in pairs:
            pair.offer(offer, now[0])
            pair.tell(now[0])
            pair.tell(now[0])
    counts = parent.candidates(now[0])["all"]
    assert (counts.admitted, counts.refused, counts.clients) == (100, 120, {"10.0.0.7": 120})
    (state,) = parent.states(now[0])
    assert state.candidate is not None
    assert (state.candidate.admitted, state.candidate.refused) == (100, 120)
    changed = rules(1000, candidate=LimitChange(messages=Rate(60)))
    now[0] += MS
    parent.replace(changed, now[0])
    pairs[0].offer(7, now[0])
    pairs[0].tell(now[0])  # it has not heard yet: this is of the candidate before
    assert parent.candidates(now[0])["all"].refused == 0
    pairs[0].judge.replace(changed, now[0])
    pairs[0].offer(7, now[0])
    pairs[0].tell(now[0])
    assert parent.candidates(now[0])["all"].refused == 7


def test_a_changed_limit_holds_for_both_when_both_have_it(now: list[int]) -> None:
    parent, _, pairs = world(rules(1000))
    run(pairs, now, 2000, (5, 5))
    for judge in (parent, *(pair.judge for pair in pairs)):
        judge.replace(rules(200), now[0])
    run(pairs, now, 500, (5, 5))
    assert run(pairs, now, 4000, (5, 5)) == pytest.approx(800, rel=0.02)


def test_a_limit_of_zero_admits_nothing_from_the_next_batch_on(now: list[int]) -> None:
    parent, _, pairs = world(rules(1000))
    run(pairs, now, 100, (1, 1))
    for judge in (parent, *(pair.judge for pair in pairs)):
        judge.replace(rules(0), now[0])
    assert run(pairs, now, 500, (5, 5)) == 0


def test_a_cap_is_one_limit_wherever_its_load_is(now: list[int]) -> None:
    parent, _, pairs = world(rules(1000, per="listener"))
    passed = run(pairs, now, 2000, (5, 5))
    assert passed <= 1000 + 2 * 1000, "the burst and two seconds"
    for load in ((5, 5), (5, 0), (1, 5)):
        passed += run(pairs, now, 1000, load)
        some = run(pairs, now, 5000, load)
        assert some == pytest.approx(5 * 1000, rel=0.02)
        passed += some
    for pair in pairs:
        pair.tell(now[0])
    (state,) = parent.states(now[0])
    assert (state.thing, state.admitted) == ("rocket", passed)


def test_the_parents_fill_survives_the_end_of_its_workers(now: list[int]) -> None:
    """A bucket that is used up stays so when the worker that has used it is replaced: at most its line is new."""
    parent, owner, pairs = world(rules(1000))
    run(pairs, now, 3000, (5, 0))
    successor = Pair(parent, owner, 1, parent.rules)
    assert run([successor, pairs[1]], now, 1000, (5, 0)) <= 1000 + 250 + 1


def test_those_without_room_in_a_workers_ledger_share_an_overflow_there_and_are_counted_as_such_here(now: list[int]) -> None:
    held = rules(100)
    parent, owner = Judge(held), LeaseOwner()
    parent.make_buckets_with(BucketFactory(2, None))
    pair = Pair(parent, owner, 1, held)
    pair.judge = Judge(held, 1)
    pair.judge.make_buckets_with(BucketFactory(2, Lease(2)))
    for topic in (b"t", b"u"):
        pair.key = pair.judge.key(pair.judge.origin("rocketmq", "rocket", "10.0.0.7", None), topic, rocketmq_topic(topic))
        pair.offer(500, now[0])
    pair.tell(now[0])
    states = {(state.overflow, state.thing): state.admitted for state in parent.states(now[0])}
    assert states == {(False, "t"): 25, (True, ""): 50}


def test_buckets_that_the_worker_has_forgotten_are_forgotten_here(now: list[int]) -> None:
    _, _, (pair, _other) = world(rules(1000))
    pair.offer(1, now[0])
    pair.tell(now[0])
    for bucket in pair.key.buckets:
        bucket.state = 1  # as the ledger marks what it lets go
    assert [pair.bucket_ids.forget(), pair.bucket_ids.forget()] == [[], [1]]
    assert repr(pair.bucket_ids) == "<BucketIds of 0 buckets, 0 changed>"


def test_deliveries_to_consumers_share_one_limit_too(now: list[int]) -> None:
    """Reservations ask for their wait alone; guards a bucket that never asked its owner for more when it was only reserved from."""
    held = RuleSet((Rule("c", Match(protocol="rocketmq", operation="consume"), limit=Limit(messages=Rate(200))),))
    _, _, pairs = world(held)
    for pair in pairs:
        origin = pair.judge.origin("rocketmq", "rocket", "10.0.0.7", None)
        pair.key = pair.judge.key(origin, b"c", rocketmq_topic(b"t"), b"g", "consume")

    waiting: dict[int, Request] = {}

    def second(place: int) -> int:
        """One consumer at that worker asks for 8 messages at a time, and again while it is kept waiting."""
        came = 0
        for _ in range(1000):
            request = waiting.pop(place, None)
            if request is None:
                request = Request(pairs[place].key, 1, 8, 800)
                request.reservation = Reservation(8, 800)
            pairs[place].judge.decide([request], now[0])
            if request.passed:
                came += 8
                pairs[place].judge.decide([request], now[0])  # its answer brought what was expected
            else:
                waiting[place] = request
            now[0] += MS
            if now[0] // MS % 10 == 0:
                for pair in pairs:
                    pair.exchange(now[0])
        return came

    for turn in range(3):
        second(turn % 2)
    assert sum(second(turn % 2) for turn in range(10)) == pytest.approx(2000, rel=0.02)


def test_a_group_of_topics_is_lent_to_workers_also_while_the_first_of_them_is_closed_by_itself() -> None:
    by_words = Rule("words", Match(protocol="amqp"), limit=Limit(messages=Rate(100)), routing_key_words=1, open_for_ns=0)
    parent, member = judge_of(by_words), judge_of(by_words)
    key = key_of(member, orders(routing_key=b"order.1"))
    ask(member, key, BEGIN)
    ref = leased_bucket(announcement(1, key.buckets[0]))
    parent.replace(RuleSet((by_words,), overrides={key.name: Override(messages=Rate(0))}), BEGIN)
    assert parent.lend(LeaseOwner(), [(ref, 10, 0)], 2, BEGIN) == [(10, 0)]
