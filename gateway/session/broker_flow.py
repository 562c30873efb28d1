"""The broker's own flow control, as a client sees it: `connection.blocked`, busy answers, sends that wait, confirms that take their time.

RabbitMQ's management API says `running` of a connection that spends all its time blocked in sends (measured, `docs/design/amqp.md` 2), so
none of this is asked of the broker: all of it is seen on the connection.
"""

from __future__ import annotations

import time
from typing import Final

from gateway.counting.histogram import Histogram
from gateway.pipeline.conversation import Conversation
from gateway.pipeline.empties import NO_ITEMS
from gateway.pipeline.reports import CONFIRMED, NOT_SAMPLED, SAMPLED
from gateway.transport.channel import Channel

# Seconds; a fsync: 0.2. The type is spelt out because a compiled module takes an inferred tuple of floats for unset (mypyc 2.4).
CONFIRM_BUCKETS: Final[tuple[float, ...]] = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


QUEUE_BUCKETS: Final[tuple[float, ...]] = (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds; the broker's bound: 0.2


BUSY_EVERY_NS: Final = 10_000_000_000  # between two log lines about one listener's broker (a guess)


class BrokerFlow:
    """What the connections of one listener have seen. The two times are of connections that are over."""

    def __init__(self) -> None:
        self.confirm_latency = Histogram(CONFIRM_BUCKETS)
        self.busy: dict[str, int] = {}  # busy answers, by reason (RocketMQ)
        self.queue_period = Histogram(
            QUEUE_BUCKETS
        )  # for how long such a request had waited in the broker's queue, where the answer says so
        self.blocked_ns = 0
        self.blocked_now = 0  # connections whose broker says that it is blocked
        self.blocked_since = 0.0  # seconds since 1970; when the first of these was; 0: none is
        self.blocked_reason = ""  # as the broker said it last
        self.send_blocked_ns = 0
        self._logged: dict[str, int] = {}  # `busy` as of the last log line
        self._logged_at = -BUSY_EVERY_NS

    def block(self, reason: str) -> None:
        """The broker of one more connection says that it is blocked."""
        if self.blocked_now == 0:
            self.blocked_since = time.time()
        self.blocked_now += 1
        self.blocked_reason = reason

    def unblock(self) -> None:
        """One connection fewer is blocked."""
        self.blocked_now -= 1
        if self.blocked_now == 0:
            self.blocked_since, self.blocked_reason = 0.0, ""

    def busy_to_log(self, now: int) -> dict[str, int]:
        """Busy answers by reason since the last log line; empty until BUSY_EVERY_NS have passed since it."""
        if self._logged == self.busy or now - self._logged_at < BUSY_EVERY_NS:
            return {}
        fresh = {reason: count - self._logged.get(reason, 0) for reason, count in self.busy.items() if count > self._logged.get(reason, 0)}
        self._logged = dict(self.busy)
        self._logged_at = now
        return fresh


class FlowWatch:
    """Watches one connection. Conversations have no clock, so their changes are noticed and timed here, once per turn of the session."""

    __slots__ = ("blocked_at", "blocked_ns", "conversation", "flow", "sampled_at", "upstream")

    def __init__(self, flow: BrokerFlow, conversation: Conversation, upstream: Channel) -> None:
        self.flow = flow
        self.conversation = conversation
        self.upstream = upstream
        self.blocked_at = -1  # monotonic ns; when the broker said that it is blocked; -1: it is not
        self.blocked_ns = 0  # blocked times that are over
        self.sampled_at = 0  # when the publish was sent whose confirm is timed

    def observe(self, now: int) -> None:
        """Notice what has changed since the last turn."""
        reports = self.conversation.reports
        if reports.broker_blocked:
            if self.blocked_at < 0:
                self.blocked_at = now
                self.flow.block(reports.blocked_reason)
        elif self.blocked_at >= 0:
            self.blocked_ns += now - self.blocked_at
            self.blocked_at = -1
            self.flow.unblock()
        if reports.busy:
            self._count_busy()
        sample = reports.sample
        if sample == SAMPLED:
            if self.sampled_at == 0:
                self.sampled_at = now
        elif sample != NOT_SAMPLED:
            if sample == CONFIRMED and self.sampled_at:
                self.flow.confirm_latency.observe((now - self.sampled_at) / 1e9)
            self.sampled_at = 0
            reports.sample = NOT_SAMPLED

    def _count_busy(self) -> None:
        flow = self.flow
        for signal in self.conversation.reports.busy:
            flow.busy[signal.reason] = flow.busy.get(signal.reason, 0) + 1
            if signal.period_ms >= 0:
                flow.queue_period.observe(signal.period_ms / 1000)
        self.conversation.reports.busy = NO_ITEMS

    def broker_blocked_ns(self, now: int) -> int:
        """For how long the broker has been blocked so far: a counter."""
        return self.blocked_ns + (max(now - self.blocked_at, 0) if self.blocked_at >= 0 else 0)

    def close(self, now: int) -> None:
        """The connection is over: add its times to the listener's."""
        self.flow.blocked_ns += self.broker_blocked_ns(now)
        if self.blocked_at >= 0:
            self.blocked_ns = self.broker_blocked_ns(now)
            self.blocked_at = -1
            self.flow.unblock()
        self.flow.send_blocked_ns += self.upstream.send_blocked_ns(now)

    def __repr__(self) -> str:
        return f"<FlowWatch {'blocked' if self.blocked_at >= 0 else 'open'} {self.blocked_ns} ns before>"
