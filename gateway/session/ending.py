"""How a session ends: each side's end reaches the other after everything that was in flight before it.

The naive way, closing both sockets when one read returns nothing, loses the broker's last confirms and whatever waits for its limit. So a
client's FIN is passed on behind the batch with the judge, held parts, the backlog, and the confirms that the broker still owes: RabbitMQ
drops those when it reads a FIN. After a client's reset nothing waits: what is held is abandoned, and counted so.

Where a broker goes away without a word (killed, restarted, reset), the gateway tells the client in the protocol: after the broker's last
bytes, and only between two frames. Whatever was not confirmed by then stays unknown to the client, as it is.
"""

from __future__ import annotations

import ssl
from typing import Final

from gateway.pipeline.errors import ProtocolError
from gateway.session.graceful_close import advance_graceful_close, begin_graceful_close
from gateway.session.session import TAKE_IN_NS, Session
from limiter.limits import NEVER

MAX_CONFIRM_WAIT_NS: Final = 2_000_000_000  # for confirms still owed to a client that has finished sending; an fsync takes 0.2 s (a guess)


def propagate_ends(session: Session, now: int) -> None:
    """Pass each side's end on when nothing is in flight before it; finish the session when both have ended."""
    if session.over:
        return
    if session.conversation.close_reason:
        send_close(session, session.conversation.close_reason, "limit", now)
    if session.graceful_close is not None:
        advance_graceful_close(session, now)
    client = session.client
    upstream = session.upstream
    if not session.first_end and (client.eof or client.cut is not None or upstream.eof or upstream.cut is not None):
        session.first_end = "client" if client.eof or client.cut is not None else "broker"
        session.first_end_at = now
    if client.cut is not None:  # a reset after either side's FIN is just an end
        cause = "tls" if isinstance(client.cut, ssl.SSLError) else session.first_end
        session.finish(cause, "" if client.eof or upstream.eof else str(client.cut))
        return
    lost = upstream.eof or upstream.error is not None or session.broker_dead
    if lost and not session.conversation.draining:
        _handle_broker_lost(session, now)
    if session.fin_to_broker or (client.eof and not upstream.shut and _all_forwarded(session, now)):
        upstream.shut_down()
    if (session.fin_to_client or lost) and not session.conversation.rejection_reason:
        client.shut_down()
    # Both are read to their end: closing with unread bytes sends a RST. That overtakes the last bytes to the client, and loses the
    # broker's last messages.
    client_done = client.eof and client.backlog == 0 and (upstream.backlog == 0 or client.shut)
    if lost and (client_done or session.client_dead):
        session.finish(session.first_end, "")


def _all_forwarded(session: Session, now: int) -> bool:
    """Whether all that a client sent before its FIN has gone to the broker, and been answered."""
    conversation = session.conversation
    if session.batch is not None or session.decode.pending:
        return False
    if conversation.frame_left > 0:
        return True  # what is held can never go: the frame before it will not end
    if conversation.holds_close():
        return False
    if not (conversation.knows_answers() and conversation.has_farewell):  # without a farewell a FIN is the end: nobody reads the answers
        return True
    return conversation.settled() or now - max(session.first_end_at, session.upstream.sent_at) >= MAX_CONFIRM_WAIT_NS


def _handle_broker_lost(session: Session, now: int) -> None:
    """The broker's connection has ended: tell the client, unless it began the end. What is on its way to the broker goes nowhere."""
    last_frames = b""
    if not session.client.eof:
        last_frames = session.conversation.broker_lost("the broker behind this gateway closed the connection")
    cut = session.upstream.cut
    rejection = session.conversation.rejection_reason
    if isinstance(cut, ssl.SSLError):  # in TLS 1.3 a broker may find a certificate wanting after the handshake
        session.cause = "tls"
    elif rejection:
        session.cause = session.cause or "broker_closed_early"
        session.detail = session.detail or rejection  # says more than the reset it came with
    elif last_frames:
        session.cause = session.cause or "broker_lost"
    if cut is not None:
        session.detail = session.detail or str(cut)
    _send_last(session, last_frames, b"", now)


def fail_on_protocol_error(session: Session, error: ProtocolError, now: int) -> None:
    """A peer broke the protocol: the client gets the protocol's close, then both sides are closed.

    The client is read to its end before that, or the RST of its unread bytes would overtake the close.
    """
    session.cause = session.cause or error.cause
    session.detail = session.detail or str(error)
    if session.batch is not None and session.pipeline.kept_at < 0:  # not with the judge: it was being decoded
        session.abandon(session.batch.parts)
        session.batch = None
    _send_last(session, error.farewell or session.conversation.take_replies(), b"", now)
    if not error.farewell or session.client.cut is not None or session.client.eof:
        session.finish(error.cause, "")
        return
    session.first_end_at = now
    session.fin_to_client = session.fin_to_broker = True


def close_gracefully(session: Session, reason: str, cause: str, now: int) -> None:
    """Send the protocol's close; where the client must first get what its broker has forgotten, that now and the close TAKE_IN_NS later."""
    if session.over or session.conversation.draining or session.close_due < NEVER:
        return
    if not session.conversation.has_farewell:
        begin_graceful_close(session, reason, cause, now)
        return
    forgotten = session.conversation.take_forgotten() if session.conversation.keeps_forgotten() else b""
    if not forgotten:
        send_close(session, reason, cause, now)
        return
    session.begin_drain()
    session.cause = cause
    session.detail = session.detail or reason
    session.close_due = now + TAKE_IN_NS
    session.client.queue(forgotten, 0, len(forgotten))
    session.client.flush(now)


def send_close(session: Session, reason: str, cause: str, now: int) -> None:
    """Tell both sides in the protocol that the gateway closes this connection, then wait for them to close."""
    if session.over or session.conversation.draining:
        return
    session.cause = cause
    session.detail = session.detail or reason
    to_client, to_broker = session.conversation.farewell(reason)
    _send_last(session, to_client, to_broker, now)
    session.first_end_at = session.first_end_at or now
    session.fin_to_client = not to_client
    session.fin_to_broker = not to_broker


def _send_last(session: Session, to_client: bytes, to_broker: bytes, now: int) -> None:
    """Send the last bytes to either side; nothing follows them."""
    session.draining = True
    session.conversation.draining = True
    session.client.queue(to_client, 0, len(to_client))
    session.upstream.queue(to_broker, 0, len(to_broker))
    session.client.flush(now)
    session.upstream.flush(now)
