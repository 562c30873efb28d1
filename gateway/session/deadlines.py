"""What time does to a session: heartbeats, silent peers, the deadlines of either end; and when it may rest (`idle_sessions.py`)."""

from __future__ import annotations

from typing import Final

from gateway.pipeline.parts import NEVER
from gateway.session.ending import say_farewell
from gateway.session.graceful_close import attend_departure
from gateway.session.heartbeats import BROKER_SILENT, CLIENT_SILENT
from gateway.session.session import Session

LINGER_NS: Final = 10_000_000_000  # how long the second side may take to close after the first (a guess; brokers close at once)
STALLED_NS: Final = 60_000_000_000  # the same while bytes are still on their way to a side that does not read (a guess)
PARTING_NS: Final = 750_000_000  # the same for one whose handshake took too long: gone within a second (docs/design/reliability.md F01)
HANDSHAKE_TIMEOUT: Final = "handshake_timeout"
CALM_NS: Final = 700_000_000  # without a byte before a session is at rest: what lasts a tick or two after the last one is over
REST_NS: Final = 10_000_000_000  # at most; what is forgotten below is then late, not lost (a guess)
SLOWEST_READER_NS: Final = 300_000_000_000  # how long a client may take none of the bytes that wait for it (docs/design/reliability.md F03)


def tick(session: Session, now: int) -> None:
    """A few times a second: heartbeats that are due, deadlines that are over."""
    client = session.client
    upstream = session.upstream
    if client.hung_up and not session.first_end_at:
        session.first_end_at = now  # its end may stand behind bytes that are not read for now
    session.conversation.release_late_slots(now)
    if session.conversation.endings:
        session.end_flights(now)
        session.again = True
    if session.conversation.tick():
        session.again = True
    if session.departure is not None:
        attend_departure(session, now)
    if session.farewell_due <= now:
        say_farewell(session, session.detail, session.cause, now)
    silent = session.heartbeats.tick(now, reads_client=_reads_client(session), reads_broker=session.reads_broker())
    if session.first_end_at:
        in_flight = client.backlog > 0 or upstream.backlog > 0
        moved_at = max(session.first_end_at, client.sent_at, upstream.sent_at)
        patience = STALLED_NS if in_flight else LINGER_NS
        if session.cause == HANDSHAKE_TIMEOUT:
            patience = PARTING_NS
        if now - moved_at > patience:
            session.abort(session.first_end or session.cause or "client", "the other side did not close in time")
    elif silent == CLIENT_SILENT:
        seconds = session.heartbeats.client_silence_ns(now) // 1_000_000_000
        session.client_dead = True
        say_farewell(session, f"the client has been silent for {seconds} s", "heartbeat", now)
    elif silent == BROKER_SILENT:
        seconds = session.heartbeats.broker_silence_ns(now) // 1_000_000_000
        session.broker_dead = True
        say_farewell(session, f"the broker behind this gateway has been silent for {seconds} s", "broker_heartbeat", now)
    elif client.backlog > 0 and now - client.sent_at > SLOWEST_READER_NS:
        say_farewell(session, "the client does not read", "client_stalled", now)
    elif not session.conversation.handshake_done:
        _hasten(session, now)
    elif session.listener_config.idle_ns:
        _close_idle(session, now)


def quiet_until(session: Session, now: int) -> int:
    """Until when, in monotonic ns, `tick` has nothing to do unless the session has a turn before that; 0 where it has to look each time.

    Who changes a session outside of its turn does so by `Sweeper.attempt` or wakes it: one at rest would not notice.
    """
    client = session.client
    upstream = session.upstream
    conversation = session.conversation
    heard_at = max(client.received_at, upstream.received_at)
    if (
        session.over
        or now - heard_at < CALM_NS
        or now - client.sent_at < CALM_NS
        or now - upstream.sent_at < CALM_NS  # not `max` of three, which compiled code asks Python for
        or session.batch is not None
        or session.first_end_at > 0
        or session.farewell_due < NEVER
        or session.draining
        or session.departure is not None
        or session.shared.memory_full
        or client.hung_up
        or client.backlog + upstream.backlog > 0
        or conversation.draining
        or not conversation.handshake_done
        or conversation.held_messages + conversation.held_polls + conversation.parked_messages > 0
        or conversation.needs_ticks()
        or session.withheld()
        or not session.reads_broker()
    ):
        return 0
    due = min(now + REST_NS, session.heartbeats.due())
    if session.listener_config.idle_ns:
        due = min(due, heard_at + session.listener_config.idle_ns)
    return due if due > now else 0


def _reads_client(session: Session) -> bool:
    """Whether what the client sends is read at once."""
    return session.batch is None and not session.draining and not session.withheld()


def _hasten(session: Session, now: int) -> None:
    """The handshake is not over: close the session when its time is, however busily either side trickles."""
    accepted_at = session.opened_at if session.permit is None else session.permit.accepted_at
    if session.conversation.draining or now - accepted_at <= session.listener_config.handshake_ns:
        return
    who = "the handshake was not over" if session.upstream.received else "the broker behind this gateway said nothing"
    reason = f"{who} within {session.listener_config.handshake_ns / 1e9:g} s (handshake_timeout)"
    session.detail = reason
    say_farewell(session, reason, HANDSHAKE_TIMEOUT, now)


def _close_idle(session: Session, now: int) -> None:
    """Neither side has said anything for the listener's idle_timeout, and nothing is on its way."""
    client = session.client
    upstream = session.upstream
    heard_at = max(client.received_at, upstream.received_at)
    waiting = session.conversation.held_messages + session.conversation.held_polls + session.conversation.parked_messages
    busy = session.draining or session.batch is not None or waiting > 0 or client.backlog + upstream.backlog > 0
    if not busy and now - heard_at > session.listener_config.idle_ns:
        seconds = session.listener_config.idle_ns / 1e9
        say_farewell(session, f"nothing was received from either side for {seconds:g} s (idle_timeout)", "idle", now)
