"""Listeners: accept clients, dial the broker for each, hand both sockets to the event loop.

One upstream connection per client connection, opened when the client connects: brokers key consumers, transactions and callbacks by
connection. This is trio's side of a session's life; once both sockets are connected the event loop has them and no task is left.

Accepting survives running out of descriptors: a reserve descriptor is given up to accept and close at once, so that the kernel's queue
does not fill with clients who wait for nothing; one log line a second at most says so.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Callable
from typing import Final

import trio

from gateway import log
from gateway.assembly import Place

BACKLOG: Final = 4096  # the kernel caps it at net.core.somaxconn
ACCEPTS_PER_TURN: Final = 64  # then trio's turn
CONNECT_TIMEOUT_S: Final = 5.0  # reliability.md F35
OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

Handover = Callable[["Listener", socket.socket, tuple[str, int], socket.socket], None]  # listener, client, its address, upstream


class Listener:
    """One bound socket, the broker behind it, and counters."""

    def __init__(self, place: Place, bind: tuple[str, int], upstream: tuple[str, int]) -> None:
        self.place = place
        self.name = place.listener
        self.protocol = place.protocol
        self.bind = bind
        self.upstream = upstream
        self.opened = 0
        self.active = 0
        self.dialling = 0
        self.closed: dict[str, int] = {}  # cause -> connections
        self.upstream_ok: bool | None = None  # whether the last dial succeeded; None before the first
        self.dials: dict[str, int] = {"ok": 0, "failed": 0}
        self.sock: socket.socket | None = None

    def open(self) -> None:
        """Bind and listen. Raises OSError with the address in its message."""
        family = socket.AF_INET6 if ":" in self.bind[0] else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setblocking(False)
            sock.bind(self.bind)
            sock.listen(BACKLOG)
        except OSError as error:
            sock.close()
            raise OSError(error.errno, f"listener {self.name}: cannot bind {self.bind[0]}:{self.bind[1]}: {error.strerror}") from error
        self.sock = sock

    @property
    def address(self) -> tuple[str, int]:
        """Where it really listens (port 0 replaced by the one the kernel gave)."""
        if self.sock is None:
            return self.bind
        host, port = self.sock.getsockname()[:2]
        return host, port

    def count_closed(self, cause: str) -> None:
        self.closed[cause] = self.closed.get(cause, 0) + 1

    async def accept_forever(self, handover: Handover) -> None:
        """Accept until cancelled; every client gets its own short-lived task that dials the broker."""
        assert self.sock is not None
        reserve = os.open("/dev/null", os.O_RDONLY)
        try:
            async with trio.open_nursery() as nursery:
                while True:
                    await trio.lowlevel.wait_readable(self.sock)
                    for _ in range(ACCEPTS_PER_TURN):
                        try:
                            client, address = self.sock.accept()
                        except BlockingIOError:
                            break
                        except OSError as error:
                            if error.errno not in OUT_OF_DESCRIPTORS:
                                continue  # the client was gone before we accepted it (ECONNABORTED and its kin, accept(2))
                            reserve = self._turn_away(reserve, error)
                            await trio.sleep(0.1)
                            break
                        nursery.start_soon(self._connect, client, address[:2], handover)
        finally:
            if reserve >= 0:
                os.close(reserve)

    def _turn_away(self, reserve: int, error: OSError) -> int:
        """Out of descriptors: use the reserve to accept one client and close it at once."""
        assert self.sock is not None
        if reserve >= 0:
            os.close(reserve)
        try:
            client, _ = self.sock.accept()
            client.close()
            self.opened += 1
            self.count_closed("overload")
        except OSError:
            pass  # nobody waits any more, or another descriptor was taken meanwhile: try again in a moment
        log.event(logging.ERROR, "out_of_descriptors", listener=self.name, err=str(error), remedy="raise the nofile limit (ulimit -n)")
        try:
            return os.open("/dev/null", os.O_RDONLY)
        except OSError:
            return -1

    async def _connect(self, client: socket.socket, address: tuple[str, int], handover: Handover) -> None:
        self.opened += 1
        self.dialling += 1
        try:
            client.setblocking(False)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            upstream = await self._dial()
        except OSError as error:
            self._refused(client, error)
            return
        except trio.Cancelled:  # the gateway stops
            client.close()
            self.count_closed("drain")
            raise
        finally:
            self.dialling -= 1
        self.active += 1
        handover(self, client, address, upstream)

    def _refused(self, client: socket.socket, error: OSError) -> None:
        client.close()
        self.count_closed("upstream_unreachable")
        if self.upstream_ok is not False:
            self.upstream_ok = False
        log.event(
            logging.WARNING, "upstream_unreachable", listener=self.name, upstream=f"{self.upstream[0]}:{self.upstream[1]}", err=str(error)
        )

    async def _dial(self) -> socket.socket:
        """A connected, non-blocking socket to the broker. Raises OSError, TimeoutError included."""
        try:
            with trio.fail_after(CONNECT_TIMEOUT_S):
                stream = await trio.open_tcp_stream(*self.upstream)
        except trio.TooSlowError as error:
            self.dials["failed"] += 1
            raise TimeoutError(errno.ETIMEDOUT, f"no connection within {CONNECT_TIMEOUT_S:.0f} s") from error
        except OSError:
            self.dials["failed"] += 1
            raise
        self.dials["ok"] += 1
        if self.upstream_ok is False:
            log.event(logging.INFO, "upstream_reachable", listener=self.name, upstream=f"{self.upstream[0]}:{self.upstream[1]}")
        self.upstream_ok = True
        sock = socket.socket(fileno=stream.socket.detach())
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    async def probe(self) -> bool:
        """Whether the broker accepts connections now; asked only while no client has dialled it successfully."""
        try:
            (await self._dial()).close()
        except OSError:
            self.upstream_ok = False
        return bool(self.upstream_ok)

    def close(self) -> None:
        """Stop accepting."""
        if self.sock is not None:
            self.sock.close()
            self.sock = None

    def __repr__(self) -> str:
        state = "open" if self.sock is not None else "closed"
        return f"<Listener {state} {self.name} {self.protocol} {self.address} active={self.active}>"
