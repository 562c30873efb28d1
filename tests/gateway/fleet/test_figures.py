"""What the gateways of a fleet tell each other of their traffic, through a real Redis."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from gateway.fleet.figures import FIGURES, FleetFigures, OwnFigures, parse_figures
from gateway.fleet.redis_owner import RedisOwner
from gateway.fleet.script import figures_key_of
from limiter.limits import SECOND, Limit, Rate
from limiter.rules.rule_set import Rule
from support.brokers.redis_server import RedisServer
from support.models.fleets import FleetWorld, fleet_settings

RULE = Rule("topics", limit=Limit(messages=Rate(100)))
NAMES = count()
START_US = 1_795_000_000_000_000


def told(name: str, received: float, waiting: int = 0, connections: int = 1) -> str:
    rows = [("topic", (received, received / 2, received / 2, received * 10, float(waiting)))]
    return OwnFigures(name).note(rows, connections)


def names(answers: list[object]) -> list[str]:
    return [each.name for each in parse_figures(answers, 5).members]


@pytest.fixture
def owner(redis_server: RedisServer) -> Iterator[RedisOwner]:
    made = RedisOwner(fleet_settings(redis_server.url, f"figures-{next(NAMES)}", 1000), "a", START_US)
    yield made
    made.close()


@pytest.fixture
def world(redis_server: RedisServer) -> Iterator[FleetWorld]:
    made = FleetWorld(fleet_settings(redis_server.url, f"figures-{next(NAMES)}", 1000), 3, RULE)
    yield made
    made.close()


def test_rates_are_means_of_ten_seconds_and_sums_over_topics() -> None:
    own = OwnFigures("one")
    for second in range(15):
        rows = [("a", (100.0 if second >= 10 else 0.0, 4.0, 1.0, 8.0, 3.0)), ("b", (10.0, 1.0, 0.0, 2.0, 2.0))]
        said = own.note(rows, 7)
    assert json.loads(said) == {
        "name": "one", "received_per_second": 60.0, "forwarded_per_second": 5.0, "refused_per_second": 1.0, "bytes_per_second": 10.0,
        "waiting": 5, "connections": 7,
    }  # fmt: skip
    assert json.loads(own.note([], 0))["waiting"] == 0


@pytest.mark.parametrize(
    "nonsense",
    [
        "", "0 ", "0 {", "0 []", "7", '0 {"name": 1}', '0 {"name": "x"}', "x " + told("x", 1), "0 " + told("x", 1).replace("1.0", "-1"),
        "0 " + told("x", 1).replace("1.0", "NaN"), None, 7, b"\xff", "0 " + "[" * 100_000, "0 " + told("x", 1).replace("1.0", "9" * 400),
        "0 " + told("x", 1).replace("1.0", "1.7e308"), "0 " + told("x", 1).replace("1.0", "true"),
        "0 " + told("x", 1).replace("1.0", "9" * 5000),
    ],
)  # fmt: skip
def test_nonsense_is_left_out(nonsense: object) -> None:
    found = parse_figures(["0 " + told("b", 1), nonsense, ("-9 " + told("a", 1)).encode()], 5)
    assert ([each.name for each in found.members], found.missing) == (["a", "b"], [])


def test_a_name_can_be_written_whatever_it_is() -> None:
    (name,) = names(["0 " + told("x", 1).replace('"x"', '"\\ud800x"')])
    assert name.encode() == b"?x"


def test_what_is_too_long_is_not_read(owner: RedisOwner) -> None:
    owner.share(told("a" * 4096, 5), read=False)
    owner.member = "b"
    assert names(owner.share(told("b", 7), read=True)) == ["b"]


def test_the_sum_is_of_all_members() -> None:
    found = parse_figures(["0 " + told("b", 1, 2, 3), "0 " + told("a", 10, 20, 30)], 5)
    assert found.sum() == dict(zip(FIGURES, (11, 5.5, 5.5, 110, 22, 33), strict=True))
    assert FleetFigures([], []).sum() == dict.fromkeys(FIGURES, 0)


def test_each_reads_what_all_have_told_lately(owner: RedisOwner) -> None:
    assert names(owner.share(told("a", 5), read=True)) == ["a"]
    assert owner.share(told("a", 5), read=False) == []
    owner.member = "b"
    assert [each.received_per_second for each in parse_figures(owner.share(told("b", 7), read=True), 5).members] == [5, 7]
    owner.clock_us += 6_000_000
    found = parse_figures(owner.share(told("b", 7), read=True), 5)
    assert ([each.name for each in found.members], found.missing) == (["b"], ["a"]), "a has told nothing for 6 s"
    owner.member = "a after its restart"
    found = parse_figures(owner.share(told("a", 7), read=True), 5)
    assert ([each.name for each in found.members], found.missing) == (["a", "b"], [])
    owner.share("", read=False)
    owner.member = "b"
    owner.share("", read=False)
    owner.member = "c"
    found = parse_figures(owner.share(told("c", 7), read=True), 5)
    assert ([each.name for each in found.members], found.missing) == (["c"], ["a"]), "a's last process and b have left"
    owner.clock_us += 600_000_000
    assert parse_figures(owner.share(told("c", 7), read=True), 5).missing == []


def test_the_hash_is_forgotten_with_the_fleet(owner: RedisOwner, redis_server: RedisServer) -> None:
    owner.share(told("a", 5), read=False)
    with redis_server.client() as client:
        assert 0 < client.pttl(figures_key_of(owner.name)) <= 1_200_000


def test_a_user_that_may_not_keep_the_figures_still_shares_limits(tmp_path: Path) -> None:
    """Redis refuses HSET of this key alone: an error reply, and no outage."""
    with RedisServer(tmp_path / "redis") as server:
        settings = fleet_settings(server.url, "denied", 1000)
        with server.client() as client:
            client.set(figures_key_of("denied"), "not a hash")
        made = FleetWorld(settings, 1, RULE)
        try:
            member = made.members[0]
            member.fleet.figures, member.fleet.figures_at = told("a", 1), made.now
            made.run(2500, [1])
            assert (member.fleet.lease.owner_lost_at, sum(member.fleet.failures.values())) == (0, 0)
            assert member.fleet.describe(made.now).members in (None, [])
        finally:
            made.close()


def test_the_sum_is_there_while_somebody_looks_and_who_is_missing_shows(world: FleetWorld) -> None:
    for number, member in enumerate(world.members[:2]):
        member.fleet.figures = told(f"gateway-{number}", 100.0 * (number + 1), waiting=number, connections=5)
        member.fleet.figures_at = world.now + 3600 * SECOND  # they are renewed
    first = world.members[0].fleet
    assert first.describe(world.now).members is None, "nobody has looked yet"
    world.run(2200, [0, 0, 0])
    found = first.describe(world.now)
    assert [each.name for each in found.members or ()] == ["gateway-0", "gateway-1"]
    assert (found.sum or {})["received_per_second"] == 300
    assert found.missing == []
    assert found.gateways == 3, "of which one has told nothing"
    world.members.pop(1)
    world.run(6500, [0, 0])
    assert first.describe(world.now).missing == ["gateway-1"]
    world.run(12_000, [0, 0])
    assert first._told is None, "nobody looks any more"


def test_sums_of_an_outage_are_not_shown(world: FleetWorld) -> None:
    member = world.members[0]
    member.fleet.figures, member.fleet.figures_at = told("a", 1), world.now
    member.fleet.describe(world.now)
    world.run(2200, [0, 0, 0])
    assert member.fleet.describe(world.now).sum is not None
    member.fleet.lease.owner_lost(world.now)
    assert member.fleet.describe(world.now).sum is None


def test_the_figures_of_a_loop_that_hangs_are_not_told_as_new(world: FleetWorld) -> None:
    """The fleet's thread goes on: the others had its last rates for ever, and it was not missing."""
    first, hung = (member.fleet for member in world.members[:2])
    for number, fleet in enumerate((first, hung)):
        fleet.figures, fleet.figures_at = told(f"gateway-{number}", 100.0), world.now
    first.figures_at += 3600 * SECOND  # it renews them
    first.describe(world.now)
    world.run(2200, [0, 0, 0])
    assert (first.describe(world.now).sum or {})["received_per_second"] == 200
    world.run(9000, [0, 0, 0])
    first.describe(world.now)
    found = first.describe(world.now)
    assert (found.missing, (found.sum or {})["received_per_second"], found.gateways) == (["gateway-1"], 100, 3)
