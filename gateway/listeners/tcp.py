"""How the gateway's TCP connections are set up, to either side."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Final

# Congestion control for connections that stay on this machine. Where the system's is BBR, it paces them too, by timers, though nothing
# can be congested there; in a virtual machine setting a timer costs more than passing a message: one of 16 KiB in a stream cost 12.5 µs,
# and with this 5.6, at twice the rate (2026-11). Reno does not pace (what BBR has begun goes on at twice the window's rate, which was not
# to be seen beside sockets that never had it), is in every Linux, and anybody may choose it (tcp(7)).
WITHIN_MACHINE: Final = b"reno"

# Keepalive (RFC 1122, 4.2.3.6). A peer whose host or network is gone says nothing, as one does that has nothing to say: AMQP clients
# without heartbeats may be silent for days. The kernel asks a peer that has been silent for KEEPALIVE_IDLE_S whether it is still there,
# and gives the connection up after KEEPALIVE_PROBES without an answer: within two minutes (the system's own default is two hours). A
# minute keeps entries in NATs and balancers, too (Azure's forgets after 4 min, AWS' after 350 s); six probes outlast 50 s of a broken
# path.
#
# TCP_USER_TIMEOUT would also bound bytes that are not acknowledged, which the kernel repeats for 15 min (tcp_retries2). It is not set: it
# ends connections to peers that answer each window probe and just do not read (tried on Linux 6.18, 2026-11: 3.4 s at 3 s; with keepalive
# alone such a peer lives). That is what a broker under a memory alarm does, for hours. Clients that do not read have MAX_UNREAD_NS.
KEEPALIVE_IDLE_S: Final = 60
KEEPALIVE_INTERVAL_S: Final = 10
KEEPALIVE_PROBES: Final = 6


def set_up(sock: socket.socket) -> None:
    """Small messages leave at once; a peer that is gone is noticed; no pacing within the machine (`unpace`). A socket that listens passes
    all but the last on to those it accepts.

    Raises nothing where the peer has gone already: the next read shows it.
    """
    with suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_PROBES)
    unpace(sock)


def unpace(sock: socket.socket) -> None:
    """No pacing where both ends have the same address, as on the loopback. Raises nothing, as `set_up`."""
    with suppress(OSError):
        if sock.getsockname()[0] == sock.getpeername()[0]:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, WITHIN_MACHINE)
