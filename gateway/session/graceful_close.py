"""A graceful close: how the gateway closes a connection without losing a request where the protocol has no close frame (RocketMQ).

The naive way, a FIN to both sides, makes the client fail whatever it has asked and not been answered (a Java client of 4.9.8 does not
even notice, and waits for its time-out), and drops the one-way requests that are still in the socket. So:

1. **New requests are rejected** where the client understands that: the answer tells it to repeat them on another connection. The client is
   at rest once the broker has answered what was asked before, and the client has asked nothing for REJECTED_NS after a rejection.
2. **Answers are gathered** where it does not: they are kept here while the client is read on. A client waits for its answers before it
   asks again. So soon everything it has asked is answered, nothing is in its socket, and it is at rest; then all answers leave in one go
   with the FIN behind them. A client that goes on asking all the same, or whose broker is slow, gets its answers after MAX_GATHERING_NS and
   is not read any more; what it has asked by then is answered before the FIN.
3. At rest it gets its last frames and FIN. What it still sends until it closes goes on to the broker if it wants no answer, and is dropped
   otherwise: the client will repeat it. The client's own FIN goes on to the broker behind that.

Polls, which the broker may keep for half a minute, are never waited for. All this takes 0.1 to 1 s where all is well, and MAX_NS for a
client that cannot be brought to rest, such as one whose one-way sends wait on disk; MAX_MOVED_NS where its broker has moved.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Final

from gateway.session.graceful_close_state import DONE, GATHERING, GracefulClose
from gateway.session.session import Session
from gateway.session.states import CLOSING, DRAINING, HALF_CLOSED, OVER

# How long a client is given to leave by itself: one whose connection ends under a request may notice only at its time-out (measured).
LEAVE_INACTIVE_NS: Final = 100_000_000  # one that had asked nothing for ACTIVE_NS, and asks nothing now (a guess)
ACTIVE_NS: Final = 1_000_000_000  # one that had asked something within that time: it will ask again, and be rejected (a guess)
REJECTED_NS: Final = 300_000_000  # one that was rejected: its other threads are, too, if they still find this connection (a guess)
LEAVE_POLLING_NS: Final = 300_000_000  # one that waits for messages: it asks little else before they come, and is rejected then (a guess)

MAX_REJECTING_NS: Final = 2_000_000_000  # for a client that goes on asking; below the 3 s that clients wait for an answer (a guess)
MAX_GATHERING_NS: Final = 1_000_000_000  # the same where answers are gathered (a guess)
BROKER_QUIET_NS: Final = 1_000_000_000  # a broker that has sent nothing for so long has answered all it will (a guess)
MAX_NS: Final = 10_000_000_000  # of all this, as after a FIN (`deadlines.py`); a gateway that stops has a deadline of its own
MAX_MOVED_NS: Final = 3_000_000_000  # the same where the broker has moved: it leads to the wrong one; clients wait for an answer no longer


def begin_graceful_close(session: Session, reason: str, cause: str, now: int) -> None:
    """From now on new requests are rejected or answers gathered; `advance_graceful_close` does the rest."""
    if session.state == OVER or session.graceful_close is not None:
        return
    session.conversation.begin_graceful_close()
    conversation = session.conversation
    leave_ns = LEAVE_POLLING_NS if conversation.is_polling() else ACTIVE_NS
    if now - session.client.received_at >= ACTIVE_NS or not conversation.handshake_done:
        leave_ns = LEAVE_INACTIVE_NS
    session.graceful_close = GracefulClose(reason, cause, now, leave_ns, gathering=not conversation.rejects_requests)


def advance_graceful_close(session: Session, now: int) -> None:
    """Send the FIN if it is time. Call it whenever something has happened, and a few times a second."""
    close = session.graceful_close
    if close is None or close.phase == DONE or session.state == OVER:
        return
    conversation = session.conversation
    if conversation.rejected_after_drain != close.rejections:
        close.rejections = conversation.rejected_after_drain
        close.rejected_at = now
        close.leave_ns = REJECTED_NS
    waited = now - close.began_at
    if close.phase == GATHERING:
        if session.decode.undecoded() == 0 and not session.client.readable and session.drained(now, BROKER_QUIET_NS):
            finish_graceful_close(session, now)
        elif waited >= MAX_GATHERING_NS or close.gathered_bytes > session.shared.backlog_bytes:
            close.release(session.client)
            session.begin_drain()
            session.again = True
        return
    leaves = session.state == DRAINING or now - close.rejected_at >= close.leave_ns or waited >= MAX_REJECTING_NS
    if (leaves and session.drained(now, BROKER_QUIET_NS)) or waited >= (MAX_MOVED_NS if close.cause == "broker_moved" else MAX_NS):
        finish_graceful_close(session, now)


def finish_graceful_close(session: Session, now: int) -> None:
    """Send the client what was gathered, its last frames and FIN, and read on."""
    close = session.graceful_close
    if close is None or close.phase == DONE or session.state >= CLOSING:
        return
    session.cause = close.cause
    session.detail = session.detail or close.reason
    last_frames = session.conversation.end_graceful_close()
    close.release(session.client)
    close.pass_on(session.client, [last_frames])
    close.phase = DONE
    session.become(HALF_CLOSED)
    session.client.request_fin()
    session.first_end_at = session.first_end_at or now
    session.again = True
    client = session.client
    with suppress(OSError):  # not TCP, or gone
        client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)  # the answers and the FIN in one segment: no request in between
    client.flush(now)
    client.shut_down()
