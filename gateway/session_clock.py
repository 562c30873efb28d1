"""What time does to a session: heartbeats for a broker whose client is not read, and the deadlines of either end."""

from __future__ import annotations

from typing import Final

from gateway.messages import NEVER
from gateway.session import Session

LINGER_NS: Final = 10_000_000_000  # how long the second side may take to close after the first (a guess; brokers close at once)
STALLED_NS: Final = 60_000_000_000  # the same while bytes are still on their way to a side that does not read (a guess)


def tick(session: Session, now: int) -> None:
    """A few times a second: heartbeats that are due, deadlines that are over."""
    _beat(session, now)
    client = session.client
    upstream = session.upstream
    if client.hung_up and not session.first_end_at:
        session.first_end_at = now  # its end may stand behind bytes that are not read for now
    in_flight = client.backlog > 0 or upstream.backlog > 0
    moved_at = max(session.first_end_at, client.sent_at, upstream.sent_at)
    if session.first_end_at and now - moved_at > (STALLED_NS if in_flight else LINGER_NS):
        session.abort(session.first_end or session.cause or "client", "the other side did not close in time")
    elif now - session.opened_at > session.place.handshake_ns and not _begun(session):
        session.abort("handshake_timeout", "the client has not said one whole frame")


def _beat(session: Session, now: int) -> None:
    """Tell the broker that the client lives, where it is the gateway that keeps the client's bytes back."""
    conversation = session.conversation
    upstream = session.upstream
    interval = conversation.heartbeat_interval_ns()
    silent_since = max(upstream.sent_at, session.beat_at)
    if interval < NEVER and upstream.backlog == 0 and now - silent_since >= interval and _keeps_silent(session):
        beat = conversation.heartbeat()
        if beat:
            moved_at = upstream.sent_at
            upstream.queue(beat, 0, len(beat))
            upstream.flush(now)
            upstream.sent_at = moved_at  # a heartbeat is no progress
            session.beat_at = now


def _keeps_silent(session: Session) -> bool:
    """Whether it is the gateway, not the client, that keeps the client's bytes from the broker."""
    return session.draining or session.withheld() or session.conversation.held_bytes > 0 or session.batch is not None


def _begun(session: Session) -> bool:
    """Whether anything whole has come from the client."""
    return session.upstream.queued > 0 or session.client.queued > 0 or session.batch is not None or session.conversation.held_messages > 0
