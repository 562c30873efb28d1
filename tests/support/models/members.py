"""An owner and its members without judges: what each grants and passes, millisecond by millisecond."""

from __future__ import annotations

from typing import TYPE_CHECKING

from limiter.leases.lease import Lease, Lessee
from limiter.leases.owner import LeaseOwner
from limiter.leases.sharing import MEMBERS, OWNERS, ROOM_NS, member_limit, owner_limit

if TYPE_CHECKING:
    from limiter.limits import Limit

MS = 1_000_000
START = 10**12


class World:
    """An owner and its members on a clock of 1 ms steps; each member's asks are made every `every` and answered `late` ms after."""

    def __init__(
        self, limit: Limit, members: int, every: int = 10, late: int = 2, algorithm: str = "token_bucket", room_ns: int = ROOM_NS
    ) -> None:
        self.limit = limit
        self.now = START
        self.members = members
        self.every = every
        self.late = late
        self.owner = LeaseOwner()
        self.algorithm = algorithm
        self.bucket = OWNERS[algorithm](owner_limit(limit, members, algorithm, room_ns), self.now)
        self.leases = [Lease(members) for _ in range(members)]
        self.leased = [self._member(lease) for lease in self.leases]
        self.admitted = [0] * members
        self.post: list[tuple[int, int, Lessee, int, int]] = []  # due, member, whose, messages, bytes
        self.cut = False  # nothing reaches the owner

    def step(self, offers: list[int], size: int = 0) -> None:
        """One millisecond: every member is offered so many messages of `size` bytes."""
        for member, offer in enumerate(offers):
            if offer:
                passed = self.leased[member].available(offer, 1, size, self.now)
                if passed:
                    self.leased[member].take(passed, 1, size)
                    self.admitted[member] += passed
        self.now += MS
        for member, lease in enumerate(self.leases):
            if (self.now // MS + 3 * member) % self.every == 0:
                for leased, messages, size_wanted in lease.asks(self.now):
                    if not self.cut:
                        self.post.append((self.now + self.late * MS, member, leased, messages, size_wanted))
        for due, member, leased, messages, wanted in [entry for entry in self.post if entry[0] <= self.now]:
            self.post.remove((due, member, leased, messages, wanted))
            got = self.owner.grant("k", self.bucket, member, messages, wanted, self.now)
            if messages > 0 or wanted > 0:
                leased.grant(*got, self.now)

    def run(self, milliseconds: int, offers: list[int], size: int = 0) -> int:
        """The same offer every millisecond; how many were admitted in all."""
        before = sum(self.admitted)
        for _ in range(milliseconds):
            self.step(offers, size)
        return sum(self.admitted) - before

    def kill(self, member: int) -> None:
        """It is replaced by one that knows nothing; answers on their way to it are lost."""
        self.post = [entry for entry in self.post if entry[1] != member]
        self.owner.member_left(member)
        self.leases[member] = Lease(self.members)
        self.leased[member] = self._member(self.leases[member])

    def _member(self, lease: Lease) -> Lessee:
        return MEMBERS[self.algorithm](member_limit(self.limit, self.algorithm), self.now, lease)

    def lose_owner(self) -> None:
        self.cut = True
        for lease in self.leases:
            lease.owner_lost(self.now)
