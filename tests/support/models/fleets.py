"""Gateways of a fleet without their sockets: judges that share one limit through a real Redis, on a clock of the test's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from config.known_settings import FleetRedis
from gateway.fleet.fleet import Fleet
from gateway.fleet.redis_owner import RedisOwner
from limiter.judge import Judge
from limiter.rules.rule_set import Rule, RuleSet
from support.models.asking import ask, key_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from limiter.keys import Key

MS = 1_000_000
START = 10**15  # monotonic ns
EPOCH_US = 1_795_000_000_000_000  # what Redis' clock says at START
ROUND_MS = 50


class Member:
    """One gateway: its judge, its part in the fleet, and what it let pass."""

    def __init__(self, settings: FleetRedis, name: str, rules: tuple[Rule, ...], now: int) -> None:
        self.judge = Judge(RuleSet(rules), 1000)
        self.owner = RedisOwner(settings, name, clock_us(now))
        self.fleet = Fleet(settings, self.judge, name, self.owner)
        self.fleet.lease.owner_lost_at = now
        self.keys: dict[str, Key] = {}
        self.admitted = 0
        self.next_round = now

    def offer(self, topic: str, count: int, now: int) -> int:
        if topic not in self.keys:
            self.keys[topic] = key_of(self.judge, topic)
        passed = ask(self.judge, self.keys[topic], now, count).passed
        self.admitted += passed
        return passed


def clock_us(now: int) -> int:
    return EPOCH_US + (now - START) // 1000


class FleetWorld:
    """Members on a clock of 1 ms steps; each makes its rounds in its own time."""

    def __init__(self, settings: FleetRedis | Sequence[FleetRedis], members: int, *rules: Rule) -> None:
        self.now = START
        # By themselves more than two would learn of each other in SEEN_S and longer.
        each = [replace(settings, gateways=members)] * members if isinstance(settings, FleetRedis) else settings
        self.members = [Member(each[n], f"gateway-{n}", rules, self.now + n * ROUND_MS * MS // members) for n in range(members)]
        for _ in range(2):  # everybody has shown itself, and has seen all others
            for member in self.members:
                member.fleet._show_at = 0
                member.owner.clock_us = clock_us(self.now)
                member.fleet.round(self.now)

    def step(self, offers: Sequence[int], topic: str = "orders") -> int:
        """One millisecond: every member is offered so many messages. How many passed, in all."""
        passed = sum(member.offer(topic, offer, self.now) for member, offer in zip(self.members, offers, strict=True) if offer)
        self.now += MS
        for member in self.members:
            if self.now >= member.next_round:
                member.owner.clock_us = clock_us(self.now)
                rest_s = member.fleet.round(self.now)
                member.next_round = self.now + (ROUND_MS * MS if member.fleet.lease.owner_lost_at == 0 else int(rest_s * 1e9))
        return passed

    def run(self, milliseconds: int, offers: Sequence[int], topic: str = "orders") -> int:
        return sum(self.step(offers, topic) for _ in range(milliseconds))

    def close(self) -> None:
        for member in self.members:
            member.owner.close()


def fleet_settings(url: str, name: str = "tests", timeout_ms: int = 50, password_file: Path | None = None) -> FleetRedis:
    return FleetRedis(url, name, timeout_ms * MS, password_file=password_file)
