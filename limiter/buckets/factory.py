"""The bucket factory: how a ledger's buckets are made of the limits that its rules name.

Where one process judges alone a bucket is the whole limit; else it is one side's part of it.

* **Alone**: the bucket is the limit's own.
* **A member** (`Lease` given): a bucket is this member's part of one that an owner has (`limiter.leases.sharing`). The bucket of those
  that found no room cannot be had in parts: it is divided evenly, each member with its own.
* **The owner** (members, no lease): a bucket holds what is not lent to its members.
* **A process of a fleet** (`fleet` given): a bucket is this process's part of one that Redis has, unless its rule says that it is the
  gateway's own. Limits that cannot be had in parts are whole in each gateway: gateways come and go, and no number to divide by would stay
  true. A worker is both, a member of its gateway and a process of the fleet.

A connection is in one process from its beginning to its end: its buckets are whole everywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from limiter.algorithms import ALGORITHMS
from limiter.fair_share.shared_bucket import SharedBucket
from limiter.leases.lease import Lease, Lessee
from limiter.leases.leased_bucket import LeasedBucket
from limiter.leases.sharing import MEMBERS, OWNERS, divide_limit, member_limit, owner_limit

if TYPE_CHECKING:
    from limiter.algorithms.base import Algorithm
    from limiter.limits import Limit
    from limiter.rules.rule import Rule


def is_leasable(rule: Rule) -> bool:
    """Whether several members can have parts of one bucket of this rule."""
    return rule.algorithm in MEMBERS and rule.per != "connection"


def lessee_of(algorithm: Algorithm) -> Lessee | None:
    """What has a part of an owner's bucket, and asks the owner for it; None: `algorithm` is whole."""
    if isinstance(algorithm, SharedBucket):
        return algorithm.leased
    return algorithm if isinstance(algorithm, Lessee) else None


class BucketFactory:
    """How buckets are made for one ledger. `apart` below: of those that found no room in it."""

    __slots__ = ("fleet", "lease", "members")

    def __init__(self, members: int, lease: Lease | None, fleet: Lease | None = None) -> None:
        self.fleet = fleet  # of what a fleet shares; None: there is none
        self.members = members  # of this gateway; 1: it is one process
        self.lease = lease

    def algorithm(self, rule: Rule, now: int, *, apart: bool) -> Algorithm:
        """A full bucket's algorithm under `rule`."""
        limit = self.limit(rule, apart=apart)
        lease = None if apart else self._lease_of(rule)
        if rule.is_cap():  # whose topics share what there is of it here
            return SharedBucket(limit, now, None if lease is None else LeasedBucket(limit, now, lease))
        if lease is not None:
            return MEMBERS[rule.algorithm](limit, now, lease)
        lends = self.members > 1 and self.lease is None and is_leasable(rule) and not apart
        return (OWNERS if lends else ALGORITHMS)[rule.algorithm](limit, now)

    def _lease_of(self, rule: Rule) -> Lease | None:
        """Whose parts buckets of this rule are; None: nobody's."""
        if self._is_of_fleet(rule):
            return self.fleet
        return self.lease if self.members > 1 and is_leasable(rule) else None

    def limit(self, rule: Rule, *, apart: bool) -> Limit:
        """The limit that such a bucket is made of, or changed to."""
        if rule.per == "connection":
            return rule.limit
        if not apart and self._lease_of(rule) is not None:
            return member_limit(rule.limit, rule.algorithm, self.members)
        if self.members == 1:
            return rule.limit
        if self.lease is not None:
            return divide_limit(rule.limit, self.members)
        return owner_limit(rule.limit, self.members, rule.algorithm) if is_leasable(rule) and not apart else rule.limit

    def _is_of_fleet(self, rule: Rule) -> bool:
        return self.fleet is not None and rule.is_fleets()

    def candidate(self, rule: Rule) -> Limit | None:
        """The limit that the candidate of such a bucket is judged by. It has no owner: members divide it, a fleet's gateways do not."""
        limit = rule.candidate_limit()
        if limit is None or self.members == 1 or self.lease is None or rule.per == "connection":
            return limit
        return divide_limit(limit, self.members)

    def __repr__(self) -> str:
        part = "whole" if self.members == 1 else "owner's part" if self.lease is None else "a member's part"
        if self.fleet is not None:
            part += " of a fleet"
        return f"<BucketFactory {part}, {self.members} members>"


ALONE: Final = BucketFactory(1, None)
