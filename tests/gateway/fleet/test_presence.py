"""Which gateways of a fleet are believed to be there: proofs that cannot be invented, and numbers that may not jump."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from redis import Redis

from common import log
from config.known_settings import FleetRedis
from gateway.fleet.fleet import Fleet
from gateway.fleet.outages import OwnerGoneError
from gateway.fleet.presence import EPOCH_US, Belief, Presence, proof, proven
from gateway.fleet.redis_link import Command
from gateway.fleet.redis_owner import RedisOwner
from gateway.fleet.script import MOST_PROOFS, SEEN_S, presence_key_of, proofs_key_of
from limiter.judge import Judge
from limiter.limits import SECOND, Limit, Rate
from limiter.rules.rule_set import Rule, RuleSet
from support.brokers.redis_server import RedisServer
from support.models.fleets import ROUND_MS, FleetWorld, clock_us, fleet_settings

NAMES = count()
NOW_US = 1_795_000_000_000_000
SECRET = b"0123456789abcdef"


# ---- proofs ------------------------------------------------------------------------------------------------------------


def test_a_proof_is_of_its_secret_its_fleet_its_member_and_its_time() -> None:
    shown = proof(SECRET, "orders", "a", NOW_US)
    assert proven(SECRET, "orders", [shown], NOW_US) == {"a"}
    assert proven(SECRET, "orders", [shown, proof(SECRET, "orders", "a", NOW_US + EPOCH_US), shown], NOW_US) == {"a"}, "one member"
    assert proven(b"another secret!!", "orders", [shown], NOW_US) == set()
    assert proven(SECRET, "returns", [shown], NOW_US) == set()
    assert proven(SECRET, "orders", [shown.replace("a", "b", 1)], NOW_US) == set()
    assert proven(SECRET, "orders", [shown], NOW_US + 2 * EPOCH_US) == set(), "copied, and shown again later"


@pytest.mark.parametrize(
    "text", ["", "a", "a 1", "a 1 2 3", "a -1 00", "a \u0661 00", "x" * 1000, "a " + "9" * 200 + " 00", "\ufffd 1 \ufffd"]
)
def test_nonsense_proves_nothing(text: str) -> None:
    assert proven(SECRET, "orders", [text], NOW_US) == set()


# ---- how far numbers are believed ---------------------------------------------------------------------------------------


def test_a_number_without_a_proof_doubles_at_most_in_a_lease_time() -> None:
    belief = Belief(3)
    seen = []
    for second in range(2 * SEEN_S + 1):
        belief.take(Presence(100_000), second * SECOND)
        seen.append(belief.gateways)
    assert seen == [6] * SEEN_S + [12] * SEEN_S + [24]
    belief.take(Presence(3), 60 * SECOND)
    belief.take(Presence(3), (60 + SEEN_S) * SECOND)
    assert belief.gateways == 3, "downwards after the time that it always takes"


def test_proven_ones_count_at_once() -> None:
    belief = Belief(1)
    belief.take(Presence(100, 100), 0)
    assert belief.gateways == 100


def test_gateways_of_a_version_before_count_until_the_last_has_gone() -> None:
    belief = Belief(1)
    belief.take(Presence(4, 2), 0)
    assert (belief.gateways, belief.strangers) == (2, 0)
    belief.take(Presence(4, 2), 5 * SECOND)
    assert (belief.gateways, belief.strangers) == (4, 0)
    for second in range(10, 16):
        belief.take(Presence(3, 3), second * SECOND)
    assert belief.gateways == 3
    for second in range(16, 16 + SEEN_S):
        belief.take(Presence(90, 3), second * SECOND)
        assert (belief.gateways, belief.strangers) == (3, 0), "from then on only members count"
    belief.take(Presence(90, 3), (16 + SEEN_S) * SECOND)
    assert (belief.gateways, belief.strangers) == (3, 87)
    belief.take(Presence(3, 3), 30 * SECOND)
    assert belief.strangers == 0


def test_members_whose_proofs_are_too_old_after_a_step_of_redis_clock_are_no_strangers() -> None:
    belief = Belief(3)
    for second in range(SEEN_S + 1):
        belief.take(Presence(3, 3), second * SECOND)
    for second in (10, 20, 30):
        belief.take(Presence(3, 0), second * SECOND)
        belief.take(Presence(3, 3), (second + 1) * SECOND)
        assert (belief.gateways, belief.strangers) == (3, 0)


def test_a_redis_that_is_restarted_again_and_again_makes_no_gateway_missing() -> None:
    """At each restart the first look finds oneself alone, however long ago the last such look was."""
    old, mixed = Belief(10), Belief(4)
    old.take(Presence(10), 0)
    for second in range(2 * SEEN_S):
        mixed.take(Presence(4, 2), second * SECOND)
    for second in (20, 26, 90):
        for belief, seen in ((old, Presence(1)), (mixed, Presence(1, 1))):
            belief.interrupt()
            belief.take(seen, second * SECOND)
    assert (old.gateways, mixed.gateways) == (10, 4)
    mixed.take(Presence(4, 2), 91 * SECOND)
    assert (mixed.gateways, mixed.strangers) == (4, 0), "those without a secret have not gone"


def test_a_member_that_has_gone_counts_no_more_at_once_where_redis_has_kept_the_others() -> None:
    belief = Belief(3)
    for second in range(SEEN_S + 1):
        belief.take(Presence(3, 3), second * SECOND, kept=second > 0)
    belief.take(Presence(2, 2), (SEEN_S + 1) * SECOND, kept=True)
    assert belief.gateways == 2
    belief.take(Presence(1, 1), (SEEN_S + 2) * SECOND, kept=False)  # Redis was restarted
    belief.take(Presence(1, 1), (SEEN_S + 3) * SECOND, kept=True)
    assert belief.gateways == 2, "the other one may not have shown itself yet"


# ---- through a real Redis ----------------------------------------------------------------------------------------------


@pytest.fixture
def settings(redis_server: RedisServer, tmp_path: Path) -> FleetRedis:
    (tmp_path / "secret").write_bytes(SECRET + b"\n")
    return replace(fleet_settings(redis_server.url, f"presence-{next(NAMES)}", 1000), secret_file=tmp_path / "secret")


@pytest.fixture
def owner_of(settings: FleetRedis) -> Iterator[Callable[..., RedisOwner]]:
    made: list[RedisOwner] = []

    def make(member: str, **more: object) -> RedisOwner:
        made.append(RedisOwner(replace(settings, **more), member))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for each in made:
        each.close()


def invent(client: Redis, fleet: str, how_many: int, now_us: int) -> None:
    for key in (presence_key_of(fleet), proofs_key_of(fleet)):
        client.zadd(key, {f"invented-{number} {now_us // EPOCH_US} {'0' * 32}": now_us for number in range(how_many)})


def test_members_are_counted_by_their_proofs_and_by_those_without_a_secret_by_their_names(
    owner_of: Callable[..., RedisOwner], settings: FleetRedis, redis_server: RedisServer
) -> None:
    one, other, before = owner_of("a"), owner_of("b"), owner_of("c", secret_file=None)
    one.clock_us = other.clock_us = before.clock_us = NOW_US
    assert one.show() == Presence(1, 1)
    assert other.show() == Presence(2, 2)
    assert before.show() == Presence(3), "as the version before counts"
    assert one.show() == Presence(3, 2)
    with redis_server.client() as client:
        invent(client, settings.name, 1000, NOW_US)
    assert one.show() == Presence(1003, 2)
    assert other.show(leave=True) == Presence(1002, 1)


@pytest.mark.parametrize("length", [0, 100_000], ids=["short ones", "long ones"])
def test_however_many_proofs_are_invented_members_find_each_other(
    owner_of: Callable[..., RedisOwner], settings: FleetRedis, redis_server: RedisServer, length: int
) -> None:
    """4,097 of them were an outage of Redis. A new member has to wait; what is longer than a proof is not read."""
    one, other = owner_of("a"), owner_of("b")
    one.clock_us = other.clock_us = NOW_US
    for _ in range(2):
        one.show()
        assert other.show() == Presence(2, 2)
    with redis_server.client() as client:
        if length:
            client.zadd(proofs_key_of(settings.name), {f"{number} 0 {'0' * length}": NOW_US + 1 for number in range(50)})
        invent(client, settings.name, 2 * MOST_PROOFS, NOW_US + 1)  # newer than the members' own
        assert one.show() == Presence(2 + 2 * MOST_PROOFS, 2)
        assert other.show() == Presence(2 + 2 * MOST_PROOFS, 2)
        one.clock_us = other.clock_us = NOW_US + EPOCH_US + 4_000_000
        for each in (one, other, one):
            each.show()
        invent(client, settings.name, 2 * MOST_PROOFS, one.clock_us + 1)
        assert one.show() == Presence(2 + 2 * MOST_PROOFS, 2), "with proofs of another minute"
        client.delete(presence_key_of(settings.name), proofs_key_of(settings.name))
        one.show()
        assert other.show() == Presence(2, 2)


def test_a_gateway_that_joins_or_leaves_is_counted_within_a_leases_time(settings: FleetRedis) -> None:
    """By those that have a limit in use: two rounds of 50 ms, in the first of which another number of proofs is seen."""
    world = FleetWorld([settings] * 2, 2, Rule("all", limit=Limit(messages=Rate(1000))))
    world.run((SEEN_S + 3) * 1000, [2, 2])
    assert [member.fleet.lease.members for member in world.members] == [2, 2]
    comer = RedisOwner(settings, "gateway-7")
    for leave, members in ((False, 3), (True, 2)):
        comer.clock_us = clock_us(world.now)
        comer.show(leave=leave)
        world.run(2 * ROUND_MS + 1, [2, 2])
        assert [member.fleet.lease.members for member in world.members] == [members, members]
        world.run(300, [2, 2])
    comer.close()
    world.close()


def test_a_member_that_comes_or_comes_back_is_a_stranger_to_nobody(
    owner_of: Callable[..., RedisOwner], redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between any two commands of it, and also where it was away for longer than a proof holds."""
    one, other = owner_of("a"), owner_of("b")
    seen: list[Presence] = []
    watched = RedisOwner._answers

    def answers(owner: RedisOwner, commands: list[Command]) -> list[object]:
        found = watched(owner, commands)
        if owner is other:
            seen.append(one.show())
        return found

    one.clock_us = other.clock_us = NOW_US
    one.show()
    monkeypatch.setattr(RedisOwner, "_answers", answers)
    for _ in range(2):
        assert other.show() == Presence(2, 2)
    other.close()
    one.clock_us = other.clock_us = NOW_US + 3 * EPOCH_US
    one.show()
    assert other.show() == Presence(2, 2)
    assert len(seen) > 4
    assert all(presence.there == presence.proven for presence in seen), seen


def test_of_what_somebody_invents_nothing_is_believed_and_the_log_says_so(
    settings: FleetRedis, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[tuple[str, dict[str, object]]] = []
    monkeypatch.setattr(log, "event", lambda _level, event, **fields: said.append((event, fields)))
    fleet = Fleet(settings, Judge(RuleSet(()), 10), "a")
    fleet.owner.clock_us = NOW_US
    for second in range(SEEN_S + 2):
        fleet.round(second * SECOND)
    with redis_server.client() as client:
        invent(client, settings.name, 1000, NOW_US)
    for second in range(10, 12 + SEEN_S):
        fleet.round(second * SECOND)
    assert fleet.lease.members == 1
    assert [(event, fields["strangers"]) for event, fields in said if event == "fleet_strangers"] == [("fleet_strangers", 1000)]
    fleet.owner.close()


@pytest.mark.parametrize(("held", "words"), [(b"short", "16 bytes or more"), (None, "cannot be read")])
def test_without_a_usable_secret_there_is_no_fleet(
    owner_of: Callable[..., RedisOwner], tmp_path: Path, held: bytes | None, words: str
) -> None:
    if held is None:
        (tmp_path / "secret").unlink()
    else:
        (tmp_path / "secret").write_bytes(held)
    with pytest.raises(OwnerGoneError) as caught:
        owner_of("a").show()
    assert caught.value.reason == "denied"
    assert words in caught.value.detail
