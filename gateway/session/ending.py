"""How a session ends: each side's end reaches the other after everything that was in flight before it.

The naive way, closing both sockets when one read returns nothing, loses the broker's last confirms and whatever waits for its limit. So a
client's FIN is passed on behind the batch with the judge, held parts, the backlog, and the confirms the broker still owes: RabbitMQ
drops those when it reads a FIN. A client's reset has nothing to wait for: what is held is abandoned, and counted so.

A broker that goes away is told to the client in the protocol where it has not said so itself (killed, restarted, reset), after its last
bytes, and only between two frames. Whatever was not confirmed by then stays unknown to the client, as it is.
"""

from __future__ import annotations

import ssl
from typing import Final

from gateway.pipeline.parts import NEVER, ProtocolError
from gateway.session.graceful_close import attend_departure, begin_departure
from gateway.session.session import TAKE_IN_NS, Session

ANSWERS_NS: Final = 2_000_000_000  # how long the confirms are waited for, for a client that has finished sending (a guess; fsync: 0.2 s)


def pass_ends(session: Session, now: int) -> None:
    """Pass each side's end on when nothing is in flight before it; notice when both are through."""
    if session.over:
        return
    if session.conversation.close_reason:
        say_farewell(session, session.conversation.close_reason, "limit", now)
    if session.departure is not None:
        attend_departure(session, now)
    client = session.client
    upstream = session.upstream
    if not session.first_end and (client.eof or client.cut is not None or upstream.eof or upstream.cut is not None):
        session.first_end = "client" if client.eof or client.cut is not None else "broker"
        session.first_end_at = now
    if client.cut is not None:  # a reset after an end from either side is only an end without ceremony
        cause = "tls" if isinstance(client.cut, ssl.SSLError) else session.first_end
        session.finish(cause, "" if client.eof or upstream.eof else str(client.cut))
        return
    lost = upstream.eof or upstream.error is not None or session.broker_dead
    if lost and not session.conversation.draining:
        _lose_broker(session, now)
    if session.fin_to_broker or (client.eof and not upstream.shut and _through(session, now)):
        upstream.shut_down()
    if (session.fin_to_client or lost) and not session.conversation.rejection_reason:
        client.shut_down()
    # Both are read to their end: closing with unread bytes sends a RST, which overtakes the last words to the client and takes the
    # last messages from the broker.
    told = client.eof and client.backlog == 0 and (upstream.backlog == 0 or client.shut)
    if lost and (told or session.client_dead):
        session.finish(session.first_end, "")


def _through(session: Session, now: int) -> bool:
    """Whether all that a client said before it finished has gone to the broker, and been answered."""
    conversation = session.conversation
    if session.batch is not None or session.decode.pending:
        return False
    if conversation.frame_left > 0:
        return True  # what is held can never go: the frame before it will not end
    if conversation.holds_close():
        return False
    if not (conversation.knows_answers() and conversation.has_farewell):  # without one, a FIN is its end: nobody reads the answers
        return True
    return conversation.settled() or now - max(session.first_end_at, session.upstream.sent_at) >= ANSWERS_NS


def _lose_broker(session: Session, now: int) -> None:
    """The broker's connection has ended: the client is told, if it was not, and what is still on its way up goes nowhere."""
    words = b""
    if not session.client.eof:  # else it is the end the client began
        words = session.conversation.broker_lost("the broker behind this gateway closed the connection")
    cut = session.upstream.cut
    rejection = session.conversation.rejection_reason
    if isinstance(cut, ssl.SSLError):  # in TLS 1.3 a broker may find a certificate wanting after the handshake
        session.cause = "tls"
    elif rejection:
        session.cause = session.cause or "broker_closed_early"
        session.detail = session.detail or rejection  # says more than the reset it came with
    elif words:
        session.cause = session.cause or "broker_lost"
    if cut is not None:
        session.detail = session.detail or str(cut)
    _say(session, words, b"", now)


def break_off(session: Session, error: ProtocolError, now: int) -> None:
    """A peer broke the protocol: the client gets the protocol's last words, then both sides are closed.

    The client is read to its end before that, or the RST of its unread bytes would overtake the words.
    """
    session.cause = session.cause or error.cause
    session.detail = session.detail or str(error)
    if session.batch is not None and session.pipeline.kept_at < 0:  # not with the judge: it was being decoded
        session.abandon(session.batch.parts)
        session.batch = None
    _say(session, error.farewell or session.conversation.take_replies(), b"", now)
    if not error.farewell or session.client.cut is not None or session.client.eof:
        session.finish(error.cause, "")
        return
    session.first_end_at = now
    session.fin_to_client = session.fin_to_broker = True


def dismiss(session: Session, reason: str, cause: str, now: int) -> None:
    """Say farewell now, or, where the client must first get what its broker has forgotten, that now and farewell TAKE_IN_NS later."""
    if session.over or session.conversation.draining or session.farewell_due < NEVER:
        return
    if not session.conversation.has_farewell:
        begin_departure(session, reason, cause, now)
        return
    words = session.conversation.take_forgotten() if session.conversation.keeps_forgotten() else b""
    if not words:
        say_farewell(session, reason, cause, now)
        return
    session.begin_drain()
    session.cause = cause
    session.detail = session.detail or reason
    session.farewell_due = now + TAKE_IN_NS
    session.client.queue(words, 0, len(words))
    session.client.flush(now)


def say_farewell(session: Session, reason: str, cause: str, now: int) -> None:
    """Tell both sides in their protocol that the gateway closes this connection, then wait for them to close."""
    if session.over or session.conversation.draining:
        return
    session.cause = cause
    session.detail = session.detail or reason
    to_client, to_broker = session.conversation.farewell(reason)
    _say(session, to_client, to_broker, now)
    session.first_end_at = session.first_end_at or now
    session.fin_to_client = not to_client
    session.fin_to_broker = not to_broker


def _say(session: Session, to_client: bytes, to_broker: bytes, now: int) -> None:
    """The last words; nothing follows them."""
    session.draining = True
    session.conversation.draining = True
    session.client.queue(to_client, 0, len(to_client))
    session.upstream.queue(to_broker, 0, len(to_broker))
    session.client.flush(now)
    session.upstream.flush(now)
