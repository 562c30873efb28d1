"""What a scrape tells of all open sessions, summed: how many have a broker that says it is blocked, and for how long they have waited.

All of it is one moment, so no message passes meanwhile. Hence one walk for all of it, in a module that is compiled: of 4,000 sessions it
takes 0.6 ms, and 4 to 5 ms where it is interpreted; two walks, interpreted, took 6 (2026-11).
"""

from __future__ import annotations

from gateway.session.session import Session


class FlowSums:
    """What the open sessions of one listener have seen of their brokers' own flow control."""

    __slots__ = ("blocked", "blocked_ns", "send_blocked_ns")

    def __init__(self) -> None:
        self.blocked = 0  # sessions whose broker says now that it is blocked
        self.blocked_ns = 0
        self.send_blocked_ns = 0  # how long bytes have waited for the broker's socket

    def __repr__(self) -> str:
        return f"<FlowSums {self.blocked} blocked, {self.blocked_ns} ns; sends {self.send_blocked_ns} ns>"


class SessionSums:
    """Of all open sessions. The times go on while something waits now."""

    __slots__ = ("flows", "limiter_ns", "reader_ns")

    def __init__(self) -> None:
        self.reader_ns = 0  # how long the readers have waited for credit
        self.limiter_ns = 0
        self.flows: dict[str, FlowSums] = {}  # by listener; none for one without sessions

    def flow(self, listener: str) -> FlowSums:
        """A listener's."""
        return self.flows.get(listener) or FlowSums()

    def __repr__(self) -> str:
        return f"<SessionSums reader={self.reader_ns} limiter={self.limiter_ns} ns, {self.flows}>"


def sum_up(sessions: dict[int, Session], now: int) -> SessionSums:
    """All sessions as they are `now` (monotonic ns)."""
    sums = SessionSums()
    for session in sessions.values():
        listener = session.listener_config.name
        flow = sums.flows.get(listener)
        if flow is None:
            flow = sums.flows[listener] = FlowSums()
        if session.conversation.broker_blocked:
            flow.blocked += 1
        flow.blocked_ns += session.flow.broker_blocked_ns(now)
        flow.send_blocked_ns += session.upstream.send_blocked_ns(now)
        sums.reader_ns += session.decode.credit.blocked_ns(now)
        sums.limiter_ns += session.forward.credit.blocked_ns(now)
    return sums
