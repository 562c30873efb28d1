"""The admin's HTTP/1.1 server: h11 on trio, one task per connection, one request at a time.

    accept ── (at most 64 connections) ──► head ──► respond(head, body) ──► answer ──► next head ...
                                            5 s      10 s for the body      5 s per write

No client can hold the server up: every wait has a deadline, and a connection whose deadline passes, or that is cut
off by shutdown, is closed without waiting for it (Hypercorn's shutdown hangs behind a reader that stalls; `docs/design/reliability.md`
1.1). When all places are taken the connection that has been idle longest gives way; when none is idle a newcomer gets 503.

A request is not read further than needed: an unauthorised client is answered before the body is read, and then the connection ends.
"""

from __future__ import annotations

import contextlib
import errno
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import trio
import trio.abc

from admin import log
from admin.exchange import Deadlines, Exchange, SlowPeerError
from admin.http import Head, RefusedError
from admin.routing import Answer

ACCEPT_ERRORS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED})
BUSY: Final = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
MAX_CONNECTIONS: Final = 64  # open at once; docs/design/reliability.md F53

ReceiveBody: TypeAlias = Callable[[int], Awaitable[bytes]]  # (most bytes) -> the whole body; raises RefusedError
Respond: TypeAlias = Callable[[Head | RefusedError, ReceiveBody, str], Awaitable[Answer]]  # (head or what was wrong, body, peer's address)


@dataclass(slots=True)
class Counts:
    """Connections since the start."""

    opened: int = 0
    turned_away: int = 0  # answered 503: all connections in use, none idle
    too_slow: int = 0  # a deadline passed while writing


class Server:
    """The connections of the API. `respond` turns a head into an answer.

    Holds at most `most` connections, with one head, one body (as long as `respond` lets it be) and one piece of an answer each.
    """

    def __init__(self, respond: Respond, deadlines: Deadlines | None = None, most: int = MAX_CONNECTIONS) -> None:
        self._respond = respond
        self.deadlines = deadlines or Deadlines()
        self.most = most
        self.open: dict[Exchange, None] = {}  # in the order in which they began, or became idle
        self.counts = Counts()
        self.draining = False

    async def serve(self, listeners: Sequence[trio.abc.Listener[trio.abc.Stream]], grace: float) -> None:
        """Serve until cancelled; requests under way then have `grace` seconds to finish. Closes the listeners."""
        async with trio.open_nursery() as accepting:
            with trio.CancelScope(shield=True) as shield:
                async with trio.open_nursery() as connections:
                    stopped = trio.Event()
                    accepting.start_soon(self._accept_all, listeners, connections, stopped)
                    await stopped.wait()
                    self.draining = True
                    shield.deadline = trio.current_time() + grace
                    for exchange in self.open:
                        exchange.give_way()

    async def _accept_all(
        self, listeners: Sequence[trio.abc.Listener[trio.abc.Stream]], connections: trio.Nursery, stopped: trio.Event
    ) -> None:
        try:
            async with trio.open_nursery() as nursery:
                for listener in listeners:
                    nursery.start_soon(self._accept, listener, connections)
        finally:
            stopped.set()
            for listener in listeners:
                await trio.aclose_forcefully(listener)

    async def _accept(self, listener: trio.abc.Listener[trio.abc.Stream], connections: trio.Nursery) -> None:
        warned = False
        while True:
            try:
                stream = await listener.accept()
            except OSError as error:
                if error.errno not in ACCEPT_ERRORS:
                    raise
                if not warned:
                    log.event(logging.WARNING, "admin_accept_failed", err=error.strerror)
                    warned = True
                await trio.sleep(0.1)
                continue
            warned = False
            if self._make_room():
                connections.start_soon(self.attend, stream)
            else:
                self.counts.turned_away += 1
                with trio.move_on_after(0.1):
                    await _send_quietly(stream, BUSY)
                await trio.aclose_forcefully(stream)

    def _make_room(self) -> bool:
        if len(self.open) < self.most:
            return True
        for exchange in self.open:
            if exchange.give_way():
                del self.open[exchange]
                return True
        return False

    async def attend(self, stream: trio.abc.Stream) -> None:
        """Serve one connection to its end. A client can never make this raise."""
        exchange = Exchange(stream, peer_address(stream), self._respond, self.deadlines)
        self.open[exchange] = None
        self.counts.opened += 1
        try:
            while not self.draining and await exchange.turn(self._keep):
                self.open.pop(exchange, None)  # behind those that have been idle longer
                self.open[exchange] = None
        except SlowPeerError:
            self.counts.too_slow += 1
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the client went away
        except Exception as error:
            log.failure("admin_connection_failed", error)
        finally:
            self.open.pop(exchange, None)
            await trio.aclose_forcefully(stream)

    def _keep(self) -> bool:
        return not self.draining

    def __repr__(self) -> str:
        return f"<Server {'draining' if self.draining else 'serving'} {len(self.open)}/{self.most} connections>"


async def _send_quietly(stream: trio.abc.Stream, data: bytes) -> None:
    with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        await stream.send_all(data)


def peer_address(stream: trio.abc.Stream) -> str:
    """The client's address without its port; "local" for Unix sockets and wires in memory."""
    inner = getattr(stream, "transport_stream", stream)  # of a TLS stream
    if not isinstance(inner, trio.SocketStream):
        return "local"
    try:
        name = inner.socket.getpeername()
    except OSError:
        return "gone"
    return str(name[0]) if isinstance(name, tuple) else "local"
