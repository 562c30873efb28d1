"""Members that hold batches and larger messages beside a flood of small ones: what passes of each."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from limiter.algorithms.lag import LagControlledBucket
from limiter.buckets.factory import BucketFactory
from limiter.judge import Judge
from limiter.leases.lease import Lease
from limiter.leases.owner import LeaseOwner
from limiter.leases.sharing import OWNERS, owner_limit
from limiter.limits import SECOND, Limit, Rate
from limiter.request import Request
from limiter.rules.match import Match
from limiter.rules.rule import Rule
from limiter.rules.rule_set import RuleSet
from support.models.asking import ask, key_of

if TYPE_CHECKING:
    from random import Random

FLOOD = 100_000  # messages


class Holder:
    """One member: its judge, what it holds, and the units (messages, or bytes where those are limited) that passed."""

    def __init__(self, rule: Rule, lease: Lease, large: list[tuple[int, int]], small: tuple[int, int]) -> None:
        self.judge = Judge(RuleSet((rule,)))
        if lease.parted:
            self.judge.join_fleet(lease)
        elif lease.members > 1:
            self.judge.make_buckets_with(BucketFactory(lease.members, lease))
        self.lease = lease
        self.key = key_of(self.judge, "orders")
        self.sizes = large
        self.small = small
        self.held = [Request(self.key, 1, *large[at % len(large)]) for at in range(8)]
        self.waiting: list[Request] = []  # of the small ones
        self.passed = [0, 0]  # large, small

    def ask_large(self, now: int, *, counts_bytes: bool) -> None:
        self.judge.decide(self.held, now)
        for at, each in enumerate(self.held):
            each.again = True
            if each.passed:
                self.passed[0] += each.size if counts_bytes else each.messages
                self.held[at] = Request(self.key, 1, each.messages, each.size)

    def ask_small(self, now: int, *, counts_bytes: bool, held: bool) -> None:
        if not held:
            passed = ask(self.judge, self.key, now, FLOOD, *self.small).passed
        else:
            self.waiting += [Request(self.key, 1, *self.small) for _ in range(10 - len(self.waiting))]
            self.judge.decide(self.waiting, now)
            passed = sum(each.passed for each in self.waiting)
            self.waiting = [each for each in self.waiting if not each.passed]
            for each in self.waiting:
                each.again = True
        self.passed[1] += passed * self.small[counts_bytes]


class Mix:
    """Some members of one limit, and its owner, on a clock of the test's own. Of `lag` the rate stands at `slowest`."""

    def __init__(
        self, limit: Limit, algorithm: str, members: int, large: list[tuple[int, int]], small: tuple[int, int], *, fleet: bool = False
    ) -> None:
        self.now = 1000 * SECOND
        self.algorithm = algorithm
        self.members = members
        self.limit = limit
        self.owner = LeaseOwner()
        self.bucket = OWNERS[algorithm](owner_limit(limit, members, algorithm), self.now)
        self.holders = [Holder(self._rule(), Lease(members, parted=fleet), large, small) for _ in range(members)]
        for holder in self.holders:
            ask(holder.judge, holder.key, self.now, FLOOD, *small)
        self.set_rate()

    def _rule(self) -> Rule:
        match = Match(protocol="rocketmq")
        return Rule("topics", match, per="topic", limit=self.limit, algorithm=self.algorithm, action="delay", open_for_ns=0)

    def set_rate(self) -> None:
        """The backlog's rate is the slowest."""
        for bucket in (self.bucket, self.holders[0].key.buckets[0].algorithm):
            if isinstance(bucket, LagControlledBucket) and self.limit.lag is not None:
                bucket.set_rate(self.limit.lag.slowest, self.now)

    def change(self, factor: int) -> None:
        """So many times the rate of messages, or of bytes, from now on."""
        rates = [None if rate is None else Rate(rate.amount * factor, rate.per_ns) for rate in (self.limit.messages, self.limit.bytes)]
        self.limit = replace(self.limit, messages=rates[0], bytes=rates[1])
        self.bucket.change(owner_limit(self.limit, self.members, self.algorithm), self.now)
        for holder in self.holders:
            holder.judge.replace(RuleSet((self._rule(),)), self.now)
        self.set_rate()

    def passed(self) -> list[tuple[int, int]]:
        """Of each member: units of large ones and of small ones."""
        return [(holder.passed[0], holder.passed[1]) for holder in self.holders]

    def start_counting(self) -> None:
        for holder in self.holders:
            holder.passed = [0, 0]

    def lose_owner(self) -> None:
        for holder in self.holders:
            holder.lease.owner_lost(self.now)

    def run(self, steps: int, step_ns: int, random: Random, *, held: bool) -> None:
        counts_bytes = self.limit.bytes is not None
        for _ in range(steps):
            self.now += step_ns
            for holder in self.holders:
                large_first = random.random() < 0.5
                if large_first:
                    holder.ask_large(self.now, counts_bytes=counts_bytes)
                holder.ask_small(self.now, counts_bytes=counts_bytes, held=held)
                if not large_first:
                    holder.ask_large(self.now, counts_bytes=counts_bytes)
            if self.members > 1:
                self._exchange(random)

    def _exchange(self, random: Random) -> None:
        for at in random.sample(range(self.members), self.members):
            holder = self.holders[at]
            if random.random() < 0.8:
                asks = holder.judge.asks(holder.lease, self.now)
                grants = [(each, *self.owner.grant("k", self.bucket, at, each.messages, each.size, self.now)) for each in asks]
                holder.judge.take_grants(grants, self.now)
