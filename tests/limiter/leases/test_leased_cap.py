"""A listener's cap over several workers: one limit wherever the load is, shared by topics at each of them."""

from __future__ import annotations

import pytest

from limiter.algorithms.token_bucket import TokenBucket
from limiter.fair_share.shared_bucket import SharedBucket, TopicShare
from limiter.leases.lease import Lease
from limiter.leases.leased_bucket import LeasedBucket
from limiter.leases.owner import LeaseOwner
from limiter.leases.sharing import owner_limit
from limiter.limits import SECOND, Adapt, Limit, Rate
from limiter.rules.rule import Rule
from support.models.members import MS, START

PROTECTED = Rule("protected", protected=True)


class Workers:
    """Caps of one listener on a clock of 1 ms steps; what each asks every 10 ms is answered 2 ms later."""

    def __init__(self, limit: Limit, members: int = 3) -> None:
        self.now = START
        self.owner = LeaseOwner()
        self.bucket = TokenBucket(owner_limit(limit, members), START)
        self.leases = [Lease(members) for _ in range(members)]
        self.caps = [SharedBucket(limit, START, LeasedBucket(limit, START, lease)) for lease in self.leases]
        self.passed: dict[tuple[int, str], int] = {}
        self.post: list[tuple[int, int, int, int]] = []

    def offer(self, member: int, topic: str, count: int, size: int = 0, rule: Rule | None = None) -> None:
        cap = self.caps[member]
        share: TopicShare = cap.share(topic, rule, self.now)
        cap.turn = share
        found = cap.available(count, 1, size, self.now)
        if found:
            cap.take(found, 1, size)
        cap.turn = None
        self.passed[(member, topic)] = self.passed.get((member, topic), 0) + found

    def step(self) -> None:
        self.now += MS
        for member, lease in enumerate(self.leases):
            if (self.now // MS + 3 * member) % 10 == 0:
                self.post += [(self.now + 2 * MS, member, messages, size) for _, messages, size in lease.asks(self.now)]
        for entry in [entry for entry in self.post if entry[0] <= self.now]:
            self.post.remove(entry)
            _, member, messages, size = entry
            got = self.owner.grant("cap", self.bucket, member, messages, size, self.now)
            leased = self.caps[member].leased
            if leased is not None and (messages > 0 or size > 0):
                leased.grant(*got, self.now)

    def run(self, seconds: float, *offers: tuple[int, str, float], size: int = 0, rules: dict[str, Rule] | None = None) -> dict[str, float]:
        """Messages a second that passed, by topic; `offers`: member, topic and messages a second."""
        before = dict(self.passed)
        left = [0.0] * len(offers)
        for _ in range(round(seconds * 1000)):
            for at, (member, topic, rate) in enumerate(offers):
                left[at] += rate / 1000
                if left[at] >= 1:
                    self.offer(member, topic, int(left[at]), size, (rules or {}).get(topic))
                    left[at] %= 1
            self.step()
        found: dict[str, float] = {}
        for (member, topic), count in self.passed.items():
            found[topic] = found.get(topic, 0) + (count - before.get((member, topic), 0)) / seconds
        return found


def cap(rate: int, **more: object) -> Limit:
    return Limit(messages=Rate(rate), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("rate", [200, 1000, 20_000])
@pytest.mark.parametrize("topics", [1, 5])
def test_one_worker_alone_has_the_whole_cap(rate: int, topics: int) -> None:
    workers = Workers(cap(rate))
    flood = [(0, f"t{number}", 3 * rate / topics) for number in range(topics)]
    workers.run(3, *flood)
    found = workers.run(5, *flood)
    assert sum(found.values()) == pytest.approx(rate, rel=0.02)
    assert min(found.values()) == pytest.approx(rate / topics, rel=0.06)


def test_the_sum_is_the_cap_while_the_load_moves_each_second() -> None:
    workers = Workers(cap(1000))
    workers.run(3, (0, "a", 3000), (0, "b", 3000))
    found = 0.0
    for second in range(9):
        found += sum(workers.run(1, (second % 3, "a", 3000), (second % 3, "b", 3000)).values())
    assert found == pytest.approx(9 * 1000, rel=0.02)


def test_what_one_worker_does_not_need_the_others_have() -> None:
    workers = Workers(cap(1000))
    offers = (0, "small", 100), (1, "flood", 5000), (2, "flood too", 5000)
    workers.run(3, *offers)
    found = workers.run(5, *offers)
    assert found["small"] == pytest.approx(100, rel=0.02)
    assert found["flood"] + found["flood too"] == pytest.approx(900, rel=0.03)
    assert min(found["flood"], found["flood too"]) >= 900 / 3, "of two, neither gets less than a third"


def test_no_more_than_burst_and_rate_passes_whatever_is_offered() -> None:
    workers = Workers(cap(500))
    passed = 0.0
    for second in range(20):
        offers = [(member, f"t{member}", 2000 * ((second >> member) & 1)) for member in range(3)]
        passed += sum(workers.run(1, *offers).values())
    assert passed <= 500 + 20 * 500


def test_a_protected_topic_has_its_demand_beside_floods_at_its_worker_and_elsewhere() -> None:
    workers = Workers(cap(1000))
    offers = (0, "vital", 200), (0, "flood", 5000), (1, "other", 5000), (2, "third", 5000)
    workers.run(3, *offers, rules={"vital": PROTECTED})
    found = workers.run(5, *offers, rules={"vital": PROTECTED})
    assert found["vital"] == pytest.approx(200, rel=0.03)
    assert sum(found.values()) == pytest.approx(1000, rel=0.02)


def test_bytes_are_shared_likewise() -> None:
    workers = Workers(Limit(bytes=Rate(1_000_000)))
    offers = (0, "a", 1000), (0, "b", 3000)
    workers.run(3, *offers, size=1000)
    found = workers.run(5, *offers, size=1000)
    assert sum(found.values()) == pytest.approx(1000, rel=0.02)
    assert found["a"] == pytest.approx(500, rel=0.06)


def test_a_worker_that_hears_of_an_overload_passes_less_and_the_whole_again_later() -> None:
    workers = Workers(cap(1000, adapt=Adapt(tighten=500, every_ns=SECOND, recover=10, floor=100)))
    workers.run(3, (0, "a", 5000))
    workers.caps[0].on_overload("slow", workers.now)
    workers.run(1, (0, "a", 5000))
    assert workers.run(2, (0, "a", 5000))["a"] == pytest.approx(500, rel=0.05)
    workers.now += 60 * SECOND
    workers.caps[0].recover(workers.now)
    workers.run(3, (0, "a", 5000))
    assert workers.run(3, (0, "a", 5000))["a"] == pytest.approx(1000, rel=0.03)


def test_without_its_parent_each_worker_goes_on_with_its_share() -> None:
    workers = Workers(cap(900))
    offers = [(member, f"t{member}", 3000) for member in range(3)]
    workers.run(10, *offers)  # the burst is no share of the rate
    for lease in workers.leases:
        lease.owner_lost(workers.now)
    workers.run(1, *offers)
    assert sum(workers.run(5, *offers).values()) == pytest.approx(900, rel=0.03)
