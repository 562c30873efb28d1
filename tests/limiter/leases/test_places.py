"""Requests in flight at several members, under one limit: never more, none idle, and what becomes of places whose holder is gone."""

from __future__ import annotations

import pytest

from limiter.leases.lease import Lease
from limiter.leases.leased_places import concurrency_places
from limiter.leases.lent_places import SILENT_NS, LentPlaces
from limiter.leases.owner import LeaseOwner
from limiter.leases.sharing import member_limit
from limiter.limits import SECOND, Limit, Rate
from support.models.places import MS, START, PlacesWorld

LATENCY_MS = 20


def at_most(places: int) -> Limit:
    return Limit(concurrent=places)


def in_one_process(places: int, milliseconds: int) -> int:
    """How many requests pass a flooded limit."""
    return places * milliseconds // LATENCY_MS


@pytest.mark.parametrize(("members", "every"), [(3, 10), (2, 50)], ids=["workers", "gateways"])
@pytest.mark.parametrize("places", [6, 60, 1000])
def test_the_sum_is_what_one_process_has_in_flight(members: int, every: int, places: int) -> None:
    """A flood at all of them, then at one, then a load at the first that needs little, and a flood at the others."""
    world = PlacesWorld(at_most(places), members, every)
    flood = places // 10 + 1
    for offers in ([flood] * members, [0] * (members - 1) + [flood]):
        world.run(1000, offers)
        assert sum(world.run(3000, offers)) == pytest.approx(in_one_process(places, 3000), rel=0.02)
    assert world.most <= places + members - 1, "each begins on credit, once"
    world.run(1000, [0] + [flood] * (members - 1))
    little = world.run(3000, [1 if places >= 60 else 0] + [flood] * (members - 1))
    assert sum(little) == pytest.approx(in_one_process(places, 3000), rel=0.02)
    assert little[0] == (pytest.approx(3000, rel=0.05) if places >= 60 else 0)


def test_demand_below_the_limit_is_refused_for_a_round_trip_at_most() -> None:
    world = PlacesWorld(at_most(100), 3)
    world.run(100, [1, 1, 1])
    assert world.run(2000, [1, 1, 1]) == [2000, 2000, 2000]


@pytest.mark.parametrize("every", [10, 50])
def test_where_there_are_fewer_places_than_members_all_take_turns(every: int) -> None:
    """Nothing passes on credit there: the limit is never exceeded."""
    world = PlacesWorld(at_most(1), 3, every)
    passed = world.run(30_000, [1, 1, 1])
    assert world.most == 1
    assert min(passed) >= 0.25 * sum(passed)
    assert sum(passed) >= 0.75 * in_one_process(1, 30_000), "a place that goes round is idle on its way"


def test_turns_are_for_those_too_that_need_little() -> None:
    """Four modest members beside four that flood four places. Until November 2026 the modest ones were refused for ever."""
    places, needs = LentPlaces(at_most(4), START), {1: 1, 2: 1, 3: 1, 4: 1, 5: 4, 6: 4, 7: 4, 8: 4}
    held, rounds = dict.fromkeys(needs, 0), dict.fromkeys(needs, 0)
    for round_ in range(20 * 60):
        for member, needed in needs.items():
            held[member] = places.lend(member, needed, held[member], START + round_ * 50 * MS)
            rounds[member] += held[member]
    assert min(rounds.values()) >= 0.4 * 20 * 60, "half of the time each"


def test_places_of_a_member_that_has_gone_silent_are_free() -> None:
    """What it gave back while no rule was in force for the bucket was heard by nobody."""
    owner, places = LeaseOwner(), LentPlaces(at_most(10), START)
    for member in (1, 2):
        owner.grant("k", places, member, 10, 1, START)
    held, now = {1: 1, 2: 1}, START
    for _ in range(10):
        now += 50 * MS
        for member in (1, 2):
            held[member] = owner.grant("k", places, member, 10, held[member], now)[0]
    assert held == {1: 5, 2: 5}
    last = now
    while held[1] < 10:
        now += 50 * MS
        held[1] = owner.grant("k", places, 1, 10, held[1], now)[0]
        assert now - last <= SILENT_NS + 100 * MS
    owner.expire(now + SILENT_NS)
    assert not places.is_full(now)
    owner.expire(now + SILENT_NS + 1)
    assert places.is_full(now)


def test_tokens_that_are_given_back_to_a_limit_that_counts_places_now_are_none() -> None:
    """The limit's algorithm was changed while its member's last word was on the way."""
    places = LentPlaces(at_most(10), START)
    assert places.lend(1, -50, 0, START) == 0
    assert places.is_full(START)


@pytest.mark.parametrize(("every", "late"), [(10, 2), (50, 5)], ids=["workers", "gateways"])
def test_a_burst_after_an_idle_second_waits_for_the_owner_and_is_not_refused(every: int, late: int) -> None:
    """Ten in one batch each second, of 64 places: one passes on credit. Until November 2026 the others were refused."""
    world = PlacesWorld(at_most(64), 2, every, late)
    for second in range(20):
        burst = [10, 0] if second % 2 else [0, 10]
        world.run(1, burst, latency_ms=5)
        assert world.in_flight() == 1
        world.run(120, [0, 0], latency_ms=5)
        assert sum(world.passed) == 10 * (second + 1), "a round trip later"
        world.run(879, [0, 0])
    assert (world.refused, world.passed) == (0, [100, 100])


@pytest.mark.parametrize("gap", [120, 200, 1000])
@pytest.mark.parametrize(("places", "members"), [(2, 4), (1, 2)])
@pytest.mark.parametrize("every", [10, 50])
def test_slow_traffic_passes_where_there_are_fewer_places_than_members(every: int, places: int, members: int, gap: int) -> None:
    """One request at a time, and nothing else in flight: at one member, then at each in turn."""
    world = PlacesWorld(at_most(places), members, every)
    for number in range(20):
        at = 0 if number < 10 else number % members
        world.run(1, [1 if member == at else 0 for member in range(members)], latency_ms=5)
        world.run(gap - 1, [0] * members, latency_ms=5)
    world.run(200, [0] * members)
    assert (world.refused, sum(world.passed)) == (0, 20)
    assert world.most <= places


def test_what_the_owner_has_refused_is_refused_at_once() -> None:
    """In a flood requests wait for one round trip, when it begins; at a full limit none does."""
    world = PlacesWorld(at_most(6), 3)
    world.run(300, [5, 5, 5])
    assert world.refused > 0
    for _ in range(50):
        world.run(20, [5, 5, 5])
        assert sum(count for entries in world.held for _, _, count in entries) == 0
    assert world.most <= 6 + 2


def test_nothing_waits_for_an_owner_that_is_gone_or_hears_nothing() -> None:
    world = PlacesWorld(at_most(64), 2)
    world.cut = True
    world.run(1, [10, 0], latency_ms=500)
    assert (world.refused, len(world.held[0])) == (0, 1)
    world.run(300, [0, 0])
    assert (world.refused, world.passed, world.held) == (9, [1, 0], [[], []])
    for lease in world.leases:
        lease.owner_lost(world.now)
    world.run(1, [0, 40])
    assert (world.passed[1], world.held) == (32, [[], []])


def test_an_idle_member_gives_everything_back() -> None:
    world = PlacesWorld(at_most(30), 3)
    world.run(1000, [3, 3, 3])
    world.run(1000, [0, 0, 0])
    assert world.bucket.is_full(world.now)
    assert [lease.active for lease in world.leases] == [[], [], []]


def test_places_of_a_member_that_ends_are_free() -> None:
    """Its connections are closed, and so its requests are over."""
    world = PlacesWorld(at_most(30), 3)
    world.run(2000, [3, 3, 3])
    world.kill(2)
    world.run(500, [3, 3, 0])
    assert sum(world.run(2000, [3, 3, 0])) == pytest.approx(in_one_process(30, 2000), rel=0.02)
    assert world.most <= 30 + 2


def test_a_lower_limit_takes_effect_as_answers_come_and_a_higher_one_at_once() -> None:
    world = PlacesWorld(at_most(60), 3)
    world.run(1000, [5, 5, 5])
    for places in (12, 90):
        world.bucket.change(at_most(places), world.now)
        for member in world.members:
            member.change(at_most(places), world.now)
        world.run(300, [5, 5, 5])
        world.most = 0
        assert sum(world.run(2000, [9, 9, 9])) == pytest.approx(in_one_process(places, 2000), rel=0.02)
        assert world.most <= places


def test_an_owner_that_has_forgotten_all_learns_from_its_members_who_holds_what() -> None:
    world = PlacesWorld(at_most(60), 3)
    world.run(1000, [5, 5, 5])
    world.bucket = LentPlaces(at_most(60), world.now)
    world.run(1000, [5, 5, 5])
    assert world.most <= 60 + 2
    assert sum(world.run(1000, [5, 5, 5])) == pytest.approx(in_one_process(60, 1000), rel=0.02)


def test_without_an_owner_each_goes_on_with_what_it_holds_and_with_one_place_at_least() -> None:
    world = PlacesWorld(at_most(60), 3)
    world.run(1000, [5, 0, 0])
    world.cut = True
    for lease in world.leases:
        lease.owner_lost(world.now)
    passed = world.run(5 * 60_000 // 100, [5, 5, 0])
    assert passed[0] == pytest.approx(in_one_process(60, 3000), rel=0.02)
    assert passed[1] == pytest.approx(in_one_process(20, 3000), rel=0.02), "an even part: it was idle"
    world.cut = False
    for lease in world.leases:
        lease.owner_back()
    world.run(1000, [5, 5, 0])
    world.most = 0
    assert sum(world.run(2000, [5, 5, 0])) == pytest.approx(in_one_process(60, 2000), rel=0.02)
    assert world.most <= 60


def test_places_of_an_outage_are_of_no_use_to_a_member_that_was_idle_when_it_ended() -> None:
    """Their owner has forgotten it, and has lent them to others."""
    lease = Lease(2, parted=True)
    member = concurrency_places(at_most(10), START, lease)
    member.take(member.available(1, 1, 0, START), 1, 0)
    assert lease.asks(START + MS) == [(member, 1, 1)]
    member.grant(10, 0, START + 2 * MS)
    lease.owner_lost(START + 3 * MS)
    slots = member.slots()
    assert slots is not None
    slots.taken = 0
    assert member.available(20, 1, 0, START + SECOND) == 10
    assert lease.asks(START + 2 * SECOND) == []
    assert member.available(20, 1, 0, START + 3 * SECOND) == 10, "still without an owner"
    assert lease.asks(START + 4 * SECOND) == []
    lease.owner_back()
    assert lease.asks(START + 5 * SECOND) == []
    assert member.available(20, 1, 0, START + 3600 * SECOND) == 1


def test_an_answer_that_comes_after_all_was_given_back_is_of_no_use() -> None:
    lease = Lease(2)
    member = concurrency_places(at_most(10), START, lease)
    assert member.available(1, 1, 0, START) == 1  # on credit
    assert lease.asks(START + MS) == [(member, 1, 0)]
    member.grant(8, 0, START + 2 * MS)
    assert lease.asks(START + 200 * MS) == [(member, 0, 8)]
    member.grant(8, 0, START + 201 * MS)
    assert member.available(5, 1, 0, START + 202 * MS) == 1


def test_a_rate_beside_is_divided() -> None:
    limit = Limit(messages=Rate(300), concurrent=10)
    assert member_limit(limit, "concurrency", 3) == Limit(messages=Rate(300, 3 * 10**9), messages_burst=100, concurrent=10)


def test_what_an_adaptive_limit_finds_at_three_workers_keeps_the_queue_short() -> None:
    """A broker that serves 40 at once, of which each worker sees a part. Until November 2026 each probed alone, and took the others'
    queue for the broker's own latency: after a minute that was four times what it is.
    """
    world = PlacesWorld(at_most(1000), 3, algorithm="adaptive")
    in_flight = passed = 0
    for second in range(60):
        for _ in range(1000):
            world.step([3, 3, 3], max(LATENCY_MS, LATENCY_MS * world.in_flight() // 40))
            in_flight += world.in_flight() if second >= 40 else 0
        passed = sum(world.passed) if second < 40 else passed
    assert in_flight / 20_000 <= 2 * 40
    assert sum(world.passed) - passed == pytest.approx(20 * 40 * 1000 / LATENCY_MS, rel=0.02)
