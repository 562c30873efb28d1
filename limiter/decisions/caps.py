"""Caps: the buckets that topics share (`limiter.fair_share.shared_bucket`), as the judge finds them and operators see them.

A cap is a rule with `per: listener` for published messages, kept as a token bucket. Requests of consumers (`operation: consume`) wait in
line anyway, first come first served (`limiter.reservation`); other algorithms hold nothing that could be shared out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from limiter.fair_share.shared_bucket import SharedBucket
from limiter.rules.level_keys import LevelKey

if TYPE_CHECKING:
    from limiter.buckets.bucket import Bucket
    from limiter.fair_share.shared_bucket import TopicShare
    from limiter.limits import Limit
    from limiter.rules.rule_set import Identity, RuleSet


def is_cap(bucket: Bucket) -> bool:
    """Whether what a topic may have of this limit is its share of a cap."""
    return isinstance(bucket.algorithm, SharedBucket)


def share_of_cap(buckets: list[Bucket], text: str, now: int) -> TopicShare | None:
    """The share of topic `text` in the cap among `buckets`, which is put last: it looks at what the others let pass. None: there is no cap.

    Topics that found no room in the ledger have one share together: a name made up buys nothing.
    """
    cap: Bucket | None = None
    own: Bucket | None = None
    for bucket in buckets:
        if isinstance(bucket.algorithm, SharedBucket):
            cap = bucket
        elif bucket.effective.per == "topic":
            own = bucket
    if cap is None:
        return None
    buckets.remove(cap)
    buckets.append(cap)
    algorithm = cap.algorithm
    assert isinstance(algorithm, SharedBucket)
    if own is not None and own.is_overflow():
        return algorithm.share_of_others()
    return algorithm.share(text, None if own is None else own.rule, now)


class CapState:
    """One cap at one moment."""

    __slots__ = ("counts", "limit", "listener", "now", "permille", "reason", "rule", "since", "topics")

    def __init__(self, bucket: Bucket, algorithm: SharedBucket) -> None:
        adaptive_cap = algorithm.adaptive_cap
        self.listener = bucket.effective.thing
        self.rule = bucket.rule.name
        self.limit: Limit = bucket.rule.limit  # as the rule has it
        self.now: Limit = adaptive_cap.scale_limit()  # as it holds
        self.permille = adaptive_cap.permille
        self.reason = adaptive_cap.reason  # why it is less than the rule has; ""
        self.since = adaptive_cap.since  # monotonic ns
        self.counts = dict(adaptive_cap.counts)  # times it was tightened, by reason
        self.topics = algorithm.topics()

    def __repr__(self) -> str:
        return f"<CapState {self.listener} {self.rule} {self.permille / 10:g}% {self.reason}>"


def cap_identities(rules: RuleSet, listener: str) -> list[Identity]:
    """Whose buckets the caps of a listener may be."""
    caps = [rule.name for rule in rules.rules if rule.is_cap()]
    changed_live = LevelKey("produce", "listener", "", listener) in rules.level_overrides
    return [("listener", own, "", listener) for own in (["", *caps] if caps or changed_live else [])]


def observe_broker_load(buckets: list[Bucket], reason: str, now: int) -> list[tuple[str, CapState]]:
    """Tighten the caps among `buckets` for `reason`, or let them recover where that is "". News: ("tightening" or "recovered", state)."""
    news: list[tuple[str, CapState]] = []
    for bucket in buckets:
        algorithm = bucket.algorithm
        if not isinstance(algorithm, SharedBucket):
            continue
        if reason:
            if algorithm.on_overload(reason, now):
                news.append(("tightening", CapState(bucket, algorithm)))
        elif algorithm.recover(now):
            news.append(("recovered", CapState(bucket, algorithm)))
    return news


def cap_of(bucket: Bucket) -> CapState | None:
    """The state of a cap; None: that bucket is none."""
    algorithm = bucket.algorithm
    return CapState(bucket, algorithm) if isinstance(algorithm, SharedBucket) else None


def states_of(buckets: list[Bucket]) -> list[CapState]:
    """The state of each cap among `buckets`."""
    found: list[CapState] = []
    for bucket in buckets:
        state = cap_of(bucket)
        if state is not None:
            found.append(state)
    return found
