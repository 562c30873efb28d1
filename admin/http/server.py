"""The admin's HTTP/1.1 server: h11 on trio, one task per connection, one request at a time.

    accept ──► head ──► a seat, a place (at most 64) ──► respond(head, body) ──► answer ──► next head ...
               5 s      5 s                              10 s for the body       5 s per write
                                                                  └──► live body (a stream), which has left its place among the 64

No client can hold the server up: every wait has a deadline, and a connection whose deadline passes, or that is cut
off by shutdown, is closed without waiting for it (Hypercorn's shutdown hangs behind a reader that stalls; `docs/design/reliability.md`
1.1). Few requests without a good token are worked on at once, addresses take turns, and those with one wait for none of them: the first
look at a head shows it (`first_look.py`). When all places are taken, others give way to a newcomer (`places.py`): whoever has no good
token after its first answer, then slow requests, then those that are idle, and at last half-sent bodies and clients that do not take
their answers. So clients without a token cannot keep others out, the probes least of all. Only where every place is worked for, a
newcomer gets 503, after 5 s. TLS handshakes have places of their own (`tls.py`).

A request is not read further than needed: an unauthorised client is answered before the body is read, and then the connection ends.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import trio
import trio.abc

from admin.http.exchange import Deadlines, Exchange, SlowPeerError
from admin.http.first_look import FirstLook
from admin.http.parsing import Head, RequestRefusedError
from admin.http.peer import Peer, peer_of, speaks_tcp
from admin.http.places import ConnectionPlaces
from admin.http.routing import Answer
from admin.http.tls import HandshakeError, Handshakes
from common import log
from common.descriptors import WHOLE

SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
GONE: Final = frozenset(  # a client that went before it was accepted, or its network (accept(2))
    {
        errno.ECONNABORTED, errno.EPROTO, errno.ENETDOWN, errno.ENETUNREACH, errno.ENOPROTOOPT, errno.EHOSTDOWN, errno.EHOSTUNREACH,
        errno.ENONET, errno.EOPNOTSUPP,
    }
)  # fmt: skip
MAX_ACCEPTS: Final = 8  # before the event loop's other work; some 0.1 ms each with what follows at once; a guess
BUSY: Final = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"

ReceiveBody: TypeAlias = Callable[[int], Awaitable[bytes]]  # (most bytes) -> the whole body; raises RequestRefusedError
Respond: TypeAlias = Callable[[Head | RequestRefusedError, ReceiveBody, Peer], Awaitable[Answer]]  # (head or what was wrong, body, peer)


@dataclass(slots=True)
class ConnectionCounts:
    """Connections since the start."""

    opened: int = 0
    turned_away: int = 0  # answered 503: all places were worked for
    too_slow: int = 0  # a deadline passed while writing


class Server:
    """The connections of the API. `respond` turns a head into an answer.

    Holds at most `most` connections, with one head, one body (as long as `respond` lets it be) and one piece of an answer each.
    """

    def __init__(
        self,
        respond: Respond,
        deadlines: Deadlines | None = None,
        most: int = WHOLE.connections,
        arriving: int = WHOLE.arriving,
        first_look: FirstLook | None = None,
    ) -> None:
        self._respond = respond
        self._first_look = first_look or FirstLook()
        self.deadlines = deadlines or Deadlines()
        self.most = most
        self.tls: Handshakes | None = None  # of new connections over TCP; a reload may put one here
        self.places: ConnectionPlaces[Exchange] = ConnectionPlaces(most, arriving)
        self.open = self.places.held
        self.live: set[Exchange] = set()  # with bodies without an end; they take no other's place, and bound their own number
        self.counts = ConnectionCounts()
        self.draining = False

    async def serve(self, listeners: Sequence[trio.abc.Listener[trio.abc.Stream]], grace: float) -> None:
        """Serve until cancelled; requests under way then have `grace` seconds to finish. Closes the listeners."""
        async with trio.open_nursery() as accepting:
            with trio.CancelScope(shield=True) as shield:
                async with trio.open_nursery() as ushering:
                    ushering.start_soon(self.places.run)
                    async with trio.open_nursery() as connections:
                        stopped = trio.Event()
                        accepting.start_soon(self._accept_all, listeners, connections, stopped)
                        await stopped.wait()
                        self.draining = True
                        shield.deadline = trio.current_time() + grace
                        for exchange in self.places.connections:
                            if exchange.waits_for_a_request():
                                exchange.scope.cancel()
                    ushering.cancel_scope.cancel()

    async def _accept_all(
        self, listeners: Sequence[trio.abc.Listener[trio.abc.Stream]], connections: trio.Nursery, stopped: trio.Event
    ) -> None:
        try:
            async with trio.open_nursery() as nursery:
                for listener in listeners:
                    nursery.start_soon(self._accept, listener, connections)
        finally:
            stopped.set()
            with trio.CancelScope(shield=True):  # else the cancellation that brought us here would spare all but the first
                for listener in listeners:
                    await trio.aclose_forcefully(listener)

    async def _accept(self, listener: trio.abc.Listener[trio.abc.Stream], connections: trio.Nursery) -> None:
        assert isinstance(listener, trio.SocketListener)
        warned = False
        with socket.socket(fileno=os.dup(listener.socket.fileno())) as sock:  # trio's own accepts one between two turns of the loop
            sock.setblocking(False)
            while True:
                await trio.lowlevel.wait_readable(sock)
                for _ in range(MAX_ACCEPTS):
                    try:
                        client, _ = sock.accept()
                    except BlockingIOError:
                        break
                    except OSError as error:
                        if error.errno in GONE:
                            continue
                        if error.errno not in SHORTAGES:
                            raise
                        if not warned:
                            log.event(logging.WARNING, "admin_accept_failed", err=error.strerror)
                            warned = True
                        await trio.sleep(0.1)
                        break
                    warned = False
                    self._take(trio.SocketStream(trio.socket.from_stdlib_socket(client)), connections)

    def _take(self, stream: trio.SocketStream, connections: trio.Nursery) -> None:
        peer = peer_of(stream)
        if self.tls is not None and speaks_tcp(stream):
            connections.start_soon(self._protect, self.tls, stream, peer)
        else:
            connections.start_soon(self.attend, stream, peer)

    async def _protect(self, tls: Handshakes, stream: trio.abc.Stream, peer: Peer) -> None:
        """Attend to a client once its handshake is done."""
        try:
            protected = await tls.shake_hands(stream, peer)
        except HandshakeError as error:
            log.event(logging.DEBUG, "admin_tls_failed", client=peer.address, err=str(error))
            await trio.aclose_forcefully(stream)
            return
        except BaseException as error:
            await trio.aclose_forcefully(stream)
            if not isinstance(error, Exception):
                raise
            log.failure("admin_connection_failed", error)
            return
        await self.attend(protected, peer)

    async def _turn_away(self, stream: trio.abc.Stream) -> None:
        self.counts.turned_away += 1
        with trio.move_on_after(0.1):
            await _send_quietly(stream, BUSY)
        await trio.aclose_forcefully(stream)

    async def attend(self, stream: trio.abc.Stream, peer: Peer | None = None) -> None:
        """Serve one connection to its end. A client can never make this raise."""
        exchange = Exchange(stream, peer or peer_of(stream), self._respond, self.deadlines, self.places, self._first_look, self._goes_live)
        if not self.places.arrive(exchange):
            await self._turn_away(stream)
            return
        self.counts.opened += 1
        try:
            with exchange.scope:
                while not self.draining and await exchange.turn(self._keep):
                    pass
        except SlowPeerError:
            self.counts.too_slow += 1
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the client went away
        except Exception as error:
            log.failure("admin_connection_failed", error)
        finally:
            self.places.leave(exchange)
            self.live.discard(exchange)
            if exchange.turned_away:
                await self._turn_away(stream)
            elif isinstance(stream, trio.SocketStream):
                stream.socket.close()  # at once; what follows costs a cancellation
            else:
                await trio.aclose_forcefully(stream)

    def _goes_live(self, exchange: Exchange) -> None:
        self.places.leave(exchange)
        self.live.add(exchange)

    def _keep(self) -> bool:
        return not self.draining

    def __repr__(self) -> str:
        return f"<Server {'draining' if self.draining else 'serving'} {len(self.open)}/{self.most} connections>"


async def _send_quietly(stream: trio.abc.Stream, data: bytes) -> None:
    with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        await stream.send_all(data)
