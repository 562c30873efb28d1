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


def set_up(sock: socket.socket) -> None:
    """Small messages leave at once; no pacing where both ends have the same address, as on the loopback.

    Raises nothing where the peer has gone already: the next read shows it.
    """
    with suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if sock.getsockname()[0] == sock.getpeername()[0]:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, WITHIN_MACHINE)
