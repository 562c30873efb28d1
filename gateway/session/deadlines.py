"""Deadlines of a session: heartbeats, silent peers, either end; and until when an idle session needs no look (`idle_sessions.py`)."""

from __future__ import annotations

from typing import Final

from gateway.session.ending import give_client_up, send_close
from gateway.session.graceful_close import advance_graceful_close
from gateway.session.heartbeats import BROKER_SILENT, CLIENT_SILENT
from gateway.session.session import Session
from gateway.session.states import CLOSING, DRAINING, HALF_CLOSED, OPEN
from limiter.limits import NEVER

LINGER_NS: Final = 10_000_000_000  # for the second side to close after the first; brokers close at once (a guess)
# The same while bytes are still on their way to a side that does not read, or the broker handles what was forwarded (a guess)
STALLED_LINGER_NS: Final = 60_000_000_000
# As LINGER_NS, where the handshake took too long: closed within a second (docs/design/reliability.md F01)
HANDSHAKE_LINGER_NS: Final = 750_000_000
HANDSHAKE_TIMEOUT: Final = "handshake_timeout"
CALM_NS: Final = 700_000_000  # without a byte before a session counts as idle: by then all that lasts a tick or two is over (a guess)
MAX_IDLE_NS: Final = 10_000_000_000  # between two looks: what `quiet_until` overlooks is then late, not lost (a guess)
MIN_FRAME_RATE: Final = 4096  # bytes a second; of a frame that takes longer than frame_timeout: no healthy network is so slow (a guess)
MAX_UNREAD_NS: Final = 300_000_000_000  # for a client to take none of the bytes that wait for it (docs/design/reliability.md F03)


def tick(session: Session, now: int) -> None:
    """A few times a second: heartbeats that are due, deadlines that are over."""
    client = session.client
    upstream = session.upstream
    if client.hangup_pending and not session.first_end_at:
        session.first_end_at = now  # its end may come behind bytes that are not read for now
    if session.conversation.tick(now):
        session.again = True
    if session.reports.endings:
        session.end_in_flight(now)
        session.again = True
    if session.graceful_close is not None:
        advance_graceful_close(session, now)
    if session.close_due <= now:
        send_close(session, session.detail, session.cause, now)
    silent = session.heartbeats.tick(now, reads_client=_reads_client(session), reads_broker=session.reads_broker())
    still = _still_forwards(session)
    if session.first_end_at and not still:
        in_flight = client.backlog > 0 or upstream.backlog > 0 or session.conversation.awaits_close_ok
        moved_at = max(session.first_end_at, client.sent_at, upstream.sent_at)
        patience = STALLED_LINGER_NS if in_flight and not session.client_silent else LINGER_NS
        if session.cause == HANDSHAKE_TIMEOUT:
            patience = HANDSHAKE_LINGER_NS
        if now - moved_at > patience:
            late = "the other side did not close in time"
            if session.conversation.awaits_close_ok:
                late = "the broker has not answered connection.close in time"
            session.abort(session.first_end or session.cause or "client", late)
    elif silent == CLIENT_SILENT:
        seconds = session.heartbeats.client_silence_ns(now) // 1_000_000_000
        give_client_up(session, f"the client has been silent for {seconds} s", "heartbeat", now)
    elif silent == BROKER_SILENT:
        seconds = session.heartbeats.broker_silence_ns(now) // 1_000_000_000
        session.broker_silent = True
        send_close(session, f"the broker behind this gateway has been silent for {seconds} s", "broker_heartbeat", now)
    elif unread_ns(session, now) > MAX_UNREAD_NS:
        seconds = unread_ns(session, now) // 1_000_000_000
        give_client_up(session, f"the client has taken nothing of {client.backlog} bytes for {seconds} s", "client_stalled", now)
    elif still:
        return
    elif not session.conversation.handshake_done:
        _enforce_handshake_timeout(session, now)
    elif _frame_overdue(session, now):
        _close_unfinished(session, now)
    elif session.listener_config.idle_ns:
        _close_idle(session, now)


def _still_forwards(session: Session) -> bool:
    """Whether messages that a client sent before it went wait here, for a limit or for a broker that takes none, however long it takes."""
    close = session.graceful_close
    if session.state >= CLOSING or (close is not None and close.cause != "drain"):
        return False  # who closes a connection gives up what waits there
    if not session.gone_at and session.state != HALF_CLOSED:
        return False
    return session.conversation.lines.holds_close() or session.reports.broker_blocked


def quiet_until(session: Session, now: int) -> int:
    """Until when, in monotonic ns, `tick` has nothing to do unless the session has a turn before that; 0 where it has to look each time.

    Change a session outside of its turn by `Sweeper.attempt`, or wake it: an idle one would not notice.
    """
    client = session.client
    upstream = session.upstream
    conversation = session.conversation
    heard_at = max(client.received_at, upstream.received_at)
    if (
        session.state != OPEN
        or now - heard_at < CALM_NS
        or now - client.sent_at < CALM_NS
        or now - upstream.sent_at < CALM_NS  # not `max` of three, which compiled code asks Python for
        or session.batch is not None
        or session.first_end_at > 0
        or session.close_due < NEVER
        or session.graceful_close is not None
        or session.shared.memory_full
        or session.conversation.broker_unfinished() > 0
        or client.hangup_pending
        or client.backlog + upstream.backlog > 0
        or not conversation.handshake_done
        or session.budget.waiting() > 0
        or conversation.needs_ticks()
        or session.withheld()
        or not session.reads_broker()
    ):
        return 0
    due = min(now + MAX_IDLE_NS, session.heartbeats.due())
    if session.frame_due:
        due = min(due, session.frame_due)
    if session.listener_config.idle_ns:
        due = min(due, heard_at + session.listener_config.idle_ns)
    return due if due > now else 0


def unread_ns(session: Session, now: int) -> int:
    """For how long the client has taken nothing of what waits for it; 0 where nothing waits."""
    return now - session.client.sent_at if session.client.backlog > 0 else 0


def _reads_client(session: Session) -> bool:
    """Whether the client's bytes are read as they come."""
    return session.batch is None and session.state < DRAINING and not session.gone_at and not session.withheld()


def _frame_overdue(session: Session, now: int) -> bool:
    """Whether the client has begun a frame and has not gone on with it, although it is read."""
    undecoded = session.decode.undecoded()
    if undecoded == 0 or session.decode.pending or session.state != OPEN or not _reads_client(session):
        session.frame_due = 0
        return False
    received = session.client.received
    window = session.listener_config.frame_ns // session.shared.patience_divisor
    if session.frame_due and session.frame_began == received - undecoded:
        if now < session.frame_due:
            return False
        if received - session.frame_received < MIN_FRAME_RATE * window // 1_000_000_000:
            return True
    session.frame_began = received - undecoded
    session.frame_received = received
    session.frame_due = now + window
    return False


def _close_unfinished(session: Session, now: int) -> None:
    seconds = session.listener_config.frame_ns / session.shared.patience_divisor / 1e9
    reason = f"a frame of which {session.decode.undecoded()} bytes have come did not go on for {seconds:g} s (frame_timeout)"
    send_close(session, reason, "frame_timeout", now)


def _enforce_handshake_timeout(session: Session, now: int) -> None:
    """Close a session whose handshake is not over in time, however busily either side sends a byte now and then."""
    accepted_at = session.opened_at if session.permit is None else session.permit.accepted_at
    handshake_ns = session.listener_config.handshake_ns // session.shared.patience_divisor
    if session.state >= CLOSING or now - accepted_at <= handshake_ns:
        return
    fault = "the handshake was not over" if session.upstream.received else "the broker behind this gateway said nothing"
    reason = f"{fault} within {handshake_ns / 1e9:g} s (handshake_timeout)"
    session.detail = reason
    send_close(session, reason, HANDSHAKE_TIMEOUT, now)


def _close_idle(session: Session, now: int) -> None:
    """Close a session on which neither side has sent anything for the listener's idle_timeout, and nothing is on its way."""
    client = session.client
    upstream = session.upstream
    heard_at = max(client.received_at, upstream.received_at)
    waiting = session.budget.waiting()
    busy = session.state >= DRAINING or session.batch is not None or waiting > 0 or client.backlog + upstream.backlog > 0
    idle_ns = session.listener_config.idle_ns // session.shared.patience_divisor
    if not busy and now - heard_at > idle_ns:
        seconds = idle_ns / 1e9
        send_close(session, f"nothing was received from either side for {seconds:g} s (idle_timeout)", "idle", now)
