"""Caps: the levels that topics share (`limiter.fair_share.shared_bucket`), as the judge finds them and operators see them.

A cap is a rule with `per: listener` for what is published, kept as a token bucket. What consumers get (`operation: consume`) waits in line
anyway, first come first served (`limiter.decisions.reservation`); other algorithms hold nothing that could be shared out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from limiter.fair_share.shared_bucket import SharedBucket

if TYPE_CHECKING:
    from limiter.buckets.ledger import Level
    from limiter.fair_share.max_min import Share
    from limiter.limits import Limit
    from limiter.rules.rule_set import Identity, RuleSet


def is_shared(level: Level) -> bool:
    """Whether what a topic may have of this limit is its share of a cap."""
    return isinstance(level.bucket, SharedBucket)


def take_turns(levels: list[Level], text: str, now: int) -> Share | None:
    """The share of topic `text` in the cap among `levels`, which is put last: it looks at what the others let pass. None: there is no cap.

    Topics that found no room in the ledger have one share together: a name made up buys nothing.
    """
    cap: Level | None = None
    own: Level | None = None
    for level in levels:
        if isinstance(level.bucket, SharedBucket):
            cap = level
        elif level.effective.per == "topic":
            own = level
    if cap is None:
        return None
    levels.remove(cap)
    levels.append(cap)
    bucket = cap.bucket
    assert isinstance(bucket, SharedBucket)
    if own is not None and own.is_overflow():
        return bucket.share_of_others()
    return bucket.share(text, None if own is None else own.rule, now)


class CapState:
    """One cap at one moment."""

    __slots__ = ("counts", "limit", "listener", "now", "permille", "reason", "rule", "since", "topics")

    def __init__(self, level: Level, bucket: SharedBucket) -> None:
        tightening = bucket.tightening
        self.listener = level.effective.thing
        self.rule = level.rule.name
        self.limit: Limit = bucket.limit  # as the rule has it
        self.now: Limit = bucket.bucket.limit  # as it holds
        self.permille = tightening.permille
        self.reason = tightening.reason  # why it is less than the rule has; ""
        self.since = tightening.since  # monotonic ns
        self.counts = dict(tightening.counts)  # times it was tightened, by reason
        self.topics = bucket.topics()

    def __repr__(self) -> str:
        return f"<CapState {self.listener} {self.rule} {self.permille / 10:g}% {self.reason}>"


def places_of(rules: RuleSet, listener: str) -> list[Identity]:
    """Whose buckets the caps of a listener may be."""
    caps = [rule.name for rule in rules.rules if rule.is_cap()]
    return [("listener", own, "", listener) for own in (["", *caps] if caps else [])]


def heed(levels: list[Level], reason: str, now: int) -> list[tuple[str, CapState]]:
    """Tighten the caps among `levels` for `reason`, or let them recover where that is "". News: ("tightening" or "recovered", state)."""
    news: list[tuple[str, CapState]] = []
    for level in levels:
        bucket = level.bucket
        if not isinstance(bucket, SharedBucket):
            continue
        if reason:
            if bucket.signal(reason, now):
                news.append(("tightening", CapState(level, bucket)))
        elif bucket.ease(now):
            news.append(("recovered", CapState(level, bucket)))
    return news


def cap_of(level: Level) -> CapState | None:
    """The state of a cap; None: that level is none."""
    bucket = level.bucket
    return CapState(level, bucket) if isinstance(bucket, SharedBucket) else None


def states_of(levels: list[Level]) -> list[CapState]:
    """The state of each cap among `levels`."""
    found: list[CapState] = []
    for level in levels:
        state = cap_of(level)
        if state is not None:
            found.append(state)
    return found
