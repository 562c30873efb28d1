"""Every algorithm's limit over two gateways lets pass what it does in one process: a real Redis, on a clock of the test's own."""

from __future__ import annotations

from itertools import count

import pytest

from limiter.limits import SECOND, Limit
from limiter.operations import DECLARE, PRODUCE
from limiter.rules.match import Match
from limiter.rules.rule import Rule
from support.brokers.redis_server import RedisServer
from support.models.asking import key_of
from support.models.fleets import MS, FleetWorld, fleet_settings
from support.models.shared_limits import InFlight, Spender, everywhere, moving, passed_in_one_process, rule_of, work

pytestmark = pytest.mark.slow  # a Redis

GATEWAYS = 2
NAMES = count()


@pytest.mark.parametrize("algorithm", ["token_bucket", "pacing", "warm_up"])
def test_two_gateways_pass_what_one_process_does(redis_server: RedisServer, algorithm: str) -> None:
    """With a load everywhere, from the start on; then at one of them, each second at another. In 8 s within 2 %."""
    rate = 1000
    rule = rule_of(algorithm, rate)
    offer = 2 * rate // 1000 + 1
    loads = [everywhere(GATEWAYS, offer, 3), everywhere(GATEWAYS, offer, 8), moving(GATEWAYS, 2 * offer, 2), moving(GATEWAYS, 2 * offer, 8)]
    world = FleetWorld(fleet_settings(redis_server.url, f"fleet-{next(NAMES)}"), GATEWAYS, rule)
    passed = [sum(world.run(milliseconds, offers) for milliseconds, offers in load) for load in loads]
    world.close()
    expected = passed_in_one_process(rule, loads)
    assert passed[1::2] == pytest.approx(expected[1::2], rel=0.02)
    assert passed[::2] == pytest.approx(expected[::2], abs=rate / 2), "lines are spent at first, and fill where the load has gone"


def test_a_limit_that_has_warmed_up_at_one_gateway_is_warm_at_the_other(redis_server: RedisServer) -> None:
    world = FleetWorld(fleet_settings(redis_server.url, f"fleet-{next(NAMES)}"), GATEWAYS, rule_of("warm_up", 1000))
    cold = world.run(1000, [5, 0])
    world.run(3000, [5, 0])
    warm = world.run(1000, [0, 5])
    world.close()
    assert cold < 800
    assert warm == pytest.approx(1000, rel=0.1)


def test_a_restarted_redis_makes_no_limit_cold_that_is_in_use(redis_server: RedisServer) -> None:
    world = FleetWorld(fleet_settings(redis_server.url, f"fleet-{next(NAMES)}"), GATEWAYS, rule_of("warm_up", 1000))
    world.run(4000, [5, 5])
    redis_server.client().flushdb()
    passed = world.run(1000, [5, 5])
    world.close()
    assert passed >= 900, "cold it would let a third of that pass"


@pytest.mark.parametrize("rate", [19, 1000])  # 20/s would come in step with the rounds, which have no jitter here
def test_one_limit_of_costs_holds_over_gateways_and_what_is_dear_has_its_turn(redis_server: RedisServer, rate: int) -> None:
    world = FleetWorld(fleet_settings(redis_server.url, f"fleet-{next(NAMES)}"), GATEWAYS, work(rate))
    spenders = [Spender(member.judge, operation) for member, operation in zip(world.members, (PRODUCE, DECLARE), strict=True)]

    def spent(seconds: int) -> list[int]:
        before = [spender.spent for spender in spenders]
        for _ in range(1000 * seconds):
            for spender in spenders:
                spender.step(world.now)
            world.step([0] * GATEWAYS)
        return [spender.spent - then for spender, then in zip(spenders, before, strict=True)]

    first = spent(3)
    then = spent(20)
    world.close()
    assert sum(first) <= 4 * rate + GATEWAYS * 10, "the burst, and what each owes for the one that it let go"
    assert sum(then) == pytest.approx(20 * rate, rel=0.02)
    assert min(then) >= 0.3 * sum(then)
    assert spenders[1].longest_ns <= 3 * 10 * SECOND // rate + 250 * MS


@pytest.mark.parametrize("algorithm", ["concurrency", "adaptive"])
def test_two_gateways_have_in_flight_together_what_one_process_may(redis_server: RedisServer, algorithm: str) -> None:
    """A flood at both of them, then at one; each request takes 20 ms. In the middle of each Redis forgets everything."""
    rule = Rule("all", Match(), per="topic", limit=Limit(concurrent=60), algorithm=algorithm, open_for_ns=0)
    world = FleetWorld(fleet_settings(redis_server.url, f"fleet-{next(NAMES)}"), GATEWAYS, rule)
    keys = [key_of(member.judge, "orders") for member in world.members]
    flights = [InFlight(member.judge, 20) for member in world.members]
    most = 0
    for offers in ([9, 9], [0, 9], [9, 9]):
        passed = 0
        for millisecond in range(6000):
            if millisecond == 2000:
                redis_server.client().flushdb()
            for key, in_flight, offer in zip(keys, flights, offers, strict=True):
                came = in_flight.offer(key, offer, world.now)
                passed += came if millisecond >= 3000 else 0
            most = max(most, sum(in_flight.count for in_flight in flights))
            world.step([0, 0])
        assert passed == pytest.approx(60 * 3000 / 20, rel=0.02)
    world.close()
    assert most <= 60 + GATEWAYS - 1
