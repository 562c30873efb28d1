"""Listeners: accept clients, look at each, dial the broker for it, hand both connections to the event loop.

There is one broker connection per client connection, opened for that client: brokers key consumers, transactions and callbacks by
connection. This is trio's side of a session's life. Once both ends are connected the event loop has them, and no task is left. A client
that does not get that far is rejected in the protocol's own words (`rejecter.py`). What each error on the way means stands in
`connection_errors.py`.

Accepting survives running out of descriptors. A reserve descriptor is given up to accept a client and close it at once, so that the
kernel's queue does not fill with clients that wait for nothing. One log line a second at most says so.
"""

from __future__ import annotations

import errno
import logging
import math
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import trio

from common import log
from common.tls.context import Hop
from gateway.admission import Admission, ConnectionLimits, ConnectionPermit, ConnectionSlots, RefusedError
from gateway.clock import now_ns
from gateway.listeners.connecting import CONNECT_TIMEOUT_S
from gateway.listeners.connection_errors import Refusal, RefusalLog, refusal_of
from gateway.listeners.protocol_detection import begins_tls, check_protocol, read_proxy_header
from gateway.listeners.rejecter import Rejecter
from gateway.listeners.tcp import set_up, unpace
from gateway.listeners.tls_handshake import protect
from gateway.listeners.unreachable import DESCRIPTORS, SHORTAGES, errno_of
from gateway.listeners.upstreams import Upstreams
from gateway.protocols import PROTOCOLS
from gateway.session.listener_config import ListenerConfig
from gateway.transport.channel import Channel
from gateway.transport.proxy_protocol import Ends, normalise_address
from gateway.transport.trusted_proxies import TrustedProxies

BACKLOG: Final = 4096  # the kernel limits it at net.core.somaxconn
OPENING_SHARE: Final = 4  # of handshake_timeout, for the first few bytes once one of them is there; they come in one segment (a guess)
MAX_ACCEPTS_PER_TURN: Final = 64  # then trio's turn (a guess)
LOG_EVERY_S: Final = 1.0  # between two log lines that descriptors are used up (a guess); a client is shed every 0.1 s
REMEDIES: Final = {
    errno.EADDRINUSE: "; `ss -ltnp` shows who has it: stop that, or give the listener another `bind`",
    errno.EADDRNOTAVAIL: "; no interface of this machine has that address: correct `bind`",
    errno.EACCES: "; ports below 1024 need the capability CAP_NET_BIND_SERVICE, or root",
}


@dataclass(slots=True)
class Arrival:
    """A client on its way in: grows from a socket to two channels and a permit."""

    client: Channel
    address: tuple[str, int]  # the client's own: as the PROXY header tells it, where one is taken
    ends: Ends | None = None  # where a PROXY header tells them, or must
    protected: bool = False  # TLS is up
    permit: ConnectionPermit | None = None
    upstream: Channel | None = None
    broker_greeted: bool = False  # the broker has answered the protocol header


Handover = Callable[["Listener", Arrival], None]


class Listener:
    """A bound socket (two with a VIP port), the brokers behind it, and counters. opened = closed + active + arriving, always."""

    def __init__(
        self,
        config: ListenerConfig,
        bind: tuple[str, int],
        upstreams: Upstreams,
        *,
        limits: ConnectionLimits | None = None,
        slots: ConnectionSlots | None = None,
        accept_proxy: bool = False,
        trusted_proxies: TrustedProxies | None = None,
        tls: Hop | None = None,
    ) -> None:
        self.config = config
        self.name = config.name
        self.protocol = config.protocol
        self.bind = bind
        self.port = bind[1]  # on which it listens; 0: one that the kernel has chosen
        self.upstreams = upstreams
        self.accept_proxy = accept_proxy
        self.trusted_proxies = trusted_proxies or TrustedProxies()  # a reload may put others here
        self.tls = tls  # towards clients; a reload may put another one here
        self.admission = Admission(self.name, limits or ConnectionLimits(), slots or ConnectionSlots.unbounded())
        self.rejecter = Rejecter(self.protocol)
        self.refusal_log = RefusalLog(self.name, self.protocol)
        self._shed_log = log.LogThrottle(LOG_EVERY_S)
        self.opened = 0
        self.active = 0
        self.arriving = 0
        self.closed: dict[str, int] = {}  # cause -> connections
        self.sock: socket.socket | None = None
        self.vip_sock: socket.socket | None = None  # of RocketMQ's VIP channel, where it has a port; opened by `broker_listeners.py`
        self.inherited = False  # it outlives this process: clients that come after `close` wait for the next process
        self._accepting = trio.CancelScope()
        self._accept_again = trio.Event()
        self._dialling: set[trio.CancelScope] = set()  # of clients whose broker is being dialled, or that wait for a place to be
        self._dial_until = math.inf  # their deadline, on trio's clock

    def open(self, inherited: socket.socket | None = None) -> None:
        """Bind and listen, or listen on a socket that systemd keeps. Raises OSError with the address in its message."""
        self.inherited = inherited is not None
        if inherited is not None:
            self.sock = inherited
            self.port = inherited.getsockname()[1]
            return
        self.sock = listen(self.bind, self.name)
        set_up(self.sock)

    def open_vip(self, port: int, inherited: socket.socket | None = None) -> None:
        """Listen on `port` as well. Raises OSError with the address in its message."""
        self.vip_sock = inherited if inherited is not None else listen((self.bind[0], port), self.name)
        set_up(self.vip_sock)

    @property
    def address(self) -> tuple[str, int]:
        """Where it really listens (port 0 replaced by the one the kernel gave)."""
        if self.sock is None:
            return self.bind
        host, port = self.sock.getsockname()[:2]
        return host, port

    def addresses(self) -> list[tuple[str, int]]:
        """All that it listens on."""
        return [self.address] if self.vip_sock is None else [self.address, self.vip_sock.getsockname()[:2]]

    def count_closed(self, cause: str) -> None:
        self.closed[cause] = self.closed.get(cause, 0) + 1

    async def accept_forever(self, handover: Handover) -> None:
        """Accept until cancelled; every client gets its own short-lived task that brings it in, and has CONNECT_TIMEOUT_S for it then."""
        assert self.sock is not None
        self._dial_until = math.inf
        async with trio.open_nursery() as nursery:
            try:
                while True:
                    with self._accepting:
                        async with trio.open_nursery() as accepting:
                            for sock in self.sockets():
                                accepting.start_soon(self._accept_on, sock, nursery, handover)
                    await self._accept_again.wait()
            finally:
                self._dial_until = trio.current_time() + CONNECT_TIMEOUT_S
                for scope in self._dialling:
                    scope.deadline = self._dial_until

    async def _accept_on(self, sock: socket.socket, nursery: trio.Nursery, handover: Handover) -> None:
        reserve = _reserve()
        try:
            while True:
                await trio.lowlevel.wait_readable(sock)
                for _ in range(MAX_ACCEPTS_PER_TURN):
                    try:
                        client, address = sock.accept()
                    except BlockingIOError:
                        break
                    except OSError as error:
                        if error.errno not in SHORTAGES:
                            continue  # the client was gone before we accepted it (ECONNABORTED and its kin, accept(2))
                        reserve = self._shed(sock, reserve, error)
                        await trio.sleep(0.1)
                        break
                    self.opened += 1
                    self.arriving += 1
                    nursery.start_soon(self._connect, client, (normalise_address(address[0]), address[1]), handover)
        finally:
            if reserve >= 0:
                os.close(reserve)

    def stop_accepting(self) -> None:
        """Accept nobody until `accept_again`; who was accepted goes on coming in."""
        if not self._accepting.cancel_called:  # a worker that begins while the next process is asked for is told twice
            self._accept_again = trio.Event()
            self._accepting.cancel()

    def accept_again(self) -> None:
        if self._accepting.cancel_called:
            self._accepting = trio.CancelScope()
            self._accept_again.set()

    def _shed(self, sock: socket.socket, reserve: int, error: OSError) -> int:
        """Out of descriptors, or of the kernel's memory: use the reserve to accept one client and close it at once."""
        if reserve >= 0:
            os.close(reserve)
        try:
            client, _ = sock.accept()
            client.close()
            self.opened += 1
            self.count_closed("overload")
        except OSError:
            pass  # no client waits any more, or another descriptor was taken meanwhile: try again in a moment
        times = self._shed_log.count_until_due()
        if times:
            number = errno_of(error)
            event = "out_of_descriptors" if number in DESCRIPTORS else "out_of_socket_memory"
            log.event(logging.ERROR, event, listener=self.name, err=str(error), times=times, remedy=SHORTAGES[number])
        return _reserve()

    # ---- one client's way in ---------------------------------------------------------------------------------------

    async def _connect(self, sock: socket.socket, peer: tuple[str, int], handover: Handover) -> None:
        """From accept to handover, or to the way out."""
        arrival = Arrival(Channel(sock), peer)
        try:
            await self._arrive(arrival)
        except Exception as error:  # let it crash: this client only
            refusal = refusal_of(error)
            self._count_lost(arrival, refusal.cause)
            make_room = self.admission.slots.make_room
            if isinstance(error, RefusedError) and make_room is not None:
                make_room(self.name, error.cause, arrival.address[0])
            self.refusal_log.add(refusal, arrival.address, now_ns())
            await self._reject(arrival, refusal)
        except BaseException:  # cancelled: the gateway stops
            self._count_lost(arrival, "drain")
            arrival.client.close()
            raise
        else:
            self.arriving -= 1
            self.active += 1
            handover(self, arrival)

    async def _arrive(self, arrival: Arrival) -> None:
        """A permit, the client's address, TLS, the protocol's first bytes; then the broker. Raises what `refusal_of` knows.

        A peer that may not say who its client is takes no permit, and nothing of it is read.
        """
        if self.accept_proxy:
            self.trusted_proxies.check(arrival.address[0], self.name)
        sock = arrival.client.sock
        if self.inherited:  # it may have come before this process did
            set_up(sock)
        else:
            unpace(sock)
        arrival.permit = self.admission.admit(None if self.accept_proxy else arrival.address[0], now_ns())
        handshake_s = self._handshake_s()
        with trio.CancelScope(deadline=trio.current_time() + handshake_s) as scope:  # one for both: each takes as long as a wait
            await self._prepare(arrival)
            if self.accept_proxy:
                arrival.permit.take_address(arrival.address[0])
            head = b""
            if not arrival.protected:
                opening_s = handshake_s / OPENING_SHARE
                head = await check_protocol(sock, self.protocol, self.config.max_frame, others=self.config.others_pass, within_s=opening_s)
            # Shielded: where accepting ends meanwhile, a client that has begun still gets in, and is told in its protocol. Not for ever:
            # before a slow broker a thousand may wait, and the drain begins behind them.
            scope.shield, scope.deadline = True, self._dial_until
            self._dialling.add(scope)
            try:
                if self.upstreams.send_proxy and arrival.ends is None:
                    arrival.ends = _ends_of(arrival.client.sock, arrival.address)
                greeting = self._greeting(head)
                arrival.upstream = await self.upstreams.dial(arrival.ends, greeting)
                arrival.broker_greeted = bool(greeting)
            finally:
                self._dialling.remove(scope)
        if scope.cancelled_caught:
            await trio.lowlevel.checkpoint_if_cancelled()  # accepting has ended: as all others that are on their way in
            raise trio.TooSlowError

    def _greeting(self, head: bytes) -> bytes:
        """What the broker is to answer before this client, which began with `head` (b"": not known), is led to it; b"" for nothing.

        Only where there is another address to go to. Over TLS the handshake has shown that a broker's process is there.
        """
        header = PROTOCOLS[self.protocol].opening.header
        sure = head == header or not (head or self.config.others_pass)
        return header if sure and len(self.upstreams.members) > 1 and self.upstreams.tls is None else b""

    def _handshake_s(self) -> float:
        return self.config.handshake_ns / 1e9 / self.admission.slots.patience_divisor

    async def _prepare(self, arrival: Arrival) -> None:
        """What comes before the protocol's own first byte: the PROXY header, then TLS. Does what is not done yet."""
        sock = arrival.client.sock
        if self.accept_proxy and arrival.ends is None:
            arrival.ends = await read_proxy_header(sock) or _ends_of(sock, arrival.address)
            arrival.address = arrival.ends.source
        if self.tls is None or arrival.protected:
            return
        if not self.tls.permissive or await begins_tls(sock):
            arrival.client = await protect(sock, self.tls, self._handshake_s())
            arrival.protected = True

    def _count_lost(self, arrival: Arrival, cause: str) -> None:
        """Not a connection any more: counted as closed, its permit is released."""
        self.arriving -= 1
        self.count_closed(cause)
        if arrival.permit is not None:
            arrival.permit.release()

    async def _reject(self, arrival: Arrival, refusal: Refusal) -> None:
        """Tell the client why, in its protocol where that has words for it, and close."""

        async def client() -> Channel:
            await self._prepare(arrival)
            return arrival.client

        try:
            if refusal.code:
                await self.rejecter.reject(client, refusal.code, refusal.text, away=refusal.cause == "upstream_unreachable")
            else:
                await self.rejecter.send_last_words(arrival.client, refusal.last_words)
        except Exception as error:  # let it crash: this client only
            log.failure("session_failed", error, listener=self.name)
        finally:
            arrival.client.close()

    def close(self) -> None:
        """Stop accepting. An inherited socket stays open for its other holders."""
        for sock in self.sockets():
            sock.close()
        self.sock = None
        self.vip_sock = None

    def sockets(self) -> list[socket.socket]:
        """Those it listens on."""
        return [sock for sock in (self.sock, self.vip_sock) if sock is not None]

    def __repr__(self) -> str:
        state = "open" if self.sock is not None else "closed"
        return f"<Listener {state} {self.name} {self.protocol} {self.address} active={self.active} arriving={self.arriving}>"


def listen(address: tuple[Any, ...], name: str, *, shared: bool = False) -> socket.socket:
    """A socket that listens there (`address` as the socket module has it), `shared`: one of several on this address, among which the kernel
    spreads clients. Raises OSError with the address in its message.
    """
    sock = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.setblocking(False)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise _cannot_bind(error, name, address) from error
    return sock


def _cannot_bind(error: OSError, name: str, address: Sequence[Any]) -> OSError:
    """The error of binding listener `name`, with the address in its message and, for the usual causes, the way out."""
    host, port = address[:2]
    return OSError(error.errno, f"listener {name}: cannot bind {host}:{port}: {error.strerror}{REMEDIES.get(error.errno or 0, '')}")


def _reserve() -> int:
    """A descriptor to give up when there are no more; -1 where there are none even now, as for a broker's listener opened that late."""
    try:
        return os.open("/dev/null", os.O_RDONLY)
    except OSError:
        return -1


def _ends_of(sock: socket.socket, peer: tuple[str, int]) -> Ends:
    """Both ends as the kernel has them."""
    host, port = sock.getsockname()[:2]
    return Ends(peer, (normalise_address(host), port))
