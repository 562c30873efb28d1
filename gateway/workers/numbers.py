"""What a worker calls its buckets towards the parent, and what it tells of them: their counters, and those of their candidates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.workers.wire import Met
from limiter.buckets.bucket import IN_USE, OVERFLOW, Bucket
from limiter.leases.leased_bucket import LeasedBucket

if TYPE_CHECKING:
    from gateway.workers.wire import Outbox
    from limiter.keys import Key, Tally

STAYING: Final = (IN_USE, OVERFLOW)

# Bucket; admitted, their bytes, over the limit, held, refused, shadow refused (all since it was made); last refused, breaker open until
# (monotonic ns); how full, in millionths, where this worker's is all there is or a part that is divided, else -1.
Counts = tuple[int, int, int, int, int, int, int, int, int, int]
# Bucket; what its candidate would have admitted and refused, since when, and of which clients.
Tried = tuple[int, int, int, int, dict[str, int]]


class Numbers:
    """What this worker calls its buckets towards the parent."""

    def __init__(self) -> None:
        self.by_bucket: dict[Bucket, int] = {}
        self.buckets: dict[int, Bucket] = {}
        self.changed: dict[Bucket, None] = {}  # whose counters may differ from what was told last
        self._last = 0
        self._leaving: set[int] = set()  # had been let go when that was looked for last

    def of(self, bucket: Bucket, outbox: Outbox) -> int:
        """The bucket's number; the parent is told at its first use."""
        number = self.by_bucket.get(bucket)
        if number is None:
            self._last += 1
            number = self.by_bucket[bucket] = self._last
            self.buckets[number] = bucket
            outbox.put(introduction(number, bucket))
        return number

    def note(self, key: Key, tally: Tally) -> None:
        """An `Accounts` listener."""
        del tally
        for bucket in key.buckets:
            self.changed[bucket] = None

    def counts(self, outbox: Outbox, now: int) -> list[Counts]:
        """The counters of all buckets that were used since this was called before."""
        changed, self.changed = self.changed, {}
        return [
            (
                self.of(bucket, outbox), bucket.admitted, bucket.admitted_bytes, bucket.over_limit, bucket.held, bucket.refused,
                bucket.shadow_refused, bucket.last_refused_at, bucket.breaker.open_until,
                -1 if isinstance(bucket.algorithm, LeasedBucket) else round(1e6 * bucket.algorithm.fill(now)),
            )
            for bucket in changed
        ]  # fmt: skip

    def tried(self, outbox: Outbox) -> list[Tried]:
        """What their candidates have counted, of those of them that have one. Asked before `counts`."""
        found: list[Tried] = []
        for bucket in self.changed:
            if bucket.candidate is not None:
                counts = bucket.candidate.counts
                found.append((self.of(bucket, outbox), counts.admitted, counts.refused, counts.since, dict(counts.clients)))
        return found

    def forget(self) -> list[int]:
        """The numbers of buckets that the ledger has let go, as it had when this was called before; they are no longer known here either.

        Not at once: what was let go comes back where something in flight still holds it, and its counters go on.
        """
        gone = {number for number, bucket in self.buckets.items() if bucket.state not in STAYING and bucket not in self.changed}
        forgotten = sorted(gone & self._leaving)
        self._leaving = gone.difference(forgotten)
        for number in forgotten:
            self.by_bucket.pop(self.buckets.pop(number))
        return forgotten

    def __repr__(self) -> str:
        return f"<Numbers of {len(self.buckets)} buckets, {len(self.changed)} changed>"


def introduction(number: int, bucket: Bucket) -> Met:
    subject = bucket.subject
    name = subject.name
    group = None if subject.group is None else subject.group.encode()
    return Met(
        number, bucket.effective.identity, name.protocol, name.vhost, name.exchange, name.topic, subject.text, subject.listener,
        subject.client, subject.user, group, subject.operation, subject.connection, bucket.state == OVERFLOW,
    )  # fmt: skip
