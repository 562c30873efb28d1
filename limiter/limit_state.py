"""The state of one limit in use, as operators see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from limiter.algorithms.lag import Following
from limiter.buckets.ledger import OVERFLOW
from limiter.decisions.caps import cap_of
from limiter.protocols import protocol_of_level

if TYPE_CHECKING:
    from limiter.buckets.ledger import Level
    from limiter.keys import TopicName
    from limiter.rules.matching import Subject
    from limiter.rules.rule_set import Effective


def changeable(effective: Effective, subject: Subject) -> TopicName | None:
    """The name by which the limit can be changed live: a topic's, or that of a group of topics; None: it has none."""
    if effective.per != "topic" or subject.operation != "produce":
        return None
    if effective.thing == subject.text:
        return subject.name
    words = effective.rule.routing_key_words
    return None if words is None else subject.group_of_topics(words)


class LimitState:
    """One limit at one moment. `last_refused_at` is monotonic ns, or None: the caller knows how to tell the time of day from it.

    Of the messages it let through (`admitted`) some may have been `held` first. `over_limit` counts those that found it used up, each once,
    whatever became of them; `refused` those that this limit cost in the end, being the one they would have had to wait longest for.
    """

    __slots__ = (
        "admitted",
        "admitted_bytes",
        "breaker",
        "candidate",
        "cap_now",
        "cap_reason",
        "concurrent",
        "effective",
        "fill",
        "held",
        "in_flight",
        "last_refused_at",
        "name",
        "operation",
        "over_limit",
        "overflow",
        "per",
        "protocol",
        "rate_now",
        "refused",
        "shadow_refused",
        "thing",
        "wait_ns",
    )

    def __init__(self, level: Level, now: int) -> None:
        effective = level.effective
        self.effective = effective  # limit, origin, who and when, or the rule's place
        self.per = effective.per
        self.overflow = level.state == OVERFLOW  # shared by those that found no room in the ledger
        self.thing = level.thing()  # the topic, client, ... as text
        self.operation = level.subject.operation  # "produce" or "consume"
        self.name = None if self.overflow else changeable(effective, level.subject)  # of the key, or group, to change its limit by
        self.protocol = level.subject.name.protocol if effective.per == "topic" or protocol_of_level(effective.per) is not None else ""
        self.fill = level.bucket.fill(now)  # 0 to 1
        slots = level.bucket.slots()
        self.in_flight = None if slots is None else slots.taken  # requests the broker has not answered; None: the limit does not count them
        self.concurrent = None if slots is None else slots.most  # how many may be in flight now
        self.breaker = "open" if level.breaker.is_open(now) else "closed"
        self.wait_ns = level.peek_ns(now)  # until one message (of no bytes) would pass
        bucket = level.bucket
        self.rate_now = bucket.limit if isinstance(bucket, Following) else None  # the limit as it follows its consumers' backlog now
        cap = cap_of(level)
        tightened = cap is not None and cap.reason != ""
        self.cap_now = cap.now if cap is not None and tightened else None  # the limit that holds while its broker has too much to do
        self.cap_reason = "" if cap is None else cap.reason
        self.candidate = None if level.candidate is None else level.candidate.counts.copy()
        self.admitted = level.admitted  # messages since the level came into use
        self.admitted_bytes = level.admitted_bytes
        self.over_limit = level.over_limit
        self.held = level.held
        self.refused = level.refused
        self.shadow_refused = level.shadow_refused
        self.last_refused_at = None if level.last_refused_at < 0 else level.last_refused_at

    def __repr__(self) -> str:
        return f"<LimitState {self.per} {self.thing!r} {self.breaker} fill={self.fill:.2f} admitted={self.admitted} refused={self.refused}>"
