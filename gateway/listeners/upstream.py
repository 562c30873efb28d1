"""An upstream: the broker behind a listener, and whether it can be reached.

The gateway dials once for every client and tells it the result; dialling again is the client's affair. The naive way dials for each client
even while the broker is known to be down: 2,000 clients a second then each wait for a timeout of their own, and the first packets a
restarting broker sees are a storm. So while it is down, one dial at a time is a **probe**, and all other clients are refused at once with
the reason of the last one. Probes are spaced by 0.1 s, doubling up to MAX_BACKOFF_S, each after a random part of that (full jitter). While
the broker is up, at most MAX_DIALS dials are under way; more wait for one of them. What those under way at the same time find out is one
finding: a broker that goes while a hundred are dialled has failed once, and is probed as soon as after a single dial.

Without dials, a broker that goes would be taken for one that is up until the next client. So one that is up, and to which no connection is
open, is **probed** every PROBE_EVERY_S: connect and close, without a PROXY header or TLS. RabbitMQ 3.10.8 logs nothing of that at level
info, with `proxy_protocol` neither (2026-11-23); RocketMQ's broker and name server log every connection. An open connection stands for the
broker until it ends. Such a probe counts as a dial only where it fails.

IPv4 and IPv6 addresses of a name are tried side by side (RFC 8305, trio.open_tcp_stream), within CONNECT_TIMEOUT_S in all.
"""

from __future__ import annotations

import errno
import logging
import os
import random
import socket
from contextlib import suppress
from typing import Final

import trio

from gateway import log
from gateway.listeners.tcp import set_up
from gateway.listeners.tls_handshake import protect
from gateway.transport import proxy_protocol
from gateway.transport.channel import Channel
from gateway.transport.proxy_protocol import Ends
from gateway.transport.tls.context import Hop

CONNECT_TIMEOUT_S: Final = 5.0  # docs/design/reliability.md F35
MAX_DIALS: Final = 128  # at a time per listener; a broker's own accept backlog is 128 (RabbitMQ's default)
# Between probes of a broker that is down: 0.1 to 5 s (docs/design/reliability.md F22); a little less than 5, so that clients are back
# within 5 s of the broker (F20)
MIN_BACKOFF_S: Final = 0.1
MAX_BACKOFF_S: Final = 4.5
PROBE_EVERY_S: Final = 30.0  # between probes of a broker that is up and not in use; a few lines a minute in RocketMQ's log (a guess)
LOG_EVERY_S: Final = 60.0  # between log lines that the broker still cannot be reached (a guess)
OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class UnreachableError(Exception):
    """The broker cannot be reached. The text says why, for the client too."""


class Upstream:
    """One broker's address, and whether it is known to be there."""

    def __init__(self, listener: str, address: tuple[str, int], *, send_proxy: bool = False, tls: Hop | None = None) -> None:
        self.listener = listener
        self.address = address
        self.send_proxy = send_proxy  # a PROXY header, version 2, before anything else
        self.tls = tls  # a reload may put another one here
        self.ok: bool | None = None  # whether the last dial succeeded, and no probe has failed since; None before the first
        self.why = ""  # of the last failure
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
                channel = await self._open(ends)
            except Exception as error:  # also what a resolver or TLS makes of a name: to the client it is all the same
                if _errno(error) in OUT_OF_DESCRIPTORS:  # nothing is known about the broker
                    raise
                why = reason(error)
                self.dials["failed"] += 1
                if findings == self._findings:
                    self._failed(why)
                raise UnreachableError(self._unreachable(why)) from error
            finally:
                if probes:
                    self._probing = False
        self._reached()
        return channel

    def move(self, address: tuple[str, int], tls: Hop | None) -> None:
        """The broker is at another address from now on. Nothing is known about that one."""
        self.address = address
        self.tls = tls
        self.ok = None
        self.why = ""
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
        sock = await self._connect()
        try:
            if self.send_proxy:
                sock.send(proxy_protocol.write(ends or _own_ends(sock)))  # a new socket takes 52 bytes at once
            return Channel(sock) if self.tls is None else await protect(sock, self.tls, CONNECT_TIMEOUT_S)
        except BaseException:
            sock.close()
            raise

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
        self.dials["ok"] += 1
        if self.ok is False:
            away_s = round(trio.current_time() - self._down_since, 3)
            log.event(logging.INFO, "upstream_reachable", listener=self.listener, upstream=self.text, unreachable_s=away_s)
        self.ok = True
        self.why = ""
        self._failures = 0
        self._findings += 1
        self._probe_at = trio.current_time() + PROBE_EVERY_S

    def _failed(self, why: str) -> None:
        first = self.ok is not False
        self.ok = False
        self.why = why
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
            logging.WARNING, "upstream_unreachable", listener=self.listener, upstream=self.text, err=self.why,
            since_s=round(now - self._down_since, 3), dials_failed=self.dials["failed"],
        )  # fmt: skip

    async def probe(self, *, in_use: bool) -> None:
        """Find out whether the broker takes connections, where that is not known, it did not at last, or it is not `in_use` (no connection
        to it is open) and was not heard of lately; unless it is too early for that.
        """
        now = trio.current_time()
        if self.ok is not True:
            if not self._must_wait():
                with suppress(OSError, UnreachableError):  # known and logged by then
                    (await self.dial(None)).close()
        elif in_use:
            self._probe_at = now + PROBE_EVERY_S
        elif now >= self._probe_at:
            self._probe_at = now + PROBE_EVERY_S
            await self._probe_unused()

    async def _probe_unused(self) -> None:
        """Whether the broker still takes connections. What a dial has found out meanwhile is newer; raises nothing.

        That it does is nothing new, and less than a dial finds out: with TLS, a dial that began before may yet fail.
        """
        findings = self._findings
        try:
            (await self._connect()).close()
        except Exception as error:  # as in `dial`
            if findings == self._findings and _errno(error) not in OUT_OF_DESCRIPTORS:
                self.dials["failed"] += 1
                self._failed(reason(error))

    @property
    def text(self) -> str:
        host, port = self.address
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def __repr__(self) -> str:
        state = "untried" if self.ok is None else "up" if self.ok else f"down: {self.why}"
        return f"<Upstream {state} {self.text}>"


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


def _last(error: BaseException) -> BaseException:
    """trio raises a bare OSError from the attempt that failed, or from a group of them."""
    cause = error.__cause__
    if isinstance(cause, BaseExceptionGroup):
        return _last(cause.exceptions[-1])
    return _last(cause) if isinstance(cause, OSError) and _errno(error) == 0 else error


def _errno(error: BaseException) -> int:
    number = getattr(error, "errno", None)
    return number if isinstance(number, int) else 0
