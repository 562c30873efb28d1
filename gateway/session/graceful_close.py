"""Departure: how the gateway leaves a connection whose protocol has no farewell (RocketMQ), so that nothing that was asked is lost.

The naive way, a FIN to both sides, makes the client fail whatever it has asked and not been answered (a Java client of 4.9.8 does not
even notice, and waits for its time-out), and drops the one-way requests that are still in the socket. So:

1. **New requests are turned away** where the client understands that: they are answered with the word to repeat them on another
   connection. It is at rest when the broker has answered what was asked before, and it has been told and then asked nothing for TOLD_NS.
2. **Answers are gathered** where it does not: they are kept here while the client is read on. A client waits for its answers before it
   asks again, so soon everything it has asked is answered, nothing is in its socket, and it is at rest; then all answers leave in one go
   with the FIN behind them. One that goes on asking all the same, or whose broker is slow, gets its answers after GATHER_NS and is not
   read any more; what it has asked by then is answered before the FIN.
3. At rest it gets its last words and FIN. What it still says until it closes goes on to the broker if it wants no answer, and is dropped
   otherwise: it will be repeated. Its own FIN goes on to the broker behind that.

Polls, which the broker may keep for half a minute, are never waited for. What it all costs: 0.1 to 1 s where all is well; PATIENCE_NS at
most for a client that cannot be brought to rest.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Final

from gateway.session.session import Session
from gateway.transport.channel import Channel

# A client whose connection ends under a request may notice only when its time is out (measured), so it is given time to go (guesses):
IDLE_NS: Final = 100_000_000  # one that had asked nothing for ACTIVE_NS, and asks nothing now
ACTIVE_NS: Final = 1_000_000_000  # one that had: it will ask again, and be told
TOLD_NS: Final = 300_000_000  # one that was told: others of its threads are told, too, if they still find this connection
POLLING_NS: Final = 300_000_000  # one that waits for messages: it asks little else before they come, and is told then
TELLING_NS: Final = 2_000_000_000  # how long one is told that does not go (a guess: below the 3 s that clients wait for an answer)
GATHER_NS: Final = 1_000_000_000  # the same for answers that are kept
SILENT_NS: Final = 1_000_000_000  # a broker that has said nothing for so long has answered all it will (a guess)
PATIENCE_NS: Final = 10_000_000_000  # as after a FIN (`deadlines.py`); a gateway that stops has a deadline of its own


class Departure:
    """What is known of one that has begun; passes on what goes to the client meanwhile."""

    def __init__(self, reason: str, cause: str, now: int, leave_ns: int, *, gathering: bool) -> None:
        self.reason = reason
        self.cause = cause
        self.began_at = now
        self.told = 0  # `Conversation.rejected_after_drain` when it was last looked at,
        self.told_at = now  # and when that had changed
        self.leave_ns = leave_ns  # how long it is given to be told
        self.gathering = gathering
        self.gathered: list[bytes] = []
        self.gathered_bytes = 0
        self.over = False  # the client has got its FIN

    def pass_on(self, client: Channel, out: list[bytes]) -> None:
        """Answers for the client: sent, gathered, or (after its FIN) not wanted any more."""
        if self.over:
            return
        for data in out:
            if self.gathering:
                self.gathered.append(data)
                self.gathered_bytes += len(data)
            else:
                client.queue(data, 0, len(data))

    def release(self, client: Channel) -> None:
        """Gather no more."""
        self.gathering = False
        gathered, self.gathered, self.gathered_bytes = self.gathered, [], 0
        self.pass_on(client, gathered)

    def __repr__(self) -> str:
        state = "over" if self.over else "gathering" if self.gathering else "under way"
        return f"<Departure {state} told={self.told} {self.reason}>"


def begin_departure(session: Session, reason: str, cause: str, now: int) -> None:
    """From now on new requests are turned away or answers gathered; `attend_departure` sees to the rest."""
    if session.over or session.departure is not None:
        return
    session.conversation.begin_departure()
    conversation = session.conversation
    leave_ns = POLLING_NS if conversation.is_polling() else ACTIVE_NS
    if now - session.client.received_at >= ACTIVE_NS or not conversation.handshake_done:
        leave_ns = IDLE_NS
    session.departure = Departure(reason, cause, now, leave_ns, gathering=not conversation.turns_away)


def attend_departure(session: Session, now: int) -> None:
    """Depart, if it is time; call it whenever something has happened, and a few times a second."""
    departure = session.departure
    if departure is None or departure.over or session.over:
        return
    conversation = session.conversation
    if conversation.rejected_after_drain != departure.told:
        departure.told = conversation.rejected_after_drain
        departure.told_at = now
        departure.leave_ns = TOLD_NS
    waited = now - departure.began_at
    if departure.gathering:
        if session.decode.undecoded() == 0 and not session.client.readable and session.drained(now, SILENT_NS):
            depart(session, now)
        elif waited >= GATHER_NS or departure.gathered_bytes > session.shared.backlog_bytes:
            departure.release(session.client)
            session.draining = True
            session.again = True
        return
    away = session.draining or now - departure.told_at >= departure.leave_ns or waited >= TELLING_NS
    if (away and session.drained(now, SILENT_NS)) or waited >= PATIENCE_NS:
        depart(session, now)


def depart(session: Session, now: int) -> None:
    """What was gathered, last words and FIN, to the client; it is read on."""
    departure = session.departure
    if departure is None or departure.over or session.over or session.conversation.draining:
        return
    session.cause = departure.cause
    session.detail = session.detail or departure.reason
    words = session.conversation.depart()
    departure.release(session.client)
    departure.pass_on(session.client, [words])
    departure.over = True
    session.draining = False
    session.fin_to_client = True
    session.first_end_at = session.first_end_at or now
    session.again = True
    client = session.client
    with suppress(OSError):  # not TCP, or gone
        client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)  # the answers and the FIN in one segment: no request in between
    client.flush(now)
    client.shut_down()
