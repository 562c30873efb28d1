"""A limit on requests in flight that several members share: each request ends after its latency, on a clock of 1 ms steps."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from gateway.pipeline.actions.table import OWNER_NS
from limiter.algorithms.slots import ANSWERED
from limiter.leases.lease import Lease, Lessee
from limiter.leases.owner import LeaseOwner
from limiter.leases.sharing import MEMBERS, OWNERS, member_limit
from limiter.limits import Limit

if TYPE_CHECKING:
    from collections.abc import Sequence

MS = 1_000_000
START = 10**12


class PlacesWorld:
    """Members, and the parent that owns the places; asks are made every `every` ms and answered `late` ms after."""

    def __init__(self, limit: Limit, members: int, every: int = 10, late: int = 2, algorithm: str = "concurrency") -> None:
        self.now = START
        self.owner = LeaseOwner()
        self.bucket = OWNERS[algorithm](limit, self.now)
        self.leases = [Lease(members) for _ in range(members)]
        self._algorithm = algorithm
        self._limit = member_limit(limit, algorithm, members)
        self.members: list[Lessee] = [MEMBERS[algorithm](self._limit, self.now, lease) for lease in self.leases]
        self.flights: list[deque[tuple[int, int]]] = [deque() for _ in range(members)]  # when it ends, when it began
        self.passed = [0] * members
        self.most = 0  # in flight at once
        self.cut = False  # nothing reaches the owner
        self.refused = 0
        self.held: list[list[tuple[int, int, int]]] = [[] for _ in range(members)]  # when they ask again, when in vain, how many
        self._every = every
        self._late = late
        self._post: list[tuple[int, int, int, int]] = []

    def in_flight(self) -> int:
        return sum(map(len, self.flights))

    def step(self, offers: Sequence[int], latency_ms: int) -> None:
        for member, offer in enumerate(offers):
            lessee, flights = self.members[member], self.flights[member]
            slots = lessee.slots()
            assert slots is not None
            while flights and flights[0][0] <= self.now:
                _, since = flights.popleft()
                slots.taken -= 1
                slots.heard_at = self.now
                slots.hear(self.now - since)
                lessee.heard(ANSWERED, 1, since, self.now)
            if self.held[member]:
                due = [entry for entry in self.held[member] if entry[0] <= self.now]
                self.held[member] = [entry for entry in self.held[member] if entry[0] > self.now]
                for _, deadline, count in due:
                    self._offer(member, count, deadline, latency_ms)
            if offer:
                self._offer(member, offer, self.now + OWNER_NS, latency_ms)
        self.most = max(self.most, self.in_flight())
        self.now += MS
        for member, lease in enumerate(self.leases):
            if (self.now // MS + 3 * member) % self._every == 0:
                for _, needed, held in lease.asks(self.now):
                    if not self.cut:
                        self._post.append((self.now + self._late * MS, member, needed, held))
        letters = [entry for entry in self._post if entry[0] <= self.now]
        self._post = [entry for entry in self._post if entry[0] > self.now]
        for _, member, needed, held in letters:
            self.members[member].grant(*self.owner.grant("k", self.bucket, member, needed, held, self.now), self.now)

    def _offer(self, member: int, count: int, deadline: int, latency_ms: int) -> None:
        """As with `action: reject`: what does not pass waits for the owner (`gateway.pipeline.actions.table`), or is refused."""
        lessee = self.members[member]
        passed = lessee.available(count, 1, 0, self.now)
        if passed:
            lessee.take(passed, 1, 0)
            self.flights[member].extend([(self.now + latency_ms * MS, self.now)] * passed)
            self.passed[member] += passed
        if passed == count:
            return
        if self.now < deadline and lessee.awaits_owner():
            again = min(deadline, self.now + lessee.wait_ns(1, 0, self.now))
            self.held[member].append((again, deadline, count - passed))
        else:
            self.refused += count - passed

    def run(self, milliseconds: int, offers: Sequence[int], latency_ms: int = 20) -> list[int]:
        """The same offer every millisecond; how many passed at each member."""
        before = list(self.passed)
        for _ in range(milliseconds):
            self.step(offers, latency_ms)
        return [now - then for now, then in zip(self.passed, before, strict=True)]

    def kill(self, member: int) -> None:
        """Its connections are closed, so nothing of it is in flight; another takes its place."""
        self.owner.member_left(member)
        self.flights[member].clear()
        self.held[member].clear()
        lease = self.leases[member] = Lease(len(self.members))
        self.members[member] = MEMBERS[self._algorithm](self._limit, self.now, lease)
        self._post = [entry for entry in self._post if entry[1] != member]
