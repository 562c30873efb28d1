"""Protocol detection: what a client's first bytes say, before anything is spent on it.

The bytes are looked at in the kernel's buffer (MSG_PEEK) and stay there for the next reader. SO_RCVLOWAT makes the kernel wait until enough
have come, so a client that sends one byte a second wakes no task. Until its deadline it costs a socket and a sleeping task, and no
connection to the broker.
"""

from __future__ import annotations

import math
import select
import socket
from typing import Final

import trio

from gateway.listeners.tls_handshake import HANDSHAKE
from gateway.pipeline.errors import ProtocolError
from gateway.protocols import PROTOCOLS
from gateway.transport import proxy_protocol
from gateway.transport.proxy_protocol import Ends, MalformedHeaderError

EARLY_WAKE_S: Final = 0.05  # until the next look where a system short of memory woke the reader early (tcp_under_memory_pressure; a guess)


async def read_proxy_header(sock: socket.socket) -> Ends | None:
    """Take the PROXY header off the beginning: the client's own ends, or None where the header has none.

    Raises MalformedHeaderError; ConnectionError when the client is gone.
    """
    need = proxy_protocol.MIN_BYTES
    while True:
        data = await _peek(sock, need, proxy_protocol.MAX_V2_BYTES)
        if len(data) < need:
            raise MalformedHeaderError(f"the connection ended {len(data)} bytes into its PROXY header")
        found = proxy_protocol.read(data)
        if isinstance(found, int):
            need = found
            continue
        sock.recv(found.size)  # all there
        return found.ends


async def begins_tls(sock: socket.socket) -> bool:
    """Wait for the first byte: whether it begins a TLS handshake, as RocketMQ's TlsModeHandler decides. Raises ConnectionError."""
    return (await _peek(sock, 1, 1))[0] == HANDSHAKE


async def check_protocol(sock: socket.socket, protocol: str, max_frame: int, *, others: bool, within_s: float = math.inf) -> bytes:
    """Wait for enough to tell whether `protocol` is spoken; what comes after the first byte may take `within_s`. Returns these bytes.

    Clients send these few bytes at once. One that trickles them would cost a connection to the broker once they are there, so it must not
    get so far. Raises ProtocolError, named after what is spoken instead; ConnectionError; trio.TooSlowError.
    """
    opening = PROTOCOLS[protocol].opening
    head = await _peek(sock, 1, opening.size)
    if len(head) < opening.size:
        with trio.fail_after(within_s):
            head = await _peek(sock, opening.size, opening.size)
    opening.check(head, max_frame, others)
    if len(head) < opening.size:
        raise ProtocolError(f"the connection ended after {head!r}", cause="client")
    return head


async def _peek(sock: socket.socket, least: int, most: int) -> bytes:
    """Up to `most` of what has come, once it is `least`; fewer only where the client has finished. Raises ConnectionError without any."""
    waited = False
    while True:
        try:
            data = sock.recv(most, socket.MSG_PEEK)
        except BlockingIOError:  # nothing, and no end either
            data = b""
        else:
            if not data:
                raise ConnectionAbortedError("the client left without a word")
            if len(data) >= least or _finished(sock):
                break
        if waited:
            await trio.sleep(EARLY_WAKE_S)
        elif least > 1:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least)
        waited = True
        await trio.lowlevel.wait_readable(sock)
    if waited and least > 1:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
    return data


def _finished(sock: socket.socket) -> bool:
    """Whether the peer has sent its FIN, or the connection is broken."""
    poll = select.poll()
    poll.register(sock, select.POLLRDHUP)  # POLLHUP and POLLERR are always reported
    return bool(poll.poll(0))
