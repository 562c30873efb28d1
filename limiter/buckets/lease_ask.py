"""What a member asks the owner of a bucket for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from limiter.buckets.bucket import Bucket
    from limiter.leases.lease import Lessee


class LeaseAsk:
    """Rule and lessee are those of the moment of the ask: when it is answered, the bucket may have others, of another algorithm."""

    __slots__ = ("bucket", "lessee", "messages", "rule", "size")

    def __init__(self, bucket: Bucket, lessee: Lessee, messages: int, size: int) -> None:
        self.bucket = bucket
        self.rule = bucket.rule
        self.lessee = lessee
        self.messages = messages  # as `Lessee.wish` has them
        self.size = size

    def __repr__(self) -> str:
        return f"<LeaseAsk {self.messages} {self.size} of {self.lessee}>"
