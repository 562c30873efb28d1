"""The lease: what all leased buckets of one member have in common (`limiter.leases.leased_bucket`)."""

from __future__ import annotations

from limiter.algorithms.base import Algorithm


class Lessee(Algorithm):
    """A bucket of which this member has a part."""

    __slots__ = ("_lease", "bucket", "listed", "passed_over", "replaced", "unused")

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self.bucket: object = None  # whatever its member knows it by; None: its member has let it go
        self.listed = False  # in `lease.active`
        self.passed_over = 0  # rounds in a row in which its ask was put off
        self.unused = False  # its member has let it go
        self.replaced = False  # another has taken its place, and its debt: it asks for nothing any more

    def is_part_of(self, lease: Lease) -> bool:
        return self._lease is lease

    def use_for(self, bucket: object) -> None:
        """Its member uses it, as `bucket`."""
        self.bucket = bucket
        self.unused = False

    def let_go(self) -> None:
        """Its member has let it go. The two know each other, and what does is freed by a collection of garbage alone, which so large a heap
        sees once in an hour: 60 MB of buckets of names that were used once (measured 2026-11).
        """
        self.unused = True
        if not self.listed:
            self.bucket = None

    def wish(self, now: int) -> tuple[int, int]:
        """Messages and bytes to ask the owner for now; negative: given back. (0, 0): nothing."""
        raise NotImplementedError

    def grant(self, messages: int, size: int, now: int) -> None:
        """The owner's answer to what was wished for."""
        raise NotImplementedError

    def put_off(self, now: int) -> None:
        """The owner was not asked for what was wished for."""
        raise NotImplementedError


class Lease:
    """The terms all buckets of one member share: of how many it is one, whether the owner is there; and which have something to ask."""

    __slots__ = ("_unlisted", "active", "members", "owner_lost_at", "parted")

    def __init__(self, members: int, *, parted: bool = False) -> None:
        """`parted`: some members may lose the owner while others have it, as machines do; then none goes on with more than its share."""
        if members < 1:
            raise ValueError(f"{members} members is less than 1")
        self.members = members  # may change: gateways come and go
        self.parted = parted
        self.owner_lost_at = 0  # monotonic ns since when there is no owner; 0: it is there
        self.active: list[Lessee] = []  # used since they were settled, or in debt
        self._unlisted: list[Lessee] = []  # at the last `asks`, whose caller may still have given something back for them

    def asks(self, now: int) -> list[tuple[Lessee, int, int]]:
        """What to ask the owner for now: bucket, messages, bytes (negative: given back). Call it every few milliseconds."""
        found: list[tuple[Lessee, int, int]] = []
        kept: list[Lessee] = []
        for leased in self._unlisted:
            if leased.unused:
                leased.let_go()
        self._unlisted = []
        for leased in self.active:
            if leased.replaced:
                continue
            messages, size = leased.wish(now)
            if messages != 0 or size != 0:
                found.append((leased, messages, size))
            if leased.listed:
                kept.append(leased)
            elif leased.unused:
                self._unlisted.append(leased)
        self.active = kept
        return found

    def owner_lost(self, now: int) -> None:
        """The owner is gone: go on alone."""
        if self.owner_lost_at == 0:
            self.owner_lost_at = now

    def owner_back(self) -> None:
        """The owner is back."""
        self.owner_lost_at = 0

    def __repr__(self) -> str:
        state = "orphaned" if self.owner_lost_at else "held"
        return f"<Lease {state} by 1 of {self.members}, {len(self.active)} active>"
