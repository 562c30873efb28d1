"""What operators see of one session: its state, what holds it up, and its line in `GET /v1/connections`.

Reads only. The state is the session's own; the bottleneck is found from the states of its stages as `limiter.md` 6 says: while a stage
waits for credit the one behind it is slow.
"""

from __future__ import annotations

from gateway.session import Session


def bottleneck(session: Session, now: int) -> str:
    """Who keeps this connection from being faster: "none", "limit" (held by a rule), "limiter", "broker" or "client"."""
    if session.conversation.held_messages:
        return "limit"
    if session.client.backlog > session.shared.backlog_bytes:
        return "client"
    if session.upstream.backlog > 0 or session.forward.credit.flow(now):
        return "broker"
    return "limiter" if session.decode.credit.flow(now) else "none"


def state(session: Session) -> str:
    if session.draining:
        return "draining"
    if session.conversation.held_messages:
        return "throttled"
    return "flow" if session.withheld() else "running"


def describe(session: Session, now: int) -> dict[str, object]:
    """One item of `GET /v1/connections`."""
    conversation = session.conversation
    return {
        "id": session.number,
        "listener": session.place.listener,
        "protocol": session.place.protocol,
        "client": f"{conversation.circumstances.client}:{conversation.circumstances.client_port}",
        "user": conversation.user,
        "state": state(session),
        "bottleneck": bottleneck(session, now),
        "age_seconds": round((now - session.opened_at) / 1e9, 3),
        "bytes_from_client": session.client.received,
        "bytes_to_client": session.client.sent,
        "backlog_to_client": session.client.backlog,
        "backlog_to_broker": session.upstream.backlog,
        "held_messages": conversation.held_messages,
        "held_bytes": conversation.held_bytes,
        "messages_forwarded": session.forward.messages,
        **conversation.describe(),
    }
