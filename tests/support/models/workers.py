"""Workers without their processes: each one's judge, and its parent's, with the messages between them on a clock of the test's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from control_plane.workers.child import Child
from gateway.data_plane import FollowBacklog, Message
from gateway.workers.bucket_ids import BucketIds
from gateway.workers.wire import Asks, Grants, StateReport
from limiter.buckets.factory import BucketFactory
from limiter.judge import Judge
from limiter.keys import Key
from limiter.leases.lease import Lease
from limiter.leases.owner import LeaseOwner
from limiter.limits import Rate
from limiter.request import Request
from limiter.topics import rocketmq_topic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from limiter.rules.rule_set import RuleSet

MS = 1_000_000
BEGIN = 10**12  # monotonic ns


class Box:
    """An outbox whose messages arrive at once."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def put(self, message: Message) -> None:
        self.messages.append(message)

    def take(self) -> list[Message]:
        messages, self.messages = self.messages, []
        return messages


class Pair:
    """One worker's judge, and what the parent has of it."""

    def __init__(self, parent: Judge, owner: LeaseOwner, place: int, held: RuleSet, workers: int = 2) -> None:
        self.judge = Judge(held)
        self.lease = Lease(workers)
        self.judge.make_buckets_with(BucketFactory(workers, self.lease))
        self.bucket_ids = BucketIds(self.lease)
        self.outbox = Box()
        self.child = Child(place, 0, parent, owner)
        self.child.outbox = Box()  # type: ignore[assignment]  # as far as it is used
        self.key = key_of(self.judge)
        self.passed = 0

    def offer(self, count: int, now: int) -> None:
        request = Request(self.key, count, 1, 100)
        self.judge.decide([request], now)
        self.passed += request.passed
        for bucket in self.key.buckets:
            self.bucket_ids.changed[bucket] = None

    def exchange(self, now: int) -> None:
        """Ask, and take the answers."""
        asks = self.judge.asks(self.lease, now)
        if asks:
            self.outbox.put(Asks([(self.bucket_ids.id_of(ask.bucket, self.outbox), ask.messages, ask.size) for ask in asks]))  # type: ignore[arg-type]
        self.deliver()
        for message in self.child.outbox.take():  # type: ignore[attr-defined]
            if isinstance(message, FollowBacklog):
                self.judge.set_rate(message.identity, Rate(message.amount, message.per_ns), now)
                continue
            assert isinstance(message, Grants)
            self.judge.take_grants([(ask, got, size) for ask, (_, got, size) in zip(asks, message.grants, strict=True)], now)

    def tell(self, now: int) -> None:
        tried = self.bucket_ids.candidate_counters(self.outbox)  # type: ignore[arg-type]
        self.outbox.put(StateReport(1, {}, self.bucket_ids.counters(self.outbox, now), tried))  # type: ignore[arg-type]
        self.deliver()

    def deliver(self) -> None:
        for message in self.outbox.take():
            self.child.take(message)  # type: ignore[arg-type]  # a message of the union, seen as any


def key_of(judge: Judge) -> Key:
    return judge.key(judge.origin("rocketmq", "rocket", "10.0.0.7", None), b"t", rocketmq_topic(b"t"))


def world(held: RuleSet, workers: int = 2) -> tuple[Judge, LeaseOwner, list[Pair]]:
    """The parent's judge, who lends of its buckets, and the workers. `control_plane.workers.child.now_ns` must be the test's."""
    parent, owner = Judge(held), LeaseOwner()
    parent.make_buckets_with(BucketFactory(workers, None))
    return parent, owner, [Pair(parent, owner, place, held, workers) for place in range(1, workers + 1)]


def run(pairs: list[Pair], now: list[int], milliseconds: int, offers: Sequence[int]) -> int:
    """Milliseconds in which every worker is offered so many messages; how many passed, in all."""
    before = sum(pair.passed for pair in pairs)
    for _ in range(milliseconds):
        for pair, offer in zip(pairs, offers, strict=True):
            if offer:
                pair.offer(offer, now[0])
        now[0] += MS
        if now[0] // MS % 10 == 0:
            for pair in pairs:
                pair.exchange(now[0])
    return sum(pair.passed for pair in pairs) - before
