"""What a fleet asks of slices beyond workers: members that come and go, and that lose their owner one by one."""

from __future__ import annotations

import gc

import pytest

from limiter.buckets.bucket import Bucket
from limiter.buckets.factory import BucketFactory
from limiter.judge import Judge
from limiter.leases.lease import Lease
from limiter.leases.leased_bucket import IDLE_NS, LeasedBucket
from limiter.limits import SECOND, Lag, Limit, Rate
from limiter.request import Request
from limiter.rules.errors import RuleError
from limiter.rules.match import Match
from limiter.rules.rule import Rule
from limiter.rules.rule_set import RuleSet
from limiter.topics import amqp_topic
from support.models.asking import ask, key_of
from support.models.members import World

MS = 1_000_000
START = 10**12


def messages(rate: int) -> Limit:
    return Limit(messages=Rate(rate))


def fleet_judge(*rules: Rule, members: int = 3) -> tuple[Judge, Lease]:
    judge, lease = Judge(RuleSet(rules), 1000), Lease(members, parted=True)
    judge.join_fleet(lease)
    return judge, lease


def grant_all(leased: LeasedBucket, lease: Lease, now: int) -> int:
    """Everything that is wished for; how much that was."""
    granted = 0
    for asked, wanted, _ in lease.asks(now):
        if asked is leased and wanted > 0:
            leased.grant(wanted, 0, now)
            granted += wanted
    return granted


def test_a_line_is_as_long_as_there_are_few_members() -> None:
    lease = Lease(1)
    leased = LeasedBucket(messages(1200), START, lease)
    assert leased.available(10_000, 1, 0, START) == 600
    lease.members = 3
    lease.asks(START + MS)
    assert leased.available(10_000, 1, 0, START + MS) == 200
    lease.members = 2
    lease.asks(START + 2 * MS)
    assert leased.available(10_000, 1, 0, START + 2 * MS) == 300


def test_an_idle_bucket_learns_of_new_members_when_it_is_used() -> None:
    lease = Lease(1)
    leased = LeasedBucket(messages(1200), START, lease)
    lease.members = 6
    assert leased.available(10_000, 1, 0, START + SECOND) == 100


def passed_alone(lease: Lease, leased: LeasedBucket, now: int, milliseconds: int = 4000) -> int:
    """How many of an endless flood pass without an owner."""
    passed = 0
    for n in range(milliseconds):
        count = leased.available(100, 1, 0, now + n * MS)
        leased.take(count, 1, 0)
        passed += count
    return passed


@pytest.mark.parametrize(("parted", "per_second"), [(True, 992), (False, 1000)])
def test_a_member_that_had_all_of_the_limit_goes_on_with_nearly_all_where_members_may_be_parted(*, parted: bool, per_second: int) -> None:
    lease = Lease(4, parted=parted)
    leased = LeasedBucket(messages(1000), START, lease)
    now = START
    for _ in range(10_000):
        leased.take(leased.available(1, 1, 0, now), 1, 0)
        now += MS
        if now // MS % 20 == 0:
            grant_all(leased, lease, now)
    lease.owner_lost(now)
    assert passed_alone(lease, leased, now) == pytest.approx(4 * per_second, abs=200)


@pytest.mark.parametrize("algorithm", ["token_bucket", "pacing", "warm_up"])
@pytest.mark.parametrize("offers", [(5, 5), (5, 0), (50, 1), (1, 1)])
def test_five_minutes_without_their_owner_each_gateway_stays_within_two_percent_of_its_last_share(
    algorithm: str, offers: tuple[int, int]
) -> None:
    world = World(Limit(messages=Rate(2000), warm_up_ns=SECOND), 2, every=50, algorithm=algorithm)
    for lease in world.leases:
        lease.parted = True
    world.run(8000, list(offers))
    before = list(world.admitted)
    world.run(8000, list(offers))
    shares = [(now - then) / 8 for now, then in zip(world.admitted, before, strict=True)]
    world.lose_owner()
    for step in range(20_000 + 300_000 // 10):  # lines and what was in hand are spent first
        if step == 20_000:
            before = list(world.admitted)
        world.now += MS if step < 20_000 else 10 * MS
        for member, leased in enumerate(world.leased):
            passed = leased.available(1000, 1, 0, world.now)
            leased.take(passed, 1, 0)
            world.admitted[member] += passed
    alone = [(now - then) / 300 for now, then in zip(world.admitted, before, strict=True)]
    assert alone == pytest.approx(shares, rel=0.02, abs=8)  # a 128th of an even share
    assert sum(alone) <= 2000 * 1.005


def test_a_members_earlier_grants_are_no_part_of_its_share_later() -> None:
    lease = Lease(4, parted=True)
    leased = LeasedBucket(messages(1000), START, lease)
    now = START
    for _ in range(3000):
        leased.take(leased.available(1, 1, 0, now), 1, 0)
        now += MS
        if now // MS % 20 == 0:
            grant_all(leased, lease, now)
    for _ in range(20):
        now += IDLE_NS
        grant_all(leased, lease, now)
    lease.owner_lost(now)
    assert passed_alone(lease, leased, now) == pytest.approx(125 + 4 * 2, abs=15)  # its line, and a 128th of a quarter


@pytest.mark.parametrize("back_ms", [60, 300, 900, 3000])
def test_an_outage_soon_after_a_long_one_changes_no_share(back_ms: int) -> None:
    """Redis comes back for a moment. Until November 2026 the time without it counted as time in which nothing came."""
    lease = Lease(2, parted=True)
    leased = LeasedBucket(messages(1000), START, lease)
    now = START
    for milliseconds in (5000, back_ms):
        for _ in range(milliseconds):
            leased.take(leased.available(5, 1, 0, now), 1, 0)
            now += MS
            if now // MS % 20 == 0:
                for _, wanted, _ in lease.asks(now):
                    leased.grant(min(wanted, 20), 0, now)
        lease.owner_lost(now)
        assert passed_alone(lease, leased, now, 20_000) == pytest.approx(20_000, rel=0.05)
        now += 20 * SECOND
        lease.owner_back()


def test_without_an_owner_only_what_is_in_use_is_listed() -> None:
    lease = Lease(2)
    lease.owner_lost(START)
    buckets = [LeasedBucket(messages(10), START, lease) for _ in range(50)]
    for bucket in buckets:
        bucket.available(1, 1, 0, START)
    assert lease.asks(START + MS) == []
    assert len(lease.active) == 50
    buckets[7].available(1, 1, 0, START + 2 * IDLE_NS)
    lease.asks(START + 2 * IDLE_NS)
    assert lease.active == [buckets[7]]


# ---- which rules are shared -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "shared"),
    [
        (Rule("r", limit=messages(10)), True),
        (Rule("r", per="client", limit=messages(10), mode="shadow"), True),
        (Rule("r", per="client", limit=messages(10)), True),
        (Rule("r", limit=messages(10), scope="fleet"), True),
        (Rule("r", limit=messages(10), scope="gateway"), False),
        (Rule("r", limit=messages(10), per="connection"), False),
        (Rule("r", limit=messages(10), per="listener"), False),
        (Rule("r", limit=messages(10), algorithm="pacing", action="delay"), True),
        (Rule("r", limit=messages(10), algorithm="warm_up"), True),
        (Rule("r", limit=Limit(messages=Rate(10), concurrent=9), algorithm="concurrency"), True),
    ],
)
def test_a_fleet_shares_each_limit_unless_it_is_each_gateways_own(rule: Rule, *, shared: bool) -> None:
    judge, lease = fleet_judge(rule)
    ask(judge, key_of(judge, "orders"), START, count=5)
    assert bool(lease.asks(START + MS)) == shared


def test_a_limit_that_is_not_shared_is_whole_at_each_gateway() -> None:
    judge, _ = fleet_judge(Rule("r", limit=messages(10), scope="gateway"))
    assert ask(judge, key_of(judge, "orders"), START, count=50).passed == 10


PLACES = Rule("all", limit=Limit(concurrent=10), algorithm="concurrency")
ADAPTIVE = Rule("all", limit=Limit(concurrent=10), algorithm="adaptive")
BYTES = Rule("all", limit=Limit(bytes=Rate(10_000)), open_for_ns=0)


@pytest.mark.parametrize(
    ("before", "after", "answer"), [(PLACES, BYTES, (10, 10**15)), (BYTES, PLACES, (0, 10_000)), (PLACES, ADAPTIVE, (10, 0))]
)
def test_an_answer_that_comes_after_a_change_of_the_algorithm_is_of_no_use(before: Rule, after: Rule, answer: tuple[int, int]) -> None:
    """An answer about places has the owner's clock where tokens have bytes."""
    judge, lease = fleet_judge(before, members=1)
    key = key_of(judge, "orders")
    ask(judge, key, START, size=100)
    asked = judge.asks(lease, START + MS)
    assert [each.bucket for each in asked] == key.buckets
    judge.replace(RuleSet((after,)), START + 2 * MS)
    ask(judge, key, START + 2 * MS, size=100)
    slots = key.buckets[0].slots
    was = (repr(key.buckets[0].algorithm), slots and slots.lent)
    judge.take_grants([(asked[0], *answer)], START + 3 * MS)
    assert (repr(key.buckets[0].algorithm), slots and slots.lent) == was


@pytest.mark.parametrize("workers", [1, 4])
def test_a_rate_beside_requests_in_flight_is_each_gateways_and_its_workers_divide_it(workers: int) -> None:
    rule = Rule("r", limit=Limit(messages=Rate(100), concurrent=10, at_least=8), algorithm="adaptive")
    factory = BucketFactory(workers, Lease(workers) if workers > 1 else None, Lease(2 * workers, parted=True))
    limit = factory.limit(rule, apart=False)
    assert (limit.messages, limit.concurrent, limit.at_least) == (Rate(100, workers * SECOND), 10, 8 // workers)


def test_another_scope_on_a_reload_keeps_the_fill() -> None:
    judge, lease = fleet_judge(Rule("r", limit=messages(100), open_for_ns=0))
    key = key_of(judge, "orders")
    assert ask(judge, key, START, count=500).passed == 16  # its line: a sixth of the burst
    judge.replace(RuleSet((Rule("r", limit=messages(100), scope="gateway", open_for_ns=0),)), START)
    assert ask(judge, key, START, count=500).passed == 0
    judge.replace(RuleSet((Rule("r", limit=messages(100), open_for_ns=0),)), START)
    assert ask(judge, key, START, count=500).passed == 0
    assert len(lease.asks(START + MS)) >= 1


@pytest.mark.parametrize(
    "rule",
    [
        {"per": "connection", "limit": messages(1)},
        {"per": "listener", "limit": messages(1)},
        {"algorithm": "lag", "limit": Limit(messages=Rate(9), lag=Lag(10, Rate(1), group="g")), "match": Match(protocol="rocketmq")},
    ],
)
def test_scope_fleet_is_refused_for_limits_that_cannot_be_shared(rule: dict[str, object]) -> None:
    with pytest.raises(RuleError, match="each gateway's own"):
        Rule("r", **{"match": Match(), "scope": "fleet"} | rule)  # type: ignore[arg-type]


def test_buckets_of_names_that_were_used_once_are_freed_without_a_collection() -> None:
    """Until November 2026 a bucket and its part of the fleet's knew each other for good: 63,000 that were let go took 60 MB."""
    judge, lease = fleet_judge(Rule("all", Match(protocol="amqp"), limit=messages(1000)), members=2)
    origin = judge.origin("amqp", "rabbit", "10.0.0.7", None)
    gc.collect()
    gc.disable()
    try:
        before = sum(isinstance(each, Bucket) for each in gc.get_objects())
        now = START
        for number in range(5000):
            name = b"reply-%d" % number
            request = Request(judge.key(origin, name, amqp_topic(b"/", b"", name)), 1, 1, 10)
            judge.decide([request], now)
            now += MS
            if number % 20 == 0:
                judge.take_grants([(each, max(0, each.messages), max(0, each.size)) for each in judge.asks(lease, now)], now)
        del request
        for _ in range(5):
            now += 2 * IDLE_NS
            judge.take_grants([(each, max(0, each.messages), max(0, each.size)) for each in judge.asks(lease, now)], now)
        assert lease.active == []
        assert judge.usage()["levels"] <= 1000
        assert sum(isinstance(each, Bucket) for each in gc.get_objects()) - before <= judge.usage()["levels"] + 300
    finally:
        gc.enable()
