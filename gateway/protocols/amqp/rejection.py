"""A rejection: telling an AMQP client why it cannot connect, without a broker.

Closing the socket at once is what clients understand least: pika shows it as IncompatibleProtocolError, others as a reset, and all of
them redial. `connection.close` may be sent from `connection.start` on; measured with eight client libraries (2026-11):

* In answer to start-ok, pika 1.4, Java 5.22, Bunny 2.19 and amqp091-go 1.10 call it an authentication error, whatever code and text say;
  frameworks that take such an error for final (Spring's listener containers) give up for good.
* In answer to `connection.open`, where RabbitMQ itself says that a virtual host or a user has too many connections, pika, Java, Bunny,
  py-amqp 5.4, AMQPStorm and amqp091-go 1.16 show code and text. aiormq 7.2 and amqplib report a connection.close, as they do when
  the broker refuses.

So the handshake is walked up to there:

    client: protocol header ─► start       start-ok ─► tune       tune-ok, open ─► close       close-ok ─► over

Bunny before 3.2 raises a connection.close that a recovery is answered with in the application, and may recover no more. While the broker
is away, its socket is closed in answer to start-ok instead: it tries again, as where nobody listens.

The credentials are not looked at and not kept. Sans-IO; holds at most one frame.
"""

from __future__ import annotations

from typing import Final

from gateway.protocols.amqp.frames import (
    CONNECTION_CLOSE_OK,
    CONNECTION_OPEN,
    CONNECTION_START,
    CONNECTION_START_OK,
    CONNECTION_TUNE,
    END,
    METHOD,
    OVERHEAD,
    connection_close,
    method_frame,
)
from gateway.protocols.amqp.handshake import ACCEPTED_HEADERS, MAX_EARLY_FRAME_BYTES

CHANNEL_MAX: Final = 2047  # what RabbitMQ offers; no channel will be opened
FRAME_MAX: Final = 131072
HEARTBEAT_S: Final = 60


def _field(name: bytes, kind: bytes, value: bytes) -> bytes:
    return b"%c%b%b%b" % (len(name), name, kind, value)


def _long_string(text: bytes) -> bytes:
    return len(text).to_bytes(4, "big") + text


CAPABILITIES: Final = _field(b"authentication_failure_close", b"t", b"\x01") + _field(b"connection.blocked", b"t", b"\x01")
PROPERTIES: Final = _field(b"product", b"S", _long_string(b"sluice")) + _field(b"capabilities", b"F", _long_string(CAPABILITIES))
START: Final = method_frame(  # version 0-9, server-properties, mechanisms, locales (specification 1.4.2.1)
    0, CONNECTION_START, b"\x00\x09" + _long_string(PROPERTIES) + _long_string(b"PLAIN AMQPLAIN EXTERNAL") + _long_string(b"en_US")
)
BUNNY: Final = _field(b"product", b"S", _long_string(b"Bunny"))
TUNE: Final = method_frame(
    0, CONNECTION_TUNE, CHANNEL_MAX.to_bytes(2, "big") + FRAME_MAX.to_bytes(4, "big") + HEARTBEAT_S.to_bytes(2, "big")
)


class Rejection:
    """One client's. Feed it what comes; `over`: nothing more will be sent or understood."""

    def __init__(self, code: int, text: str, away: bool = False) -> None:  # noqa: FBT001, FBT002  -- a Callable has no names
        """`away`: the broker is, and may be back at any time."""
        self.over = False
        self._away = away
        self._close = connection_close(code, text)
        self._rest = b""
        self._greeted = False
        self._closing = False

    def receive(self, data: bytes) -> bytes:
        """What to answer to `data`."""
        data = self._rest + data
        out: list[bytes] = []
        at = 0
        if not self._greeted:
            if len(data) < 8:
                self._rest = data
                return b""
            if data[:8] not in ACCEPTED_HEADERS:
                self.over = True
                return b""
            self._greeted = True
            out.append(START)
            at = 8
        while not self.over and len(data) - at >= OVERHEAD:
            size = int.from_bytes(data[at + 3 : at + 7], "big")
            if size > MAX_EARLY_FRAME_BYTES:
                self.over = True
                break
            stop = at + size + OVERHEAD
            if stop > len(data):
                break
            if data[stop - 1] != END:
                self.over = True
                break
            if data[at] == METHOD and size >= 4:
                out.append(self._answer(int.from_bytes(data[at + 7 : at + 11], "big"), data[at + 11 : stop - 1]))
            at = stop
        self._rest = b"" if self.over else data[at:]
        return b"".join(out)

    def _answer(self, method: int, arguments: bytes) -> bytes:
        if self._closing:
            self.over = method == CONNECTION_CLOSE_OK
            return b""
        if method == CONNECTION_START_OK:
            self.over = self._away and BUNNY in arguments
            return b"" if self.over else TUNE
        if method == CONNECTION_OPEN:
            self._closing = True
            return self._close
        return b""

    def __repr__(self) -> str:
        state = "over" if self.over else "closing" if self._closing else "greeted" if self._greeted else "new"
        return f"<Rejection {state} rest={len(self._rest)}>"
