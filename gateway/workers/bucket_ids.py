"""The ids under which a worker speaks of its buckets to the parent, and what it reports of them: their counters and their candidates'."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.workers.wire import BucketAnnounced
from limiter.buckets.bucket import IN_USE, OVERFLOW, Bucket
from limiter.buckets.factory import lessee_of

if TYPE_CHECKING:
    from gateway.workers.wire import Outbox
    from limiter.keys import Key, Tally
    from limiter.leases.lease import Lease

STAYING: Final = (IN_USE, OVERFLOW)

# Bucket; admitted, their bytes, over the limit, held, refused, shadow refused (all since it was made); last refused, breaker open until
# (monotonic ns); how full, in millionths, where this worker's is all there is or a part that is divided, else -1.
BucketCounters = tuple[int, int, int, int, int, int, int, int, int, int]
# Bucket; what its candidate would have admitted and refused, since when, and of which clients.
CandidateCounters = tuple[int, int, int, int, dict[str, int]]


class BucketIds:
    """A number for each of this worker's buckets. The parent learns it with the bucket, at its first use."""

    def __init__(self, lease: Lease) -> None:
        """`lease`: of the buckets whose fill is the parent's."""
        self._lease = lease
        self.by_bucket: dict[Bucket, int] = {}
        self.buckets: dict[int, Bucket] = {}
        self.changed: dict[Bucket, None] = {}  # whose counters may differ from those reported last
        self._last = 0
        self._leaving: set[int] = set()  # that the ledger had let go at the last look

    def id_of(self, bucket: Bucket, outbox: Outbox) -> int:
        """The bucket's id; at its first use the bucket is announced to the parent."""
        known = self.by_bucket.get(bucket)
        if known is None:
            self._last += 1
            known = self.by_bucket[bucket] = self._last
            self.buckets[known] = bucket
            outbox.put(announcement(known, bucket))
        return known

    def note_change(self, key: Key, tally: Tally) -> None:
        """An observer of `Accounts`."""
        del tally
        for bucket in key.buckets:
            self.changed[bucket] = None

    def counters(self, outbox: Outbox, now: int) -> list[BucketCounters]:
        """The counters of all buckets that were used since the last call."""
        changed, self.changed = self.changed, {}
        return [
            (
                self.id_of(bucket, outbox), bucket.admitted, bucket.admitted_bytes, bucket.over_limit, bucket.held, bucket.refused,
                bucket.shadow_refused, bucket.last_refused_at, bucket.breaker.open_until,
                -1 if self._is_leased(bucket) else round(1e6 * bucket.algorithm.fill(now)),
            )
            for bucket in changed
        ]  # fmt: skip

    def _is_leased(self, bucket: Bucket) -> bool:
        algorithm = bucket.algorithm
        leased = lessee_of(algorithm)
        return leased is not None and leased.is_part_of(self._lease)

    def candidate_counters(self, outbox: Outbox) -> list[CandidateCounters]:
        """The counters of their candidates, where there are any. Called before `counters`, which forgets what has changed."""
        found: list[CandidateCounters] = []
        for bucket in self.changed:
            if bucket.candidate is not None:
                counts = bucket.candidate.counts
                found.append((self.id_of(bucket, outbox), counts.admitted, counts.refused, counts.since, dict(counts.clients)))
        return found

    def forget(self) -> list[int]:
        """Forget the buckets that the ledger has let go, at this call and at the last one; their ids.

        Not at once: a bucket comes back where something in flight still holds it, and its counters go on.
        """
        gone = {number for number, bucket in self.buckets.items() if bucket.state not in STAYING and bucket not in self.changed}
        forgotten = sorted(gone & self._leaving)
        self._leaving = gone.difference(forgotten)
        for number in forgotten:
            self.by_bucket.pop(self.buckets.pop(number))
        return forgotten

    def __repr__(self) -> str:
        return f"<BucketIds of {len(self.buckets)} buckets, {len(self.changed)} changed>"


def announcement(number: int, bucket: Bucket) -> BucketAnnounced:
    subject = bucket.subject
    name = subject.name
    group = None if subject.group is None else subject.group.encode()
    return BucketAnnounced(
        number, bucket.effective.identity, name.protocol, name.vhost, name.exchange, name.topic, subject.text, subject.sender, group,
        subject.operation, subject.connection, bucket.state == OVERFLOW,
    )  # fmt: skip
