"""The ledger: all buckets in use, bounded.

Names come from clients. A ledger without a bound is a way to fill memory; one that forgets at random is a way to get a fresh burst: make
up names until yours is forgotten. So

* At most `live` buckets are at hand, those used last. When one more is needed the longest idle is evicted. If it is full by now it is
  dropped, for a bucket made anew is full too. Else it is **packed** (`limiter.buckets.packed_buckets`): 32 bytes say how full it is until
  it is full, and the next message for it goes on from there. Its counters begin again.
* When it can neither be dropped nor packed, new names share one **overflow** bucket per rule and level until there is room, and that
  is counted.

Buckets at hand and packed ones are `max_buckets` together, and each bucket that is not full is one of these. A bucket that is full is
worth as much as one made anew. So, whatever names are made up in whatever order, what one rule admits in a time T is at most
`(max_buckets + 1) * (burst + rate * T)`: each place is a bucket, and one more is the overflow.

Order of idleness is kept to the second: a bucket moves to the end of the order when it is used and has not moved for a second. So a
message costs a comparison and not a move. Making room looks at `MAX_PROBES` buckets at most. Those it cannot evict move to the end, so that
a few slow ones do not stand in the way for ever. Only what operators ask for ever walks over all buckets.

One thing is not exact: the place of a packed bucket is given away at the time at which it would have been full when it was packed. Where
its limit was lowered meanwhile, that is too early.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from limiter.algorithms.fills import fills_at
from limiter.buckets.bucket import EVICTED, GONE, IN_USE, OVERFLOW, Bucket
from limiter.buckets.factory import ALONE
from limiter.buckets.packed_buckets import PackedBuckets
from limiter.limits import NEVER

if TYPE_CHECKING:
    from limiter.rules.rule_set import Effective, Identity, RuleSet
    from limiter.rules.subject import Subject

TOUCH_NS: Final = 1_000_000_000  # ns; how exactly the order of idleness is kept
MAX_PROBES: Final = 8  # buckets looked at to make room; enough to get past some slow ones, few enough for the hot path; a guess
MIN_LIVE: Final = 100_000  # buckets at hand, of 0.9 kB each; as many as one sidecar may have topics
LIVE_DIVISOR: Final = 20  # of more than that one in so many is at hand; by default, of a million, MIN_LIVE
MAX_REMEMBERED_NS: Final = 3_600_000_000_000  # ns, 1 h; how long a restart keeps a fill that time alone does not end; a guess

CHANGED: Final = ("override", "quota", "quota+hour", "quota-shadow")  # origins of limits that are not their rule's own


def at_hand(max_buckets: int) -> int:
    """How many of `max_buckets` buckets, and how many keys, are kept ready for use."""
    return max(MIN_LIVE, max_buckets // LIVE_DIVISOR)


class Ledger:
    """The buckets in use, by identity: at most `live` at hand, and `max_buckets` with the packed ones, the overflow (one per rule)
    apart.

    Not thread safe: the judge's lock is.
    """

    __slots__ = ("_buckets", "_overflow", "_packed_buckets", "_packs", "evicted", "factory", "live", "overflowed", "packed")

    def __init__(self, max_buckets: int, live: int) -> None:
        if max_buckets < 1:
            raise ValueError(f"max_keys: {max_buckets} is less than 1")
        self.live = min(live, max_buckets)
        self.factory = ALONE  # what its buckets are of their limits
        self.overflowed = 0  # times a key had to share an overflow bucket
        self.evicted = 0  # buckets dropped to make room, for they were full
        self.packed = 0  # buckets packed to make room
        self._buckets: OrderedDict[Identity, Bucket] = OrderedDict()  # longest idle first
        self._overflow: dict[Identity, Bucket] = {}
        self._packs = max_buckets > self.live
        # A ledger so small that all are at hand has room for packed ones all the same: some were packed before a restart.
        self._packed_buckets = PackedBuckets(max_buckets - self.live if self._packs else max_buckets)

    def __len__(self) -> int:
        return len(self._buckets)

    def get(self, identity: Identity) -> Bucket | None:
        return self._buckets.get(identity)

    def list_buckets(self) -> list[Bucket]:
        return [*self._buckets.values(), *self._overflow.values()]

    def bucket(self, effective: Effective, subject: Subject, generation: int, since: int, now: int, before: list[Bucket]) -> Bucket:
        """The bucket of that identity, under what holds since `since`; made full if it is new, unless the key drew from another before.

        `before` are the buckets the key had until now: an override that moves a topic to another bucket must not buy it a burst.
        """
        identity = effective.identity
        bucket = self._buckets.get(identity)
        if bucket is None and len(self._buckets) >= self.live and not self.make_room(generation, since, now):
            bucket = self.overflow(effective, subject, generation, now)
        if bucket is None:
            bucket = Bucket(effective, subject, generation, now, self.factory)
            if not self.unpack(bucket, since) or bucket.algorithm.is_full(now):
                self.inherit(bucket, before, now)
            self._buckets[identity] = bucket
        else:
            self.touch(bucket, now)
            if bucket.generation != generation:
                bucket.adopt(effective, generation, since)
        return bucket

    def overflow(self, effective: Effective, subject: Subject, generation: int, now: int) -> Bucket:
        """What those share that find no room, one for each rule and level; apart from those whose limit was published or set live.

        Live changes are few and made by hand: each has its own, or one name's limit would be that of all.
        """
        identity = (effective.per, effective.rule.name, "", "")
        if effective.origin in CHANGED:
            origin = "quota" if effective.origin == "quota+hour" else effective.origin  # raised in this hour or not: they share one
            identity = (effective.per, effective.rule.name, origin, effective.thing if origin == "override" else "")
        bucket = self._overflow.get(identity)
        if bucket is None:
            bucket = self._overflow[identity] = Bucket(effective, subject, generation, now, self.factory, OVERFLOW)
        return bucket

    def unpack(self, bucket: Bucket, since: int) -> bool:
        """Give a bucket made anew the fill it was packed with, under what holds since `since`; False where it has none."""
        if not self._packed_buckets.written:
            return False
        row = self._packed_buckets.take(self._packed_buckets.hash_of(bucket.effective.identity))
        if row is None:
            return False
        at, fills, full_at = row
        if full_at > since:
            if at < since:
                fills, at = fills_at(fills, at, full_at, since), since
            bucket.algorithm.set_fills(fills, at)
        return True

    def inherit(self, bucket: Bucket, before: list[Bucket], now: int) -> None:
        """Give a new bucket the fill that its topic had in another bucket; not in that of a quota which was only tried beside it."""
        for earlier in before:
            held = earlier.effective
            if held.per == bucket.effective.per and held.origin != "quota-shadow" and earlier.state in (IN_USE, EVICTED):
                known = self._buckets.get(earlier.effective.identity, earlier)
                bucket.algorithm.follow(known.algorithm, now)

    def touch(self, bucket: Bucket, now: int) -> None:
        """Note that `bucket` is used; called when it was not for `TOUCH_NS`."""
        bucket.touched = now
        if bucket.state == IN_USE:
            self._buckets.move_to_end(bucket.effective.identity)

    def make_room(self, generation: int, since: int, now: int) -> bool:
        """Let the longest idle bucket go; False where none of the first few can be dropped or packed."""
        for _ in range(min(MAX_PROBES, len(self._buckets))):
            identity, bucket = self._buckets.popitem(last=False)
            if bucket.touched != now and self.evict(bucket, since if bucket.generation != generation else now, now):
                bucket.let_go(EVICTED)
                return True
            self._buckets[identity] = bucket  # perhaps touched now: the key being matched is about to draw from it
        return False

    def evict(self, bucket: Bucket, at: int, now: int) -> bool:
        """Drop or pack a bucket whose limit, as the bucket knows it, held until `at`."""
        algorithm = bucket.algorithm
        if algorithm.is_full(now):
            self.evicted += 1
            return True
        if not self._packs:
            return False
        after = algorithm.full_after_ns(at)
        if after >= NEVER or not self._packed_buckets.put(
            self._packed_buckets.hash_of(bucket.effective.identity), at, algorithm.fills(at), at + after, now
        ):
            return False
        self.packed += 1
        return True

    def find_current(self, bucket: Bucket, now: int) -> Bucket:
        """The bucket that has the place of `bucket` now, which may have been let go since; `bucket` itself where none has."""
        identity = bucket.effective.identity
        if bucket.state != EVICTED:
            return bucket
        found = self._buckets.get(identity)
        if found is None:
            bucket.come_back()
        if found is None and (len(self._buckets) < self.live or self.make_room(bucket.generation, 0, now)):
            self.unpack(bucket, 0)
            bucket.state = IN_USE
            bucket.touched = now
            self._buckets[identity] = bucket
        return bucket if found is None else found

    def discard(self, bucket: Bucket) -> None:
        """Forget a bucket whose thing will not come back."""
        if bucket.state == IN_USE:
            bucket.let_go(GONE)
            self._buckets.pop(bucket.effective.identity, None)

    def drop_stale_overflow(self, rules: RuleSet) -> None:
        """Drop the overflow of rules, and of live changes, that are gone."""
        for identity, bucket in list(self._overflow.items()):
            if rules.rule(identity[1]) is None or (identity[2] == "override" and bucket.subject.name not in rules.overrides):
                del self._overflow[identity]
                bucket.state = GONE

    # ---- over a restart --------------------------------------------------------------------------------------------

    @property
    def secret(self) -> bytes:
        """What the hashes of `fills_of` and `packed_rows` are keyed by."""
        return self._packed_buckets.secret

    def fills_of(self, buckets: list[Bucket], now: int) -> array[int]:
        """Rows, as `PackedBuckets.rows` has them, of those buckets that are at hand and not full; connections do not outlive a restart."""
        rows: array[int] = array("q")
        for bucket in buckets:
            if bucket.state == IN_USE and bucket.effective.per != "connection" and not bucket.algorithm.is_full(now):
                after = bucket.algorithm.full_after_ns(now)
                rows.extend(
                    (self._packed_buckets.hash_of(bucket.effective.identity), 0, bucket.algorithm.fills(now), min(after, MAX_REMEMBERED_NS))
                )
        return rows

    def packed_pages(self) -> int:
        return self._packed_buckets.pages()

    def packed_rows(self, page: int, now: int) -> array[int]:
        """The rows of one page of packed buckets that are not full."""
        return self._packed_buckets.rows(page, now)

    def restore(self, secret: bytes, rows: array[int], now: int, away_ns: int) -> None:
        """Begin with rows from before a restart, `away_ns` old at `now`; before the first bucket is made."""
        self._packed_buckets.secret = secret
        self._packed_buckets.take_rows(rows, now, away_ns)

    def __repr__(self) -> str:
        return f"<Ledger {len(self._buckets)}/{self.live} overflow={len(self._overflow)} evicted={self.evicted} packed={self.packed}>"
