"""The state of one limit in use, as operators see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from limiter.algorithms.lag import LagControlledBucket
from limiter.buckets.bucket import OVERFLOW
from limiter.decisions.caps import cap_of
from limiter.protocols import protocol_of_level

if TYPE_CHECKING:
    from limiter.buckets.bucket import Bucket
    from limiter.rules.rule_set import Effective
    from limiter.rules.subject import Subject
    from limiter.topics import TopicName


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
        "would_refuse",
    )

    def __init__(self, bucket: Bucket, now: int) -> None:
        effective = bucket.effective
        self.effective = effective  # limit, origin, who and when, or the rule's place
        self.per = effective.per
        self.overflow = bucket.state == OVERFLOW  # shared by those that found no room in the ledger
        self.thing = bucket.thing()  # the topic, client, ... as text
        self.operation = bucket.subject.operation  # "produce" or "consume"
        self.name = None if self.overflow else changeable(effective, bucket.subject)  # of the key, or group, to change its limit by
        self.protocol = bucket.subject.name.protocol if effective.per == "topic" or protocol_of_level(effective.per) is not None else ""
        self.fill = bucket.algorithm.fill(now)  # 0 to 1
        slots = bucket.algorithm.slots()
        self.in_flight = None if slots is None else slots.taken  # requests the broker has not answered; None: the limit does not count them
        self.concurrent = None if slots is None else slots.bound()  # how many may be in flight now
        self.breaker = "open" if bucket.breaker.is_open(now) else "closed"
        self.wait_ns = bucket.peek_ns(now)  # until one message (of no bytes) would pass
        algorithm = bucket.algorithm
        self.rate_now = (
            algorithm.limit if isinstance(algorithm, LagControlledBucket) else None
        )  # the limit as it follows its consumers' backlog now
        cap = cap_of(bucket)
        tightened = cap is not None and cap.reason != ""
        self.cap_now = cap.now if cap is not None and tightened else None  # the limit that holds while its broker has too much to do
        self.cap_reason = "" if cap is None else cap.reason
        self.candidate = None if bucket.candidate is None else bucket.candidate.counts.copy()
        self.admitted = bucket.admitted  # messages since the bucket came into use
        self.admitted_bytes = bucket.admitted_bytes
        self.over_limit = bucket.over_limit
        self.held = bucket.held
        self.refused = bucket.refused
        self.shadow_refused = bucket.shadow_refused
        self.would_refuse = bucket.shadow_refused - bucket.shadow_before  # of these, what the rule itself has counted
        self.last_refused_at = None if bucket.last_refused_at < 0 else bucket.last_refused_at

    def __repr__(self) -> str:
        return f"<LimitState {self.per} {self.thing!r} {self.breaker} fill={self.fill:.2f} admitted={self.admitted} refused={self.refused}>"
