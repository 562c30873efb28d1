"""The state of one limit in use, as operators see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from limiter.ledger import OVERFLOW

if TYPE_CHECKING:
    from limiter.ledger import Level


class LimitState:
    """One limit at one moment. `last_refused_at` is monotonic ns, or None: the caller knows how to tell the time of day from it."""

    __slots__ = (
        "admitted",
        "admitted_bytes",
        "breaker",
        "effective",
        "fill",
        "last_refused_at",
        "name",
        "operation",
        "overflow",
        "per",
        "protocol",
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
        self.thing = "" if self.overflow else effective.thing  # the topic, client, ... as text
        self.operation = level.subject.operation  # "produce" or "consume"
        own = effective.per == "topic" and self.thing == level.subject.text and self.operation == "produce"
        self.name = level.subject.name if own else None  # of the key whose limit can be changed by its name
        self.protocol = level.subject.name.protocol if effective.per in {"topic", "exchange", "vhost"} else ""
        self.fill = level.bucket.fill(now)  # 0 to 1
        self.breaker = "open" if level.breaker.is_open(now) else "closed"
        self.wait_ns = level.wait_ns(1, 0, now)  # until one message (of no bytes) would pass
        self.admitted = level.admitted  # messages since the level came into use
        self.admitted_bytes = level.admitted_bytes
        self.refused = level.refused
        self.shadow_refused = level.shadow_refused
        self.last_refused_at = None if level.last_refused_at < 0 else level.last_refused_at

    def __repr__(self) -> str:
        return f"<LimitState {self.per} {self.thing!r} {self.breaker} fill={self.fill:.2f} admitted={self.admitted} refused={self.refused}>"
