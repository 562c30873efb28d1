"""How a session ends: each side's end reaches the other after everything that was in flight before it.

The naive way, closing both sockets when one read returns nothing, loses the broker's last confirms and whatever waits for its limit. So a
client's FIN is passed on behind the batch with the judge, held parts, the backlog, and the confirms that the broker still owes. What waits
goes on after a client's reset, too; only its answers go nowhere.

A client that is gone, or has said that it closes, consumes no more, however long its messages wait: from the moment that shows, the
broker is told so in its name (`Conversation.leave`, `take_farewells`). This is decided here, once, for all protocols. And what was
forwarded has been handled before the broker's connection ends: where the protocol has words for that, they go behind everything, and
the answer to them comes before the FIN (`last_words`). RabbitMQ drops what its channels have not handled yet when it reads a FIN.

A client that breaks the protocol is told so and let go; what it had sent before goes on as that of a client that is gone.

Where a broker goes away without a word (killed, restarted, reset), the gateway tells the client in the protocol: after the broker's last
bytes, and only between two frames. Whatever was not confirmed by then stays unknown to the client, as it is.
"""

from __future__ import annotations

import ssl
from typing import Final

from gateway.pipeline.errors import ProtocolError
from gateway.session.graceful_close import advance_graceful_close, begin_graceful_close
from gateway.session.session import CLOSE_DELAY_NS, Session
from gateway.session.states import CLOSING, HALF_CLOSED, OVER
from gateway.transport.channel_states import FIN_PENDING, FIN_SENT, READ_EOF, READ_OPEN, WRITE_FAILED, WRITE_OPEN
from limiter.limits import NEVER

MAX_CONFIRM_WAIT_NS: Final = 2_000_000_000  # for confirms still owed to a client that has finished sending; an fsync takes 0.2 s (a guess)
# For the rest of what a client said before it went, where it is not read for now. Settlements in it count (a guess)
MAX_DECODING_NS: Final = 300_000_000
GONE: Final = "the client is gone"


def propagate_ends(session: Session, now: int) -> None:
    """Pass each side's end on when nothing is in flight before it; finish the session when both have ended."""
    if session.state == OVER:
        return
    conversation = session.conversation
    if session.reports.close_reason:
        send_close(session, session.reports.close_reason, "limit", now)
    if session.graceful_close is not None:
        advance_graceful_close(session, now)
    client = session.client
    upstream = session.upstream
    fault = session.decode.fault
    if fault is not None and session.batch is None and client.write_state == WRITE_OPEN and session.state < CLOSING:
        fail_on_protocol_error(session, fault, now)
        if session.state == OVER:
            return
    client_ended = client.read_state == READ_EOF or client.write_state == WRITE_FAILED
    if not session.first_end and (client_ended or upstream.read_state == READ_EOF or upstream.write_state == WRITE_FAILED):
        session.first_end = "client" if client_ended else "broker"
        session.first_end_at = now
    if not session.gone_at and (client.hangup_pending or client.read_state != READ_OPEN or conversation.leaves):
        _take_leave(session, now)
    if session.gone_at and client.read_state != READ_OPEN:
        conversation.client_gone = True
    lost = upstream.read_state != READ_OPEN or session.broker_silent
    if lost and client.write_state == WRITE_FAILED:
        session.finish(session.first_end, "")
        return
    if lost and session.state < CLOSING:
        _handle_broker_lost(session, now)
    client_done = client.read_state != READ_OPEN or fault is not None
    if upstream.write_state == FIN_PENDING or (session.state >= CLOSING and conversation.close_said and not conversation.awaits_close_ok):
        upstream.shut_down()
    elif client_done and upstream.write_state < FIN_SENT and _all_forwarded(session, now):
        _end_upstream(session, now)
    elif conversation.has_farewells() and session.state < CLOSING:
        _say_farewells(session, now)
    if (client.write_state == FIN_PENDING or (lost and client.write_state != WRITE_FAILED)) and not conversation.rejection_reason:
        client.shut_down()
    # Both are read to their end: closing with unread bytes sends a RST. That overtakes the last bytes to the client, and loses the
    # broker's last messages.
    through = client.read_state != READ_OPEN and client.backlog == 0 and (upstream.backlog == 0 or client.write_state >= FIN_SENT)
    if lost and (through or session.client_silent):
        session.finish(session.first_end, "")


def _take_leave(session: Session, now: int) -> None:
    """The client is gone, or has said that it closes, or will be as soon as its last bytes are read: nothing more is consumed for it."""
    session.gone_at = now
    session.conversation.leave()
    session.heartbeats.listen_from(now)
    error = session.client.write_error
    if error is not None and session.client.read_state != READ_EOF:
        session.detail = session.detail or str(error)
    if isinstance(error, ssl.SSLError):
        session.cause = session.cause or "tls"


def _say_farewells(session: Session, now: int) -> None:
    """Tell the broker what is not consumed any more, ahead of all that waits here."""
    decoded = session.batch is None and not session.decode.pending
    if decoded and session.gone_at:
        unread = session.client.read_state == READ_OPEN and not session.conversation.leaves
        decoded = not unread or now - session.gone_at >= MAX_DECODING_NS
    words = session.conversation.take_farewells(quiet=decoded)
    if words:
        session.upstream.queue(words, 0, len(words))
        session.upstream.flush(now)


def _end_upstream(session: Session, now: int) -> None:
    """All is forwarded, and the client is gone: end the broker's connection.

    RabbitMQ drops what its channels have not handled yet when it reads a FIN, so it is told in words, and its answer waited for.
    """
    conversation = session.conversation
    words = conversation.last_words(GONE)
    if words and conversation.is_stuck():  # a broker that was told ignores what would come behind: it is given up
        _send_last(session, b"", words, now)
    elif words:
        session.upstream.queue(words, 0, len(words))
        session.upstream.flush(now)
    if not conversation.awaits_close_ok:
        session.upstream.shut_down()


def _all_forwarded(session: Session, now: int) -> bool:
    """Whether all that a client sent before its end has gone to the broker, and been answered."""
    conversation = session.conversation
    if session.batch is not None or session.decode.pending:
        return False
    if conversation.close_said or conversation.is_stuck():
        return True  # what is held can never go, or not without a consumer that is gone: what is before it will not end
    if conversation.lines.holds_close():
        return False
    if not conversation.knows_answers or not conversation.has_close_frames:
        return True  # a FIN is the end: nobody reads the answers
    if session.client.write_state == WRITE_FAILED and conversation.has_close_frames:
        return True  # nobody is told, and the broker is asked whether it has handled all
    return conversation.settled() or now - max(session.first_end_at, session.upstream.sent_at) >= MAX_CONFIRM_WAIT_NS


def _handle_broker_lost(session: Session, now: int) -> None:
    """The broker's connection has ended: tell the client, unless it began the end. What is on its way to the broker goes nowhere."""
    last_frames = b""
    if session.client.read_state == READ_OPEN:
        last_frames = session.conversation.tell_broker_lost("the broker behind this gateway closed the connection")
    error = session.upstream.write_error
    rejection = session.conversation.rejection_reason
    if isinstance(error, ssl.SSLError):  # in TLS 1.3 a broker may find a certificate wanting after the handshake
        session.cause = "tls"
    elif rejection:
        session.cause = session.cause or "broker_closed_early"
        session.detail = session.detail or rejection  # says more than the reset it came with
    elif last_frames:
        session.cause = session.cause or "broker_lost"
    if error is not None:
        session.detail = session.detail or str(error)
    _send_last(session, last_frames, b"", now)


def fail_on_protocol_error(session: Session, error: ProtocolError, now: int) -> None:
    """A peer broke the protocol: the client gets the protocol's close, then both sides are closed.

    The client is read to its end before that, or the RST of its unread bytes would overtake the close. What waits of a client that sent bad
    bytes goes on before the broker's side is closed.
    """
    session.cause = session.cause or error.cause
    session.detail = session.detail or str(error)
    if session.batch is not None and session.pipeline.kept_at < 0:  # not with the judge: it was being decoded
        session.abandon(session.batch.parts)
        session.batch = None
    conversation = session.conversation
    client = session.client
    last_frames = conversation.last_frames(error) if error.whose == "client" else error.last_frames
    if session.decode.fault is error and conversation.lines.holds_close() and not conversation.is_stuck():
        _let_go(session, last_frames, now)
        return
    to_broker = conversation.last_words(str(error)) if error.whose == "client" else b""
    _send_last(session, last_frames or conversation.take_replies(), to_broker, now)
    if not last_frames or client.read_state == READ_EOF or client.write_state == WRITE_FAILED:
        session.finish(error.cause, "")
        return
    session.first_end_at = now
    client.request_fin()
    if not conversation.awaits_close_ok:
        session.upstream.request_fin()


def _let_go(session: Session, last_frames: bytes, now: int) -> None:
    """The client gets its last frames and FIN, and what it still says is thrown away. What it sent before goes on without it."""
    client = session.client
    client.queue(last_frames, 0, len(last_frames))
    client.flush(now)
    if last_frames:
        if session.state != HALF_CLOSED:
            session.become(HALF_CLOSED)
        client.request_fin()
        client.hangup_pending = client.readable = True
    else:
        client.give_up(session.detail)
    session.first_end = session.first_end or "client"
    session.first_end_at = session.first_end_at or now


def close_gracefully(session: Session, reason: str, cause: str, now: int) -> None:
    """Send the protocol's close. If the client must first get what its broker has forgotten: that now, the close CLOSE_DELAY_NS later."""
    if session.state >= CLOSING or session.close_due < NEVER:
        return
    if not session.conversation.has_close_frames and (session.gone_at or session.graceful_close is not None):
        send_close(session, reason, cause, now)
        return
    if not session.conversation.has_close_frames:
        begin_graceful_close(session, reason, cause, now)
        return
    forgotten = session.conversation.take_forgotten() if session.conversation.keeps_forgotten() else b""
    if not forgotten:
        send_close(session, reason, cause, now)
        return
    session.begin_drain()
    session.cause = cause
    session.detail = session.detail or reason
    session.close_due = now + CLOSE_DELAY_NS
    session.client.queue(forgotten, 0, len(forgotten))
    session.client.flush(now)


def send_close(session: Session, reason: str, cause: str, now: int) -> None:
    """Tell both sides in the protocol that the gateway closes this connection, then wait for them to close."""
    if session.state >= CLOSING:
        return
    session.cause = cause
    session.detail = session.detail or reason
    to_client = session.conversation.close_client(reason)
    _send_last(session, to_client, session.conversation.last_words(reason), now)
    session.first_end_at = session.first_end_at or now
    if not to_client:
        session.client.request_fin()
    if not session.conversation.awaits_close_ok:
        session.upstream.request_fin()


def give_client_up(session: Session, reason: str, cause: str, now: int) -> None:
    """The client lives no more, as far as can be seen. It is told so and let go; what it sent before goes on without it."""
    session.client_silent = True  # its own end is not waited for: that stands behind what it does not take
    if not session.conversation.lines.holds_close() or session.state >= CLOSING:
        send_close(session, reason, cause, now)
        return
    session.cause = session.cause or cause
    session.detail = session.detail or reason
    words = session.conversation.close_client(reason)
    session.client.queue(words, 0, len(words))
    session.client.flush(now)
    session.client.give_up(reason)
    session.first_end = session.first_end or "client"
    session.first_end_at = session.first_end_at or now


def _send_last(session: Session, to_client: bytes, to_broker: bytes, now: int) -> None:
    """Send the last bytes to either side; nothing follows them."""
    if session.state < CLOSING:
        session.become(CLOSING)
    session.conversation.draining = True
    session.decode.forget()
    session.client.queue(to_client, 0, len(to_client))
    session.upstream.queue(to_broker, 0, len(to_broker))
    session.client.flush(now)
    session.upstream.flush(now)
