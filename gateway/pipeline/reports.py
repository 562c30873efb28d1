"""What a conversation has to report. It has no accounts, no clock and no limiter: the session takes the reports and sees to them.

Whatever a conversation adds here sets `unread`; the session looks at the records after each turn and empties them. The exception are
`endings`, which the session looks at by themselves.
"""

from __future__ import annotations

from typing import Final

from gateway.pipeline.empties import NO_ITEMS, added
from gateway.pipeline.parts import Part
from limiter.in_flight import Ending
from limiter.keys import Key

NOT_SAMPLED: Final = 0  # what `Reports.sample` may be
SAMPLED: Final = 1  # forwarded, not confirmed yet
CONFIRMED: Final = 2  # acked or nacked by the broker
LOST: Final = 3  # it will not be confirmed: its channel was closed

ROOM: Final = 0  # what `Reports.full` may be
FULL_FOR_USER: Final = 1  # the client was refused, because its user has as many connections as may be
FULL_FOR_VHOST: Final = 2  # because its virtual host has
FULL: Final = 3  # because the broker has


class Delivered:
    """What happened to deliveries of `key` since the session last counted."""

    __slots__ = ("forwarded", "key", "received", "redelivered", "size")

    def __init__(self, key: Key, received: int, forwarded: int, size: int, redelivered: int = 0) -> None:
        self.key = key
        self.received = received  # messages the broker has sent
        self.forwarded = forwarded  # of them passed on to the client
        self.size = size  # bytes of the latter
        self.redelivered = redelivered  # of those received, how many had been delivered before

    def __repr__(self) -> str:
        return f"<Delivered {self.forwarded}/{self.received} {self.key}>"


class BusySignal:
    """A broker's word that it is overloaded: why, and (-1: not said) how long a request had waited there, in a queue how long."""

    __slots__ = ("period_ms", "queued", "reason")

    def __init__(self, reason: str, period_ms: int, queued: int) -> None:
        self.reason = reason
        self.period_ms = period_ms
        self.queued = queued

    def __repr__(self) -> str:
        return f"<BusySignal {self.reason} period={self.period_ms}ms queued={self.queued}>"


class Reports:
    """One conversation's. `Conversation.reports`."""

    def __init__(self) -> None:
        # In the order in which a turn of the session looks at them, see `Session`.
        self.unread = False  # something below, but for `endings`, is new
        self.broker_blocked = False  # the broker has said that it takes no more publishes for now
        self.endings: list[Ending] = []  # requests in flight that have ended (`limiter/in_flight.py`); the session tells the judge
        self.gateway_requests: list[Part] = NO_ITEMS  # requests to the gateway itself: answered by `Conversation.answer`, never forwarded
        self.abandoned: list[Part] = NO_ITEMS  # given up while the client is still there (its channel was closed); the session counts them
        self.delivered: list[Delivered] = NO_ITEMS  # what became of deliveries; the session counts it
        self.busy: list[BusySignal] = NO_ITEMS  # what the broker has said of being overloaded; `broker_flow.py` counts it
        self.full = ROOM  # whether the client was refused by a limit on connections
        self.close_reason = ""  # why the gateway ends this connection, once a rule has said so
        self.blocked_reason = ""  # of `broker_blocked`, in the broker's words
        self.sample = NOT_SAMPLED  # how far the one forwarded publish has come whose confirm is timed (`broker_flow.py`)

    def give_up(self, part: Part) -> None:
        """`part` goes nowhere, and the client is still there."""
        self.abandoned = added(self.abandoned, part)
        self.unread = True

    def ask_gateway(self, part: Part) -> None:
        """`part` asks something of the gateway itself."""
        self.gateway_requests = added(self.gateway_requests, part)
        self.unread = True

    def report_full(self, full: int) -> None:
        """The client was refused by a limit on connections: FULL_FOR_USER, FULL_FOR_VHOST or FULL."""
        self.full = full
        self.unread = True

    def set_blocked(self, reason: str = "", *, blocked: bool) -> None:
        """Whether the broker takes publishes has changed."""
        self.broker_blocked = blocked
        self.blocked_reason = reason
        self.unread = True

    def set_sample(self, sample: int) -> None:
        """How far the publish has come whose confirm is timed."""
        if sample != self.sample:
            self.sample = sample
            self.unread = True

    def __repr__(self) -> str:
        kept = (self.endings, self.gateway_requests, self.abandoned, self.delivered, self.busy)
        return f"<Reports {'unread' if self.unread else 'read'} {'/'.join(str(len(each)) for each in kept)}>"
