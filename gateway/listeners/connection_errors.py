"""Connection errors: why a client did not get in, for the client itself, for the log and for the counters.

Every error on the way in (`listener.py`) becomes one `Refusal` here. The first of a cause is logged at once. After that there is one log
line a second with how many there were, and one a minute for a broker that cannot be reached, which may last. A flood of clients does not
become a flood of lines. Connections that end later, for a cause that hits many at a time (OFTEN_MANY), are added here too.
"""

from __future__ import annotations

import logging
from typing import Final

import trio

from common import log
from common.records import dataclass
from gateway.admission import CAUSES, RefusedError
from gateway.listeners.tls_handshake import TlsHandshakeError
from gateway.listeners.unreachable import SHORTAGES, UnreachableError
from gateway.pipeline.errors import ProtocolError
from gateway.protocols.amqp.frames import CONNECTION_FORCED
from gateway.transport.proxy_protocol import MalformedHeaderError
from gateway.transport.trusted_proxies import UntrustedPeerError

LINE_EVERY_NS: Final = 1_000_000_000
LASTING: Final = {"upstream_unreachable": 60 * LINE_EVERY_NS}  # between two lines of a cause that may last
OFTEN_MANY: Final = frozenset({*CAUSES, "broker_lost", "broker_closed_early", "broker_heartbeat", "handshake_timeout", "idle"})
UNREMARKABLE: Final = frozenset({"client"})  # a port scan or a health check: no warning


@dataclass(frozen=True, slots=True)
class Refusal:
    """The cause as counted, and a text. With a `code` the client is told both in its protocol, else it is sent `last_words`."""

    cause: str
    text: str
    code: int = 0
    last_words: bytes = b""
    error: Exception | None = None  # a fault of the gateway's own
    user: str | None = None


def refusal_of(error: Exception) -> Refusal:
    """What an error on the way in means."""
    match error:
        case RefusedError():
            return Refusal(error.cause, str(error), CONNECTION_FORCED)
        case UnreachableError():
            return Refusal("upstream_unreachable", str(error), CONNECTION_FORCED)
        case ProtocolError():
            return Refusal(error.cause, str(error), last_words=error.last_frames)
        case MalformedHeaderError() | UntrustedPeerError():
            return Refusal("proxy_protocol", str(error))
        case TlsHandshakeError():
            return Refusal("tls_handshake_failed", str(error.strerror))
        case trio.TooSlowError():
            return Refusal("handshake_timeout", "the client has not begun")
        case OSError() if error.errno in SHORTAGES:
            return Refusal("overload", str(error), CONNECTION_FORCED)
        case OSError():  # its socket is of no more use
            return Refusal("client", str(error))
        case _:
            return Refusal("gateway_error", f"{type(error).__name__}: {error}", error=error)


class RefusalLog:
    """Logs one listener's refusals: at most one line per second and cause, with their number."""

    def __init__(self, listener: str, protocol: str) -> None:
        self.listener = listener
        self.protocol = protocol
        self._lines: dict[str, _Line] = {}  # causes are few

    def add(self, refusal: Refusal, client: tuple[str, int], now: int) -> None:
        if refusal.error is not None:
            log.failure("session_failed", refusal.error, listener=self.listener, client=f"{client[0]}:{client[1]}")
            return
        line = self._lines.setdefault(refusal.cause, _Line())
        line.count += 1
        line.client = client
        line.text = refusal.text
        line.user = refusal.user
        if self._due(refusal.cause, line, now):
            self._log(refusal.cause, line, now)

    def tick(self, now: int) -> None:
        """Once a second: log what has come together since the last line."""
        for cause, line in self._lines.items():
            if line.count and self._due(cause, line, now):
                self._log(cause, line, now)

    def _due(self, cause: str, line: _Line, now: int) -> bool:
        return line.logged_at is None or now - line.logged_at >= LASTING.get(cause, LINE_EVERY_NS)

    def _log(self, cause: str, line: _Line, now: int) -> None:
        event = "connections_refused" if cause in CAUSES or cause == "upstream_unreachable" else "connection_closed"
        host, port = line.client
        log.event(
            logging.DEBUG if cause in UNREMARKABLE else logging.WARNING, event, listener=self.listener, protocol=self.protocol,
            client=f"{host}:{port}", user=line.user, cause=cause, detail=line.text or None, connections=line.count,
        )  # fmt: skip
        line.count = 0
        line.logged_at = now

    def __repr__(self) -> str:
        return f"<RefusalLog {self.listener} causes={list(self._lines)}>"


class _Line:
    """What the next log line of a cause will have."""

    __slots__ = ("client", "count", "logged_at", "text", "user")

    def __init__(self) -> None:
        self.count = 0
        self.logged_at: int | None = None
        self.client = ("", 0)
        self.text = ""
        self.user: str | None = None
