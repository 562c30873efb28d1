"""An upstream: the broker behind a listener, and whether it can be reached.

The gateway dials once for every client and tells it the result; dialling again is the client's affair. The naive way dials for each client
even while the broker is known to be down: 2,000 clients a second then each wait for a timeout of their own, and the first packets a
restarting broker sees are a storm. So while it is down, one dial at a time is a **probe**, and all other clients are refused at once with
the reason of the last one. Probes are spaced by 0.1 s, doubling up to MAX_BACKOFF_S, each after a random part of that (full jitter). While
the broker is up, at most MAX_DIALS dials are under way; more wait for one of them. What those under way at the same time find out is one
finding: a broker that goes while a hundred are dialled has failed once, and is probed as soon as after a single dial.

That a broker takes connections says little: the kernel does that for a process that hangs. So where the protocol has a question that any
broker answers (`gateway/protocols/question.py`), only the answer counts, on a connection of its own, PROXY header and TLS included. It is
asked at the start, then every PROBE_EVERY_S, a little earlier at random, so that gateways do not ask in step, and before a client is let
through to a broker that was down. While answers come in on clients' connections nothing is asked: the kernel says when it received the
last byte on the one that was read last (TCP_INFO), which is not when the gateway found time to read it. A broker that hangs is down
PROBE_EVERY_S + ANSWER_S after its last byte at the latest, and one that has said something on any connection while it was asked is not.
A probe counts as a dial only where it changes something.

What that costs, measured on RabbitMQ 3.10.8 (100 probes, 2026-11-25): 0.9 ms of processor here, and in the broker's log two lines at info
and warning ("accepting AMQP connection", "client unexpectedly closed TCP connection"); `log.connection.level = error` in rabbitmq.conf
silences them.

IPv4 and IPv6 addresses of a name are tried side by side (RFC 8305, trio.open_tcp_stream), within CONNECT_TIMEOUT_S in all.
"""

from __future__ import annotations

import errno
import logging
import os
import random
import socket
import ssl
from typing import Final

import trio

from gateway import log
from gateway.listeners.tcp import set_up
from gateway.listeners.tls_handshake import TlsHandshakeError, protect
from gateway.protocols.question import MAX_ANSWER_BYTES, Question, WrongAnswerError
from gateway.transport import proxy_protocol
from gateway.transport.channel import Channel, Heard
from gateway.transport.channel_io import read_some, write_all
from gateway.transport.proxy_protocol import Ends
from gateway.transport.tls.context import Hop

CONNECT_TIMEOUT_S: Final = 5.0  # docs/design/reliability.md F35
MAX_DIALS: Final = 128  # at a time per listener; a broker's own accept backlog is 128 (RabbitMQ's default)
# Between probes of a broker that is down: 0.1 to 5 s (docs/design/reliability.md F22); a little less than 5, so that clients are back
# within 5 s of the broker (F20)
MIN_BACKOFF_S: Final = 0.1
MAX_BACKOFF_S: Final = 4.5
# Both together, and two of the ticks at which is looked, are less than the 10 s after which a broker that hangs must not count as ready.
PROBE_EVERY_S: Final = 5.0  # between the last answer of a broker that is up and the next question
ANSWER_S: Final = 3.5  # for a probe: connection, TLS and answer; a JVM's longest pauses are shorter (a guess)
JITTER: Final = 0.2  # of PROBE_EVERY_S, at most so much earlier
LOG_EVERY_S: Final = 60.0  # between log lines that the broker still cannot be reached (a guess)
OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


# Why a broker is down, for metrics; the texts are for people.
REFUSED: Final = "refused"  # nobody listens there
TIMEOUT: Final = "timeout"  # no connection in time
NO_ANSWER: Final = "no_answer"  # a connection, and no answer in time: the broker hangs
WRONG_ANSWER: Final = "wrong_answer"  # an answer, and not in the listener's protocol
CLOSED: Final = "closed"  # the connection was closed in place of an answer, or reset
NAME: Final = "name"  # the host's name does not resolve
TLS: Final = "tls"
OTHER: Final = "other"  # no route to the host, among others
REASONS: Final = (REFUSED, TIMEOUT, NO_ANSWER, WRONG_ANSWER, CLOSED, NAME, TLS, OTHER)


class UnreachableError(Exception):
    """The broker cannot be reached. The text says why, for the client too."""


class NoAnswerError(OSError):
    """The broker takes connections, and does not answer as it should. `label` is one of REASONS."""

    def __init__(self, label: str, text: str) -> None:
        super().__init__(errno.EPROTO, text)
        self.label = label


class Upstream:
    """One broker's address, and whether it is known to be there."""

    def __init__(
        self,
        listener: str,
        address: tuple[str, int],
        *,
        send_proxy: bool = False,
        tls: Hop | None = None,
        question: Question | None = None,
    ) -> None:
        self.listener = listener
        self.address = address
        self.send_proxy = send_proxy  # a PROXY header, version 2, before anything else
        self.tls = tls  # a reload may put another one here
        self.question = question  # what a broker is asked to see that it lives; None: that it takes connections suffices
        self.ok: bool | None = None  # whether the last dial or probe succeeded; with a question, whether it was answered; None before that
        self.why = ""  # of the last failure
        self.why_label = ""  # of the same; one of REASONS
        self.heard = Heard()  # which connection to it was read last; those that `move` leaves behind have another one
        self.dials: dict[str, int] = {"ok": 0, "failed": 0, "spared": 0}  # spared: refused without dialling
        self._failures = 0  # failed findings in a row
        self._findings = 0  # since the start; a dial that began before the last one finds out nothing newer
        self._retry_at = 0.0  # trio's clock
        self._probe_at = 0.0  # the same: one that is up is not probed before
        self._down_since = 0.0  # the same
        self._logged_at = 0.0
        self._probing = False
        self._dial_slots = trio.CapacityLimiter(MAX_DIALS)

    async def dial(self, ends: Ends | None) -> Channel:
        """A connection for the client with these ends (None: for the gateway itself), TLS included.

        Raises UnreachableError; OSError where this process is out of descriptors.
        """
        if self._must_wait():
            self._spare()
        async with self._dial_slots:
            if self._must_wait():  # the dials before this one have failed meanwhile
                self._spare()
            probes = self.ok is False  # then it is the only one under way
            if probes:
                self._probing = True
            findings = self._findings
            try:
                if probes and self.question is not None:
                    await self._ask()
                channel = await self._open(ends)
            except Exception as error:  # also what a resolver or TLS makes of a name: to the client it is all the same
                if _errno(error) in OUT_OF_DESCRIPTORS:  # nothing is known about the broker
                    raise
                self.dials["failed"] += 1
                if findings == self._findings:
                    self._failed(error)
                raise UnreachableError(self._unreachable(reason(error))) from error
            finally:
                if probes:
                    self._probing = False
        self.dials["ok"] += 1
        if probes or self.question is None:
            self._reached()
        return channel

    def move(self, address: tuple[str, int], tls: Hop | None) -> None:
        """The broker is at another address from now on. Nothing is known about that one."""
        self.address = address
        self.tls = tls
        self.ok = None
        self.why = self.why_label = ""
        self.heard = Heard()
        self._failures = 0
        self._retry_at = 0.0
        self._findings += 1  # what dials under way find out is of the old address

    def _must_wait(self) -> bool:
        return self.ok is False and (self._probing or trio.current_time() < self._retry_at)

    def _spare(self) -> None:
        self.dials["spared"] += 1
        raise UnreachableError(self._unreachable(self.why))

    def _unreachable(self, why: str) -> str:
        return f"the broker behind this gateway ({self.text}) cannot be reached: {why}"

    async def _open(self, ends: Ends | None) -> Channel:
        heard = self.heard
        sock = await self._connect()
        try:
            if self.send_proxy:
                sock.send(proxy_protocol.write(ends or _own_ends(sock)))  # a new socket takes 52 bytes at once
            channel = Channel(sock) if self.tls is None else await protect(sock, self.tls, CONNECT_TIMEOUT_S)
        except BaseException:
            sock.close()
            raise
        channel.heard = heard
        return channel

    async def _connect(self) -> socket.socket:
        try:
            with trio.fail_after(CONNECT_TIMEOUT_S):
                stream = await trio.open_tcp_stream(*self.address)
        except trio.TooSlowError as error:
            raise TimeoutError(errno.ETIMEDOUT, f"no connection within {CONNECT_TIMEOUT_S:.0f} s") from error
        sock = socket.socket(fileno=stream.socket.detach())
        sock.setblocking(False)
        set_up(sock)
        return sock

    def _reached(self) -> None:
        if self.ok is False:
            away_s = round(trio.current_time() - self._down_since, 3)
            log.event(logging.INFO, "upstream_reachable", listener=self.listener, upstream=self.text, unreachable_s=away_s)
        self.ok = True
        self.why = self.why_label = ""
        self._failures = 0
        self._findings += 1
        self._probe_later(PROBE_EVERY_S)

    def _probe_later(self, seconds: float) -> None:
        """Ask next in so many seconds, or a little earlier."""
        self._probe_at = trio.current_time() + seconds - random.uniform(0, JITTER * PROBE_EVERY_S)  # noqa: S311  -- jitter

    def _failed(self, error: BaseException) -> None:
        first = self.ok is not False
        self.ok = False
        self.why = reason(error)
        self.why_label = label(error)
        self._findings += 1
        ceiling = min(MAX_BACKOFF_S, MIN_BACKOFF_S * 2 ** min(self._failures, 16))
        self._retry_at = trio.current_time() + random.uniform(0, ceiling)  # noqa: S311  -- jitter
        self._failures += 1
        self._log_failed(trio.current_time(), first=first)

    def _log_failed(self, now: float, *, first: bool) -> None:
        """Log the change of state, and then a line a minute while it lasts. The naive way logs every probe, for as long as a broker is
        away."""
        if first:
            self._down_since = now
        elif now - self._logged_at < LOG_EVERY_S:
            return
        self._logged_at = now
        log.event(
            logging.WARNING, "upstream_unreachable", listener=self.listener, upstream=self.text, reason=self.why_label,
            err=self.why, since_s=round(now - self._down_since, 3), dials_failed=self.dials["failed"],
        )  # fmt: skip

    async def probe(self) -> None:
        """Find out whether the broker is there, where that is not known, it was not at last, or nothing was heard of it for a while; unless
        it is too early for that. Raises nothing that comes of the broker.
        """
        if self.ok is not True:
            if not self._must_wait():
                self._probing = True
                try:
                    if await self._look():
                        self.dials["ok"] += 1
                finally:
                    self._probing = False
        elif trio.current_time() >= self._probe_at:
            silent_s = self.heard.silent_s()
            if silent_s < PROBE_EVERY_S * (1 - JITTER):
                self._probe_later(PROBE_EVERY_S - silent_s)
            else:
                self._probe_later(PROBE_EVERY_S)
                await self._look()

    async def _look(self) -> bool:
        """Ask, and take the answer for the state of the broker; whether it has answered. What was found out meanwhile is newer."""
        findings = self._findings
        began = trio.current_time()
        try:
            await self._ask()
        except Exception as error:  # as in `dial`
            if findings != self._findings or _errno(error) in OUT_OF_DESCRIPTORS:
                return False
            if self.ok and label(error) in (TIMEOUT, NO_ANSWER) and self.heard.silent_s() < trio.current_time() - began:
                return False  # it has answered others while it was asked: it is slow, or has no place for one more, and does not hang
            self.dials["failed"] += 1
            self._failed(error)
            return False
        if findings != self._findings:
            return False
        self._reached()
        return True

    async def _ask(self) -> None:
        """Ask the question on a connection of its own. Raises as a dial does, and NoAnswerError."""
        connected = False
        try:
            with trio.fail_after(ANSWER_S):
                channel = await self._open(None)
                try:
                    connected = True
                    if self.question is not None:
                        await exchange(channel, self.question, self._hint())
                finally:
                    channel.close()
        except trio.TooSlowError as error:
            if connected:
                assert self.question is not None
                text = f"it takes connections and did not answer {self.question.name} within {ANSWER_S:g} s"
                raise NoAnswerError(NO_ANSWER, text) from error
            what = "connection" if self.tls is None else "connection, or no TLS handshake,"
            raise TimeoutError(errno.ETIMEDOUT, f"no {what} within {ANSWER_S:g} s") from error

    def _hint(self) -> str:
        """What a broker that closes the connection without a word may have missed: the alert of TLS may be lost with a reset."""
        sends = "v2" if self.send_proxy else "none"
        wants = "; does it require a certificate (upstream_tls.certificate)?" if self.tls is not None and self.tls.own is None else ""
        return f"; does send_proxy_protocol ({sends}) fit the broker's proxy_protocol?{wants}"

    @property
    def text(self) -> str:
        host, port = self.address
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def __repr__(self) -> str:
        state = "untried" if self.ok is None else "up" if self.ok else f"down: {self.why}"
        return f"<Upstream {state} {self.text}>"


async def exchange(channel: Channel, question: Question, hint: str) -> None:
    """Ask `question` and read until it is answered. `hint`: why the connection may be closed instead. Raises NoAnswerError, OSError."""
    await write_all(channel, question.send)
    answer = b""
    try:
        while not question.answered(answer):
            data = await read_some(channel)
            failure = channel.write_error or channel.read_error
            if isinstance(failure, ssl.SSLError):  # in TLS 1.3 a broker may find a certificate wanting after the handshake
                raise NoAnswerError(TLS, str(failure)) from failure
            if not data or len(answer) > MAX_ANSWER_BYTES:
                raise NoAnswerError(CLOSED, f"it closed the connection and did not answer {question.name}{'' if answer else hint}")
            answer += data
    except WrongAnswerError as error:
        raise NoAnswerError(WRONG_ANSWER, f"it {error}{hint if error.misheard else ''}") from error


def _own_ends(sock: socket.socket) -> Ends:
    """The gateway's own connection. LOCAL is the word for it, but RabbitMQ 3.10's reader crashes on that (rabbit_net:socket_ends/2)."""
    source, destination = sock.getsockname(), sock.getpeername()
    return Ends((source[0], source[1]), (destination[0], destination[1]))


def reason(error: BaseException) -> str:
    """Why a dial failed, in the system's words: of the last attempt where several addresses were tried."""
    cause = _last(error)
    if isinstance(cause, ConnectionError | socket.gaierror) or _errno(cause) in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        number = _errno(cause)  # trio's text repeats the address
        return os.strerror(number) if number > 0 else str(cause.args[-1])
    return getattr(cause, "strerror", None) or str(cause) or type(cause).__name__


def label(error: BaseException) -> str:
    """Why a dial or a probe failed, as one of REASONS."""
    cause = _last(error)
    if isinstance(cause, NoAnswerError):
        return cause.label
    if isinstance(cause, TlsHandshakeError):
        return TIMEOUT if cause.label == "timeout" else TLS
    if isinstance(cause, socket.gaierror | UnicodeError):
        return NAME
    if isinstance(cause, ConnectionRefusedError):
        return REFUSED
    if isinstance(cause, TimeoutError):
        return TIMEOUT
    return CLOSED if isinstance(cause, ConnectionError) else OTHER


def _last(error: BaseException) -> BaseException:
    """trio raises a bare OSError from the attempt that failed, or from a group of them."""
    cause = error.__cause__
    if isinstance(cause, BaseExceptionGroup):
        return _last(cause.exceptions[-1])
    return _last(cause) if isinstance(cause, OSError) and _errno(error) == 0 else error


def _errno(error: BaseException) -> int:
    number = getattr(error, "errno", None)
    return number if isinstance(number, int) else 0
