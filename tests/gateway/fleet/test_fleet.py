"""Gateways that share one limit: what all of them admit together, with Redis and without, on a clock of the test's own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from gateway.fleet.fleet import Fleet
from gateway.fleet.outages import REASONS
from gateway.telemetry.fleet_metrics import fleet_lines
from limiter.algorithms.slots import ANSWERED
from limiter.in_flight import Ending, end
from limiter.judge import Judge
from limiter.limits import SECOND, Limit, Rate
from limiter.request import Request
from limiter.rules.rule_set import Rule, RuleSet
from support.brokers.redis_server import RedisServer
from support.expositions import families
from support.models.asking import ask, key_of
from support.models.fleets import MS, START, FleetWorld, clock_us, fleet_settings

pytestmark = pytest.mark.slow  # gateways and a Redis for each

NAMES = count()
World = Callable[..., FleetWorld]


def limited(rate: int, burst: int | None = None, **more: object) -> Rule:
    return Rule("topics", limit=Limit(messages=Rate(rate), messages_burst=burst), **more)  # type: ignore[arg-type]


@pytest.fixture
def world(redis_server: RedisServer) -> Iterator[World]:
    made: list[FleetWorld] = []

    def make(members: int, *rules: Rule, server: RedisServer | None = None, timeout_ms: int = 1000) -> FleetWorld:
        url = (server or redis_server).url
        made.append(FleetWorld(fleet_settings(url, f"fleet-{next(NAMES)}", timeout_ms), members, *rules))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis that a test may break."""
    with RedisServer(tmp_path / "own-redis") as server:
        yield server


# ---- with Redis -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [200, 5000])
def test_the_sum_is_the_limit_while_the_load_moves_every_second(world: World, rate: int) -> None:
    gateways = world(3, limited(rate, open_for_ns=0))
    flood = max(1, 3 * rate // 1000)
    admitted = 0
    for second in range(14):
        offers = [0, 0, 0]
        offers[second % 3] = flood
        passed = gateways.run(1000, offers)
        admitted += passed if second >= 4 else 0  # by then the burst is spent
    assert admitted == pytest.approx(10 * rate, rel=0.02)


def test_the_sum_is_the_limit_under_uneven_load_of_all(world: World) -> None:
    gateways = world(3, limited(1000))
    gateways.run(2000, [1, 2, 5])
    assert gateways.run(10_000, [1, 2, 5]) == pytest.approx(10_000, rel=0.02)


def test_no_more_than_the_burst_at_once(world: World) -> None:
    gateways = world(3, limited(1000, burst=300))
    assert gateways.run(1000, [10, 10, 10]) <= 300 + 1000
    gateways.run(2000, [0, 0, 0])
    assert 0.9 * 1300 <= gateways.run(1000, [10, 10, 10]) <= 1300


def test_a_gateway_that_needs_little_gets_it_beside_one_that_floods(world: World) -> None:
    """A gateway that is offered a tenth of the limit, and two that are offered three times the limit each."""
    gateways = world(3, limited(1000, open_for_ns=0))
    gateways.run(2000, [1, 3, 3])
    small = gateways.members[0]
    before = small.admitted
    for n in range(4000):
        gateways.step([int(n % 10 == 0), 3, 3])
    assert small.admitted - before >= 0.9 * 400


def test_the_first_message_of_a_topic_waits_for_nobody(world: World) -> None:
    gateways = world(3, limited(1000))
    assert gateways.members[2].offer("fresh", 1, gateways.now) == 1


def test_a_gateways_own_rules_ask_nobody(world: World) -> None:
    gateways = world(2, limited(100, scope="gateway"))
    assert [member.offer("orders", 1000, gateways.now) for member in gateways.members] == [100, 100]
    gateways.run(200, [1, 1])
    assert [member.fleet.asks for member in gateways.members] == [0, 0]


def test_a_rule_that_becomes_the_gateways_own_keeps_its_fill(world: World) -> None:
    gateways = world(1, limited(100))
    gateways.run(1000, [1])
    member = gateways.members[0]
    member.judge.replace(RuleSet((limited(100, scope="gateway"),)), gateways.now)
    assert member.offer("orders", 1000, gateways.now) <= 100
    gateways.run(200, [0])
    member.fleet.asks = 0
    gateways.run(500, [1])
    assert member.fleet.asks == 0


def test_another_fleet_of_the_same_redis_shares_nothing(world: World) -> None:
    one, other = world(1, limited(500)), world(1, limited(500))
    assert one.run(3000, [1]) + other.run(3000, [1]) > 1.5 * 1500


def test_gateways_find_each_other_and_notice_one_that_has_left(world: World) -> None:
    gateways = world(3, limited(100))
    assert [member.fleet.lease.members for member in gateways.members] == [3, 3, 3]
    gateways.members[2].owner.show(leave=True)
    gateways.members.pop()
    gateways.run(3000, [0, 0])
    assert [member.fleet.lease.members for member in gateways.members] == [3, 3]  # it might be Redis that has lost them
    gateways.run(4100, [0, 0])
    assert [member.fleet.lease.members for member in gateways.members] == [2, 2]


def test_an_idle_bucket_is_not_asked_for_any_more(world: World) -> None:
    gateways = world(2, limited(1000))
    gateways.run(500, [1, 1])
    gateways.run(500, [0, 0])
    asked = [member.fleet.asks for member in gateways.members]
    gateways.run(500, [0, 0])
    assert [member.fleet.asks for member in gateways.members] == asked


def test_bytes_are_shared_as_messages_are(world: World) -> None:
    gateways = world(2, Rule("bytes", limit=Limit(bytes=Rate(1_000_000), bytes_burst=100_000), open_for_ns=0))
    keys = [key_of(member.judge, "orders") for member in gateways.members]
    passed = 0
    for n in range(4000):
        for member, key in zip(gateways.members, keys, strict=True):
            request = Request(key, 5, 1, 500)
            member.judge.decide([request], gateways.now)
            passed += request.passed * 500 * (n >= 1000)
        gateways.step([0, 0])
    assert passed == pytest.approx(3_000_000, rel=0.02)


# ---- without ----------------------------------------------------------------------------------------------------------


def test_without_redis_each_goes_on_with_its_last_share(world: World, own_server: RedisServer) -> None:
    """The load: 1/6, 2/6 and 3/6 of a limit that is used up."""
    gateways = world(3, limited(600, open_for_ns=0), server=own_server)
    offers = [[1, 0, 1], [0, 1, 1], [0, 1, 1], [0, 0, 1]]
    for n in range(8000):
        gateways.step([3 * each for each in offers[n % 4]])
    own_server.kill()
    begun = [member.admitted for member in gateways.members]
    for n in range(10_000):
        gateways.step([3 * each for each in offers[n % 4]])
    alone = [member.admitted - before for member, before in zip(gateways.members, begun, strict=True)]
    assert sum(alone) <= 1.05 * 6000
    assert sum(alone) >= 0.9 * 6000
    assert [member.fleet.reason for member in gateways.members] == ["unreachable"] * 3
    assert all(member.fleet.orphaned() == 1 for member in gateways.members)


def test_it_recovers_by_itself_and_gives_no_fresh_burst(world: World, own_server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    """Killed and started again, Redis knows neither its keys nor its scripts."""
    gateways = world(3, limited(1000, open_for_ns=0), server=own_server)
    gateways.run(3000, [2, 2, 2])
    with caplog.at_level(logging.INFO, logger="sluice"):
        own_server.kill()
        gateways.run(2000, [2, 2, 2])
        own_server.start()
        for member in gateways.members:
            member.next_round = gateways.now  # else those that come back first have the limit beside the shares of the others
        assert gateways.run(5000, [2, 2, 2]) == pytest.approx(5000, rel=0.02)
    assert [member.fleet.lease.owner_lost_at for member in gateways.members] == [0, 0, 0]
    assert gateways.run(5000, [2, 2, 2]) == pytest.approx(5000, rel=0.02)
    assert sorted(record.message for record in caplog.records) == ["fleet_back"] * 3 + ["fleet_lost"] * 3


def test_flushed_keys_and_scripts_are_no_outage_and_no_burst(world: World, own_server: RedisServer) -> None:
    gateways = world(2, limited(1000, open_for_ns=0), server=own_server)
    gateways.run(3000, [2, 2])
    own_server.command("SCRIPT", "FLUSH")
    own_server.command("FLUSHALL")
    assert gateways.run(1000, [2, 2]) == pytest.approx(1000, abs=60)
    assert [sum(member.fleet.failures.values()) for member in gateways.members] == [0, 0]


def test_a_redis_that_hangs_costs_a_timeout_and_no_more(world: World, own_server: RedisServer) -> None:
    gateways = world(1, limited(1000), server=own_server, timeout_ms=30)
    gateways.run(500, [1])
    own_server.pause()
    passed = gateways.run(300, [1])
    assert gateways.members[0].fleet.reason == "timeout"
    assert passed >= 250
    own_server.resume()
    gateways.run(2500, [1])
    assert gateways.members[0].fleet.reason == ""


def test_a_partition_admits_twice_the_limit_at_the_most(redis_server: RedisServer, own_server: RedisServer) -> None:
    """Two halves, each with a Redis of its own (as after a failover that split), under a flood: each half has the whole limit."""
    name = f"split-{next(NAMES)}"
    urls = [redis_server.url, redis_server.url, own_server.url, own_server.url]
    gateways = FleetWorld([fleet_settings(url, name, 1000) for url in urls], 4, limited(500, open_for_ns=0))
    gateways.run(2000, [1, 1, 1, 1])
    assert gateways.run(5000, [1, 1, 1, 1]) <= 2 * 2500 * 1.02
    gateways.close()


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_half_without_redis_and_a_half_with_it_admit_twice_the_limit_at_the_most(world: World, own_server: RedisServer, cut: int) -> None:
    """The load moved about before, so that shares are as uneven as can be; then everybody floods."""
    gateways = world(4, limited(1000, open_for_ns=0), server=own_server)
    for second in range(8):
        offers = [0] * 4
        offers[second % 4] = 3
        gateways.run(1000, offers)
    for member in gateways.members[:cut]:
        member.fleet.owner.close()
        member.fleet.owner._settings = fleet_settings("redis://127.0.0.1:1/0")  # nobody listens there
    gateways.run(1000, [3] * 4)
    assert 0.9 * 4000 <= gateways.run(4000, [3] * 4) <= 2 * 4000
    own_server.kill()
    assert gateways.run(4000, [3] * 4) <= 2 * 4000


def test_a_gateway_that_starts_without_redis_assumes_the_configured_number() -> None:
    judges = [Judge(RuleSet((limited(1000, open_for_ns=0),)), 10) for _ in range(3)]
    settings = replace(fleet_settings("redis://127.0.0.1:1/0"), gateways=3)
    for n, judge in enumerate(judges):
        Fleet(settings, judge, f"gateway-{n}").lease.owner_lost_at = START
    keys = [key_of(judge, "orders") for judge in judges]
    passed = sum(ask(judge, key, START + n * MS, 5).passed for n in range(5000) for judge, key in zip(judges, keys, strict=True))
    assert 0.9 * 5000 <= int(passed) <= 5000 + 500


def test_made_up_topics_take_no_share_of_those_in_use(world: World) -> None:
    """2,000 new topics between any two rounds: more than a round asks for."""
    gateways = world(1, limited(1000, open_for_ns=0), server=None)
    gateways.run(3000, [2])
    member, passed = gateways.members[0], 0
    for n in range(12):
        for number in range(2000):
            member.offer(f"made-up-{n}-{number}", 1, gateways.now)
        member.keys = {"orders": member.keys["orders"]}
        passed += gateways.run(50, [2])
    assert member.fleet.put_off > 5000
    assert passed == pytest.approx(600, rel=0.05)
    assert len(member.fleet.lease.active) <= 16_384


def test_places_of_more_topics_than_a_round_asks_for_take_turns(world: World) -> None:
    """1,100 topics need three of ten places each and 100 need two. Until November 2026 those were never asked for."""
    gateways = world(1, Rule("topics", limit=Limit(concurrent=10), algorithm="concurrency"))
    member = gateways.members[0]
    judge = Judge(member.judge.rules, 10_000)
    fleet = Fleet(fleet_settings("redis://127.0.0.1:1/0"), judge, "gateway-0", member.owner)
    keys = [key_of(judge, f"t{n}", client=f"10.0.{n // 250}.{n % 250}") for n in range(1200)]
    passed, now = [0] * len(keys), gateways.now
    for _ in range(16):
        flights = []
        for n, key in enumerate(keys):
            request = ask(judge, key, now, 3 if n < 1100 else 2)
            passed[n] += request.passed
            flights.append(request.flight)
        endings: list[Ending] = []
        for flight in flights:
            if flight is not None:
                end(endings, flight, flight.left, ANSWERED)
        judge.free_slots(endings, now + 5 * MS)
        now += 80 * MS
        member.owner.clock_us = clock_us(now)
        fleet.round(now)
    assert fleet.put_off > 2000
    assert min(passed[:1100]) >= 3 * 15
    assert min(passed[1100:]) >= 2 * 14, "on credit alone it is 16"


def test_made_up_topics_in_an_outage_take_no_memory_for_good(world: World, own_server: RedisServer) -> None:
    gateways = world(1, limited(100), server=own_server)
    own_server.kill()
    member = gateways.members[0]
    for n in range(3000):
        member.offer(f"t{n}", 1, gateways.now)
        gateways.step([0])
    assert len(member.fleet.lease.active) < 1700  # those of one rest between two tries, and of IDLE_NS
    gateways.run(1500, [0])
    assert len(member.fleet.lease.active) == 0


def test_a_round_that_hangs_is_an_outage() -> None:
    fleet = Fleet(fleet_settings("redis://127.0.0.1:1/0"), Judge(RuleSet((limited(1),)), 10), "a")
    fleet.lease.owner_back()
    fleet._begun_at = START
    fleet.watch(START + 100 * MS)
    assert fleet.describe(START).reachable is True
    fleet.watch(START + SECOND)
    assert fleet.describe(START).reachable is False
    assert fleet.reason == "timeout"


def test_the_thread_starts_asks_and_stops(redis_server: RedisServer) -> None:
    judge = Judge(RuleSet((limited(100),)), 10)
    fleet = Fleet(fleet_settings(redis_server.url, "thread", 1000), judge, "a")
    fleet.start()
    thread = fleet._thread
    assert thread is not None
    while fleet.lease.owner_lost_at != 0:
        thread.join(0.005)
    fleet.stop()
    assert not thread.is_alive()
    assert redis_server.client().zcard("sluice:{thread}:gateways:v1") == 0


# ---- what operators see -----------------------------------------------------------------------------------------------


def test_an_outage_is_logged_with_its_reason_and_its_consequence(world: World, own_server: RedisServer) -> None:
    gateways = world(1, limited(1000), server=own_server)
    fleet = gateways.members[0].fleet
    gateways.run(1000, [1])
    assert fleet.describe(gateways.now).reachable is True
    assert repr(fleet) == f"<Fleet {fleet.name!r} 1 gateways, {fleet.asks} asks>"
    own_server.fill_up()
    gateways.run(1000, [1])
    told = fleet.describe(gateways.now)
    assert (told.reachable, told.reason, told.orphaned) == (False, "full", 1)
    assert 0.9 <= float(str(told.outage_seconds)) <= 1.1
    assert fleet.warning() == (
        f"fleet: no answer from {own_server.url}: full, {fleet.detail.rstrip('.')}; limits hold by this gateway's last share (1 in use)"
    )
    assert repr(fleet) == f"<Fleet {fleet.name!r} without Redis (full), {fleet.asks} asks>"


def test_a_scrape_tells_of_every_reason_from_the_beginning(redis_server: RedisServer) -> None:
    fleet = Fleet(fleet_settings(redis_server.url, "scraped"), Judge(RuleSet((limited(1),)), 10), "a")
    samples = {
        (sample.name, sample.labels.get("reason")): sample.value
        for family in families("".join(fleet_lines(fleet, START)))
        for sample in family.samples
        if "bucket" not in sample.name
    }
    assert {reason for _, reason in samples if reason} == set(REASONS)
    assert samples["sluice_fleet_reachable", None] == 0
    assert samples["sluice_fleet_gateways", None] == 1
    assert sum(samples.values()) == 1
