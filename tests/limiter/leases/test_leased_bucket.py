"""One limit over many members: the bound on the sum, its accuracy while load moves, and what is lost when somebody ends."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limiter.algorithms.token_bucket import TokenBucket
from limiter.buckets.factory import BucketFactory
from limiter.leases.lease import Lease
from limiter.leases.leased_bucket import AGAIN_NS, IDLE_NS, LOST_NS, LeasedBucket
from limiter.leases.leased_tokens import SLICE_NS, WHOLE, LeasedTokens, credit_line
from limiter.leases.owner import LeaseOwner
from limiter.leases.sharing import FLEET_ROOM_NS, ROOM_NS, divide_limit, owner_limit
from limiter.limits import NEVER, SECOND, Limit, Rate
from limiter.rules.rule_set import Override
from support.models.asking import Match, RuleSet, ask, judge_of, key_of, per_topic, rocketmq_topic
from support.models.members import START, World

MS = 1_000_000


def messages(rate: int, burst: int | None = None) -> Limit:
    return Limit(messages=Rate(rate), messages_burst=burst)


# ---- parts -------------------------------------------------------------------------------------------------------------


def test_first_message_of_a_fresh_key_passes_without_the_owner() -> None:
    leased = LeasedBucket(messages(1), START, Lease(4))
    assert leased.available(1, 1, 0, START) == 1


@pytest.mark.parametrize(("burst", "members"), [(1000, 2), (1000, 4), (999, 7), (10, 2), (8, 4)])
def test_lines_and_the_owners_part_make_up_the_burst(burst: int, members: int) -> None:
    assert owner_limit(messages(50, burst), members).messages_burst == burst - members * credit_line(burst, members)


def test_burst_of_one_gives_every_member_one_token() -> None:
    assert [credit_line(1, 4), owner_limit(messages(1, 1), 4).messages_burst] == [1, 1]


def test_limit_of_zero_admits_nothing_and_asks_for_nothing() -> None:
    lease = Lease(2)
    leased = LeasedBucket(messages(0), START, lease)
    assert (leased.available(1, 1, 0, START), leased.wait_ns(1, 0, START)) == (0, NEVER)
    assert lease.asks(START + MS) == []


def test_nothing_is_asked_for_before_the_answer() -> None:
    lease = Lease(2)
    leased = LeasedBucket(messages(1000), START, lease)
    leased.take(leased.available(100, 1, 0, START), 1, 0)
    assert len(lease.asks(START + MS)) == 1
    assert lease.asks(START + 2 * MS) == []
    leased.grant(1, 0, START + 3 * MS)
    assert lease.asks(START + 4 * MS) == []  # that was short: not again at once
    assert len(lease.asks(START + 3 * MS + AGAIN_NS)) == 1


def test_a_peek_asks_the_owner_for_nothing_and_a_wait_does() -> None:
    lease = Lease(2)
    leased = LeasedBucket(messages(1000), START, lease)
    assert (leased.peek_ns(1, 0, START), lease.active) == (0, [])
    assert (leased.wait_ns(1, 0, START), lease.active) == (0, [leased])


def test_unanswered_ask_is_asked_again() -> None:
    lease = Lease(2)
    leased = LeasedBucket(messages(1000), START, lease)
    leased.take(leased.available(100, 1, 0, START), 1, 0)
    lease.asks(START + MS)
    assert len(lease.asks(START + MS + LOST_NS)) == 1


def test_idle_member_gives_back_what_it_has_and_asks_no_more() -> None:
    lease = Lease(2)
    leased = LeasedBucket(messages(1000), START, lease)
    leased.take(leased.available(1, 1, 0, START), 1, 0)
    ((_, wanted, _),) = lease.asks(START + MS)
    leased.grant(wanted, 0, START + 2 * MS)
    assert lease.asks(START + MS + IDLE_NS) == [(leased, 1 - wanted, 0)]
    assert (leased.listed, lease.active) == (False, [])


def test_oversized_request_passes_for_a_member_without_debt_and_is_paid_for() -> None:
    leased = LeasedBucket(messages(10, 10), START, Lease(2))
    assert leased.available(2, 50, 0, START) == 1
    leased.take(1, 50, 0)
    assert leased.available(1, 1, 0, START) == 0
    assert leased.wish(START + MS)[0] > 50


def test_a_run_of_oversized_requests_passes_as_its_requests_one_by_one_do() -> None:
    """Else one is refused although it would pass: a refusal by no rule."""
    leased, single = LeasedBucket(messages(8, 8), START, Lease(2)), LeasedBucket(messages(8, 8), START, Lease(2))  # lines of 2
    for each in (leased, single):
        each.grant(10, 0, START)
    assert leased.available(100, 5, 0, START) == 3  # the third goes into debt, as it may
    passed = 0
    while single.available(1, 5, 0, START):
        single.take(1, 5, 0)
        passed += 1
    assert passed == 3


def test_a_bucket_whose_place_another_has_taken_asks_for_nothing_any_more() -> None:
    """Its grants would go to the other one, so it would ask for the same debt for ever."""
    judge = judge_of(per_topic(10))
    lease = Lease(2)
    judge.make_buckets_with(BucketFactory(2, lease))
    key = key_of(judge, "orders")
    assert ask(judge, key, START, count=2).passed == 2
    judge.replace(RuleSet((per_topic(10, algorithm="pacing"),)), START + MS)
    ask(judge, key, START + MS)
    assert [each.bucket for each in judge.asks(lease, START + 2 * MS)] == key.buckets
    assert lease.active == [key.buckets[0].algorithm]


def test_breaker_never_waits_longer_than_the_line_needs() -> None:
    leased = LeasedBucket(messages(1000, 1000), START, Lease(2))  # a line of 250
    leased.take(250, 1, 0)
    assert leased.full_in_ns(1, 0, START) == 250 * MS


def test_change_keeps_debts_in_proportion() -> None:
    leased = LeasedBucket(messages(1000, 1000), START, Lease(2))
    leased.take(100, 1, 0)
    leased.change(messages(2000, 2000), START)
    assert leased.available(1000, 1, 0, START) == 300


@pytest.mark.parametrize(
    ("old", "new", "owed"),
    [
        (messages(100, 8), messages(100, 1000), 2000),  # 20 s
        (messages(100, 1000), messages(100, 8), 2000),
        (messages(100), messages(400), 2000),  # 5 s: the same number
        (messages(400), messages(100), 500),  # 5 s: the same time
    ],
)
def test_a_debt_beyond_the_line_is_changed_as_a_buckets(old: Limit, new: Limit, owed: int) -> None:
    leased = LeasedBucket(old, START, Lease(4))
    leased.take(1, credit_line(old.messages_capacity(), 4) + 2000, 0)
    leased.change(new, START)
    leased.grant(owed - 1, 0, START)
    assert leased.available(1, 0, 0, START) == 0
    leased.grant(1, 0, START)
    assert leased.available(1, 0, 0, START) == 1


def test_a_line_that_is_spent_is_spent_after_a_change() -> None:
    leased = LeasedBucket(messages(100, 4), START, Lease(4))
    leased.take(1, 1, 0)  # the line, though it is more than its part of the burst
    leased.change(messages(100, 400), START)
    leased.grant(1, 0, START)
    assert leased.available(10, 1, 0, START) == 1


@pytest.mark.parametrize("algorithm", ["token_bucket", "warm_up", "pacing"])
def test_a_live_change_that_moves_a_topic_to_another_bucket_takes_its_debt_along(algorithm: str) -> None:
    rules = (per_topic(100, match=Match(protocol="rocketmq", client="10.0.0.0/8"), algorithm=algorithm, open_for_ns=0),)
    judge, lease = judge_of(*rules), Lease(2)
    judge.make_buckets_with(BucketFactory(2, lease))
    key = key_of(judge, "orders")
    ask(judge, key, START, messages=3000)
    owed = lease.asks(START + MS)[0][1]
    assert owed > 2900
    judge.replace(RuleSet(rules, overrides={rocketmq_topic(b"orders"): Override(messages=Rate(100))}), START + MS)
    ask(judge, key, START + MS)
    assert sum(wanted for _, wanted, _ in lease.asks(START + 2 * MS)) == pytest.approx(owed, rel=0.02)


def test_fraction_divides_rates_exactly() -> None:
    assert divide_limit(Limit(messages=Rate(10), bytes=Rate(1000)), 3) == Limit(
        messages=Rate(10, 3 * SECOND), bytes=Rate(1000, 3 * SECOND), messages_burst=3, bytes_burst=333
    )


def test_owner_shares_what_it_is_short_of() -> None:
    owner = LeaseOwner()
    bucket = TokenBucket(messages(1000, 100), START)
    assert owner.grant("k", bucket, 0, 400, 0, START) == (100, 0)
    now = START + 20 * MS
    assert owner.grant("k", bucket, 1, 400, 0, now) == (10, 0)  # of 20: the other is short too


def test_owner_takes_back() -> None:
    owner = LeaseOwner()
    bucket = TokenBucket(messages(1000, 100), START)
    owner.grant("k", bucket, 0, 100, 0, START)
    owner.grant("k", bucket, 0, -40, 0, START)
    assert owner.grant("k", bucket, 1, 100, 0, START) == (40, 0)


def test_owner_forgets_members_that_are_short_no_more() -> None:
    owner = LeaseOwner()
    bucket = TokenBucket(messages(1000, 100), START)
    owner.grant("k", bucket, 0, 400, 0, START)
    owner.expire(START + SECOND)
    assert repr(owner) == "<LeaseOwner granted=0 refused=1 short=0>"


# ---- the sum -----------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    rate=st.integers(1, 20_000),
    burst=st.integers(1, 20_000),
    members=st.integers(1, 5),
    every=st.integers(1, 30),
    late=st.integers(1, 60),
    schedule=st.lists(st.tuples(st.integers(1, 60), st.lists(st.integers(0, 400), min_size=5, max_size=5)), min_size=1, max_size=12),
)
def test_sum_over_members_never_exceeds_burst_and_rate(
    rate: int, burst: int, members: int, every: int, late: int, schedule: list[tuple[int, list[int]]]
) -> None:
    """In every window that begins with a step: at most burst + rate * T, and a token for each member whose line is rounded up.

    Of a small burst what comes in between two asks takes the place of the owner's half.
    """
    world = World(messages(rate, burst), members, every, late)
    most = max(burst, max(1, rate * ROOM_NS // SECOND) + members * credit_line(burst, members))
    lowest = 0  # of admitted - rate * T, over all beginnings of windows
    for milliseconds, offers in schedule:
        for _ in range(milliseconds):
            world.step(offers[:members])
            drift = sum(world.admitted) * 1000 - rate * ((world.now - START) // MS)
            assert drift - lowest <= (most + 1) * 1000 + rate  # a window holds parts of a token and of a step
            lowest = min(lowest, drift)


@pytest.mark.parametrize("rate", [50, 1000, 20_000])
@pytest.mark.parametrize("members", [2, 5])
def test_sum_is_within_two_percent_while_the_load_moves_every_second(rate: int, members: int) -> None:
    world = World(messages(rate), members)
    offer = 3 * rate // 1000 + 1
    moving = [[offer if member == turn % members else 0 for member in range(members)] for turn in range(20)]
    for offers in moving[:10]:  # the burst is used up
        world.run(1000, offers)
    admitted = sum(world.run(1000, offers) for offers in moving[10:])
    assert admitted == pytest.approx(10 * rate, rel=0.02)


@pytest.mark.parametrize(("every", "room_ns"), [(10, ROOM_NS), (50, FLEET_ROOM_NS)])
@pytest.mark.parametrize("burst", [20, 100, 1000])
@pytest.mark.parametrize("members", [1, 3, 20])
def test_a_small_burst_costs_nothing_of_the_rate(every: int, room_ns: int, burst: int, members: int) -> None:
    """Whether one member has all of the load, or three."""
    world = World(messages(1000, burst), members, every, 2, room_ns=room_ns)
    for loaded in (1, min(3, members)):
        offers = [3] * loaded + [0] * (members - loaded)
        world.run(2000, offers)
        assert world.run(10_000, offers) == pytest.approx(10_000, rel=0.02)


@pytest.mark.parametrize(("every", "late"), [(100, 100), (150, 150), (300, 20), (400, 2)])
def test_answers_that_take_long_cost_nothing_of_the_rate(every: int, late: int) -> None:
    """A distant Redis, a machine that is busy: what is asked for lasts until the answer to the next ask."""
    world = World(messages(1000), 3, every, late, room_ns=FLEET_ROOM_NS)
    world.run(3000, [3, 0, 0])
    assert world.run(10_000, [3, 0, 0]) == pytest.approx(10_000, rel=0.02)


def test_bytes_are_shared_like_messages() -> None:
    world = World(Limit(bytes=Rate(1_000_000)), 2)
    for turn in range(3):
        world.run(1000, [10, 0] if turn % 2 else [0, 10], size=500)
    admitted = sum(world.run(1000, [10, 0] if turn % 2 else [0, 10], size=500) for turn in range(10))
    assert admitted * 500 == pytest.approx(10_000_000, rel=0.02)


def test_unused_share_is_lent() -> None:
    """One member's load alone gets the whole limit; a second one that comes has a third of it at least within a second."""
    world = World(messages(1000), 2)
    world.run(3000, [3, 0])
    assert world.run(2000, [3, 0]) == pytest.approx(2000, rel=0.02)
    world.run(1000, [3, 3])
    before = list(world.admitted)
    world.run(4000, [3, 3])
    assert min(now - then for now, then in zip(world.admitted, before, strict=True)) >= 4000 / 3


def test_demand_below_the_limit_is_never_refused() -> None:
    world = World(messages(1000), 2)
    assert world.run(5000, [1, 0]) == 5000
    assert world.run(5000, [0, 1]) == 5000


def test_member_that_ends_takes_a_slice_and_a_debt_at_most() -> None:
    """Killed every half second, ten times: what is admitted differs by no more than a slice down, and a line up, for each."""
    world = World(messages(1000), 2)
    world.run(3000, [2, 2])
    admitted = 0
    for _ in range(10):
        admitted += world.run(500, [2, 2])
        world.kill(0)
    slice_, line = 1000 * SLICE_NS // SECOND, credit_line(1000, 2)
    assert 5000 - 10 * slice_ <= admitted <= 5000 + 10 * line + 1


# ---- without an owner --------------------------------------------------------------------------------------------------


def test_without_its_owner_each_keeps_its_last_share() -> None:
    world = World(messages(1000), 2)
    world.run(6000, [5, 1])  # short: the second gets a part of it
    before = list(world.admitted)
    world.run(2000, [5, 1])
    held = [now - then for now, then in zip(world.admitted, before, strict=True)]
    world.cut = True
    for lease in world.leases:
        lease.owner_lost(world.now)
    world.run(1000, [5, 1])  # what they had in hand is used up
    before = list(world.admitted)
    alone = world.run(4000, [5, 1])
    assert 0.85 * 4000 <= alone <= 1.01 * 4000  # shares are measured
    shares = [now - then for now, then in zip(world.admitted, before, strict=True)]
    assert shares == [pytest.approx(2 * each, rel=0.25) for each in held]


def test_losing_the_owner_gives_no_burst() -> None:
    world = World(messages(1000), 2)
    world.run(4000, [5, 5])
    world.cut = True
    for lease in world.leases:
        lease.owner_lost(world.now)
    in_hand = 2 * 1000 * SLICE_NS // SECOND
    assert world.run(100, [50, 50]) <= in_hand + 100


def test_idle_member_that_loses_its_owner_has_an_even_share() -> None:
    world = World(messages(1000), 4)
    world.run(1000, [0, 0, 0, 0])
    for lease in world.leases:
        lease.owner_lost(world.now)
    world.cut = True
    world.run(1000, [2, 0, 0, 0])
    assert world.run(4000, [2, 0, 0, 0]) == pytest.approx(1000, rel=0.02)


def test_wait_is_exact_without_an_owner() -> None:
    lease = Lease(2)
    leased = LeasedBucket(messages(1000, 1000), START, lease)
    lease.owner_lost(START)
    leased.take(leased.available(250, 1, 0, START), 1, 0)
    wait = leased.wait_ns(3, 0, START)
    assert [leased.available(1, 3, 0, START + wait - 1), leased.available(1, 3, 0, START + wait)] == [0, 1]


def test_sum_recovers_when_the_owner_is_back() -> None:
    world = World(messages(1000), 2)
    world.run(3000, [5, 5])
    world.cut = True
    for lease in world.leases:
        lease.owner_lost(world.now)
    world.run(3000, [5, 5])
    world.cut = False
    for lease in world.leases:
        lease.owner_back()
    world.run(2000, [5, 5])  # the owner's bucket has filled meanwhile: that burst is given once
    assert world.run(5000, [5, 5]) == pytest.approx(5000, rel=0.02)


def test_the_share_to_go_on_with_is_what_the_last_seconds_brought() -> None:
    tokens = LeasedTokens(Rate(100), 100, 10, START)
    for second in range(1, 11):
        tokens.grant(50)
        tokens.measure(START + second * SECOND)
    assert 0.45 * WHOLE <= tokens.alone(Lease(10)) <= 0.55 * WHOLE, "half of the rate, where a tenth would be its part"
    tokens.measure(START + 60 * SECOND)
    assert tokens.alone(Lease(10)) == WHOLE // 10, "nothing for a minute"


def test_what_came_of_the_rate_is_measured_after_the_clock_was_set_back() -> None:
    """For an hour nothing was measured, and without its owner a member went on with what it had long ago."""
    shares = []
    for began in (3600 * SECOND, 0):
        tokens = LeasedTokens(Rate(100), 100, 4, began)
        tokens.measure(0)  # the clock was an hour ahead, or was not
        for second in range(1, 6):
            tokens.grant(80)
            tokens.measure(second * SECOND)
        shares.append(tokens.alone(Lease(4)))
    assert shares[0] == shares[1] > WHOLE // 2
