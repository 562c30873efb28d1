"""What is in force: the rules by which requests are judged now, and the buckets that keys draw from under them.

Rules are replaced by one assignment, from any thread (`replace`). Nothing else changes at that moment: the next decision takes them over
(`adopt`), keys match anew when they are used, and a bucket goes on under its new limit when its key does, or when its state is asked for.

The caller of everything but `replace` has the judge's lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from limiter.algorithms.lag import LagControlledBucket
from limiter.algorithms.token_bucket import TokenBucket
from limiter.buckets.bucket import IN_USE, OVERFLOW, Bucket
from limiter.buckets.candidate import RuleCandidates
from limiter.buckets.ledger import TOUCH_NS, Ledger, at_hand
from limiter.decisions.caps import cap_identities, share_of_cap
from limiter.decisions.origins import subject_of
from limiter.limits import NEVER, SECOND
from limiter.operations import PRODUCE

if TYPE_CHECKING:
    from limiter.buckets.leased_bucket_ref import LeasedBucketRef
    from limiter.fair_share.shared_bucket import TopicShare
    from limiter.keys import Key
    from limiter.rules.rule_set import Effective, Identity, RuleSet
    from limiter.rules.subject import Subject

MAX_RULES_BEFORE: Final = 1000  # rules whose buckets are looked for when an owner makes one; a guess, 0.1 ms
MAX_LAG_CONTROLLED: Final = 1000  # topics whose backlog is asked about, each once a second; a guess; others stay at their fastest
RETRY_NS: Final = SECOND  # ns; how often a key on an overflow bucket looks for room of its own


class InForce:
    """`rules` are the ones judged by, `latest` those to be adopted; the same where nothing has changed."""

    __slots__ = ("_lag_controlled", "_replaced_at", "_since", "candidates", "generation", "latest", "ledger", "rules", "tries")

    def __init__(self, rules: RuleSet, max_keys: int, live: int) -> None:
        self.latest = rules
        self.rules = rules
        self.generation = rules.generation  # of `rules`
        self.candidates = RuleCandidates()
        self.candidates.adopt(rules, -1)
        self.tries = rules.has_candidates  # whether any rule in force has a candidate
        self.ledger = Ledger(max_keys, live or at_hand(max_keys))
        self._replaced_at: int | None = None  # when `latest` were put in force (monotonic ns), where `replace` was told
        self._since = 0  # when `rules` came into force: at `replace`, or at the first decision after
        self._lag_controlled: dict[Identity, Bucket] = {}  # whose rate is to be set; at most MAX_LAG_CONTROLLED

    def replace(self, rules: RuleSet, now: int | None) -> None:
        """Judge by `rules` from the next `adopt` on; they hold since `now` (monotonic ns), or since then."""
        self._replaced_at = now  # first: a thread that sees the new rules sees their time
        self.latest = rules

    def adopt(self, now: int) -> None:
        """Take over the latest rules."""
        rules = self.latest
        if rules is self.rules:
            return
        self.rules = rules
        self.generation = rules.generation
        replaced_at = self._replaced_at
        self._since = now if replaced_at is None else min(now, replaced_at)  # `now` may be of a submission made before
        self.candidates.adopt(rules, self._since)
        self.tries = rules.has_candidates
        self.ledger.drop_stale_overflow(rules)

    # ---- the buckets of a key ---------------------------------------------------------------------------------------

    def match(self, key: Key, now: int) -> None:
        """Find the buckets of a key that is new, or was matched under other rules, or lost a bucket."""
        subject = subject_of(key)
        before = key.buckets
        buckets = [
            self.ledger.bucket(effective, subject, self.generation, self._since, now, before or self._moved_from(effective, subject))
            for effective in self.rules.matched(subject)
            if effective.rule.mode != "off" and not (key.unnamed and effective.per == "topic" and not effective.limit.is_shut())
        ]
        crowded = any(bucket.state == OVERFLOW for bucket in buckets)
        if crowded:
            key.rematch_at = now + RETRY_NS
            if not any(bucket.state == OVERFLOW for bucket in before):
                self.ledger.overflowed += 1
        key.buckets = buckets
        if self.rules.follows:
            self._note_lag_controlled(buckets)
        key.counted = any(bucket.algorithm.slots() is not None for bucket in buckets)
        key.share = share_of_cap(buckets, key.text, now) if key.operation == "produce" else None
        published = key.operation == PRODUCE  # what is delivered has been taken by the broker: refusing it would bring it back without end
        key.max_size = min([bucket.rule.max_message_size or NEVER for bucket in buckets], default=NEVER) if published else NEVER
        key.priced = any(bucket.rule.cost is not None for bucket in buckets)
        key.in_runs = not self.tries and not key.priced and goes_in_runs(buckets, key.share)
        key.generation = self.generation

    def _moved_from(self, effective: Effective, subject: Subject) -> list[Bucket]:
        """What a thing has drawn from that a live change gives one bucket, for a key that is new: another key's clients did."""
        return self._earlier_buckets(effective.identity, subject) if effective.origin == "override" else []

    def refresh(self, key: Key, now: int) -> None:
        """Keep the order of idleness; match a key again that lost a bucket, or waits for room of its own."""
        again = False
        for bucket in key.buckets:
            if now - bucket.touched > TOUCH_NS:
                self.ledger.touch(bucket, now)
            if bucket.state == OVERFLOW:
                again = again or now >= key.rematch_at
            elif bucket.state != IN_USE:
                again = True
        if again:
            self.match(key, now)

    # ---- limits that follow a backlog (`algorithms.lag`) -----------------------------------------------------------

    def _note_lag_controlled(self, buckets: list[Bucket]) -> None:
        for bucket in buckets:
            if isinstance(bucket.algorithm, LagControlledBucket) and bucket.state == IN_USE:
                identity = bucket.effective.identity
                if len(self._lag_controlled) < MAX_LAG_CONTROLLED or identity in self._lag_controlled:
                    self._lag_controlled[identity] = bucket

    def list_lag_controlled(self) -> list[Bucket]:
        """The buckets in use whose rate follows a backlog."""
        gone = [
            name
            for name, bucket in self._lag_controlled.items()
            if bucket.state != IN_USE or not isinstance(bucket.algorithm, LagControlledBucket)
        ]
        for name in gone:
            del self._lag_controlled[name]
        return list(self._lag_controlled.values())

    # ---- buckets not used since the rules changed ------------------------------------------------------------------

    def bring_in_force(self, bucket: Bucket) -> bool:
        """Bring `bucket` under the rules in force, if it is not; False where none holds for it any more."""
        if bucket.generation == self.generation:
            return True
        if bucket.state == OVERFLOW:
            return False
        effective = self._matching_effective(bucket)
        if effective is None:
            return False
        bucket.adopt(effective, self.generation, self._since)
        return True

    def _matching_effective(self, bucket: Bucket) -> Effective | None:
        for effective in self.rules.matched(bucket.subject):
            if effective.identity == bucket.effective.identity and effective.rule.mode != "off":
                return effective
        return None

    def caps(self, listener: str) -> list[Bucket]:
        """The caps of a listener that are in use."""
        found = [self.ledger.get(place) for place in cap_identities(self.rules, listener)]
        return [bucket for bucket in found if bucket is not None and self.bring_in_force(bucket)]

    # ---- buckets of which others have parts (`limiter.leases.owner`) -----------------------------------------------------

    def leased_bucket(self, ref: LeasedBucketRef, now: int) -> Bucket | None:
        """The owner's bucket of what members have parts of; None where no rule is for it (any more)."""
        bucket = ref.bucket
        if bucket is not None and bucket.state == IN_USE and bucket.generation == self.generation:
            if now - bucket.touched > TOUCH_NS:
                self.ledger.touch(bucket, now)
            return bucket
        ref.bucket = None
        for effective in self.rules.matched(ref.subject):
            if effective.identity != ref.identity or effective.rule.mode == "off":
                continue
            if ref.overflow:
                ref.bucket = shared = self.ledger.overflow(effective, ref.subject, self.generation, now)
                if shared.generation != self.generation:
                    shared.adopt(effective, self.generation, self._since)
            else:
                before = self._earlier_buckets(ref.identity, ref.subject)
                ref.bucket = bucket = self.ledger.bucket(effective, ref.subject, self.generation, self._since, now, before)
                self._note_lag_controlled([bucket])
        return ref.bucket

    def _earlier_buckets(self, identity: Identity, subject: Subject) -> list[Bucket]:
        """The buckets that the same thing has drawn from under other rules for the operation: a new one begins no fuller than those."""
        if self.ledger.get(identity) is not None:
            return []
        per, own, protocol, thing = identity
        names = ["", *(rule.name for rule in self.rules.rules[:MAX_RULES_BEFORE] if rule.per == per)]
        found = [self.ledger.get((per, name, protocol, thing)) for name in names if name != own]
        return [bucket for bucket in found if bucket is not None and subject.operation in bucket.rule.match.operations()]

    def __repr__(self) -> str:
        return f"<InForce revision={self.latest.revision} {self.ledger}>"


def goes_in_runs(buckets: list[Bucket], share: TopicShare | None) -> bool:
    """Whether `limiter.decisions.runs` may judge by these: token buckets, one of them perhaps the cap of `share`, none of them in shadow
    mode."""
    for bucket in buckets:
        algorithm = bucket.algorithm
        if bucket.shadow or not (isinstance(algorithm, TokenBucket) or (share is not None and algorithm is share.cap)):
            return False
    return len(buckets) > 0
