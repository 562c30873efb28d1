"""What a lease owner knows of a bucket whose parts its members have (`limiter.leases.owner`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from limiter.buckets.bucket import Bucket
    from limiter.rules.rule_set import Identity
    from limiter.rules.subject import Subject


class LeasedBucketRef:
    """A bucket whose parts the owner hands out: its identity, and the owner's own bucket, once found."""

    __slots__ = ("bucket", "identity", "overflow", "subject")

    def __init__(self, identity: Identity, subject: Subject, *, overflow: bool = False) -> None:
        self.identity = identity
        self.overflow = overflow  # of those that found no room in a member's ledger
        self.subject = subject  # of the first message
        self.bucket: Bucket | None = None  # the owner's, where it was last found

    def __repr__(self) -> str:
        return f"<LeasedBucketRef {self.identity}>"
