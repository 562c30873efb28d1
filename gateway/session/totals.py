"""Totals over all open sessions for one scrape: which brokers say that they are blocked, and how long sessions have waited for what.

All of it is one moment, so no message passes meanwhile. Hence one walk for all of it, in a compiled module: 4,000 sessions take 0.6 ms,
and 4 to 5 ms interpreted; two interpreted walks took 6 (2026-11).
"""

from __future__ import annotations

from gateway.session.session import Session


class FlowTotals:
    """What the open sessions of one listener have seen of their brokers' own flow control."""

    __slots__ = ("blocked", "blocked_ns", "send_blocked_ns")

    def __init__(self) -> None:
        self.blocked = 0  # sessions whose broker says now that it is blocked
        self.blocked_ns = 0
        self.send_blocked_ns = 0  # for how long bytes have waited for the broker's socket

    def __repr__(self) -> str:
        return f"<FlowTotals {self.blocked} blocked, {self.blocked_ns} ns; sends {self.send_blocked_ns} ns>"


class SessionTotals:
    """Of all open sessions. A wait that goes on now is included up to now."""

    __slots__ = ("flows", "limiter_ns", "reader_ns")

    def __init__(self) -> None:
        self.reader_ns = 0  # for how long the readers have waited for credit
        self.limiter_ns = 0
        self.flows: dict[str, FlowTotals] = {}  # by listener; a listener without sessions has none

    def flow(self, listener: str) -> FlowTotals:
        """One listener's; zeros for one without sessions."""
        return self.flows.get(listener) or FlowTotals()

    def __repr__(self) -> str:
        return f"<SessionTotals reader={self.reader_ns} limiter={self.limiter_ns} ns, {self.flows}>"


def session_totals(sessions: dict[int, Session], now: int) -> SessionTotals:
    """The totals of these sessions `now` (monotonic ns)."""
    totals = SessionTotals()
    for session in sessions.values():
        listener = session.listener_config.name
        flow = totals.flows.get(listener)
        if flow is None:
            flow = totals.flows[listener] = FlowTotals()
        if session.reports.broker_blocked:
            flow.blocked += 1
        flow.blocked_ns += session.flow.broker_blocked_ns(now)
        flow.send_blocked_ns += session.upstream.send_blocked_ns(now)
        totals.reader_ns += session.decode.credit.blocked_ns(now)
        totals.limiter_ns += session.forward.credit.blocked_ns(now)
    return totals
