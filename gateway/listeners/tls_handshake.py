"""The TLS handshake of one connection, on trio's side: a connected socket becomes a TlsChannel, or an error that says why not.

A signature costs 1 to 5 ms of CPU (RSA of 2,048 to 4,096 bits), and trio runs all tasks that are ready in one go: a thousand clients that
come back at once would keep the data plane waiting for seconds. So one step of one handshake is made per turn of trio (`_steps`); between
two of them the event loop has its turn. Only steps queue: a client that sends nothing delays no other.

A peer that is refused is told so with TLS's own alert, and is read for a moment before its socket is closed: the RST of unread bytes
would overtake the alert, and the peer would show "connection reset" instead of the reason.
"""

from __future__ import annotations

import errno
import socket
import ssl
from typing import Final

import trio

from common.tls.certificates import common_name
from common.tls.context import Hop, explain
from gateway.transport.tls_channel import TlsChannel

READ_BYTES: Final = 16_384
LINGER_S: Final = 0.5  # for a refused peer to read the alert and close
ALERT: Final = 0x15  # record types: what a TLS connection may begin with (RFC 8446, 5.1)
HANDSHAKE: Final = 0x16

# What clients without TLS begin with. The texts end the sentence "the client ...".
WITHOUT_TLS: Final = (
    (b"AMQP", "speaks AMQP without TLS: use amqps:// in the client, or take `tls` off this listener"),
    (b"GET ", "speaks HTTP"),
    (b"POST", "speaks HTTP"),
    (b"PRI ", "speaks HTTP/2"),
    (b"PROX", "was sent on with a PROXY header: set accept_proxy_protocol: true and trusted_proxies"),
    (b"\r\n\r\n", "was sent on with a PROXY header: set accept_proxy_protocol: true and trusted_proxies"),
    (b"\x00", "speaks RocketMQ without TLS: set tls.enable=true in the client, or `mode: permissive` in this listener's `tls`"),
)

_steps = trio.Lock()


class TlsHandshakeError(OSError):
    """No TLS with this peer. `label` is one of a fixed set, for counting; the text is for operators."""

    def __init__(self, label: str, text: str) -> None:
        super().__init__(errno.EPROTO, text)
        self.label = label


async def protect(sock: socket.socket, hop: Hop, timeout_s: float, early: bytes = b"") -> TlsChannel:
    """Make the handshake on a connected, non-blocking socket. `early`: what was read of it already.

    Raises TlsHandshakeError, and ConnectionAbortedError where a client left without sending anything. The caller then closes the socket.
    """
    try:
        with trio.fail_after(timeout_s):
            return await _protect(sock, hop, early)
    except trio.TooSlowError:
        error = TlsHandshakeError("timeout", f"TLS: no handshake within {timeout_s:g} s")
    except TlsHandshakeError as found:
        error = found
    hop.failures[error.label] = hop.failures.get(error.label, 0) + 1
    raise error


async def _protect(sock: socket.socket, hop: Hop, early: bytes) -> TlsChannel:
    tls, incoming, outgoing = hop.begin()
    try:
        await _handshake(sock, hop, tls, incoming, outgoing, early)
    except (TlsHandshakeError, ConnectionAbortedError):
        raise
    except ssl.SSLError as error:
        with trio.move_on_after(LINGER_S):
            await _linger(sock, outgoing)
        label, text = explain(error)
        raise TlsHandshakeError(label, f"TLS: {text}") from error
    except OSError as error:
        raise TlsHandshakeError("closed", f"TLS: the peer closed the connection within the handshake: {error.strerror}") from error
    channel = TlsChannel(sock, tls, incoming, outgoing)
    if hop.server_side:
        channel.certificate_user = common_name(tls.getpeercert())
    else:
        channel.lends_certificate = hop.own is not None
    return channel


async def _handshake(
    sock: socket.socket, hop: Hop, tls: ssl.SSLObject, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, early: bytes
) -> None:
    first = True
    data = early
    while True:
        if data:
            if first and data[0] not in {HANDSHAKE, ALERT}:
                raise _not_tls(data, hop)
            first = False
            incoming.write(data)
        done = False
        if data or not hop.server_side:
            done = await _step(tls)
            await _send(sock, outgoing.read())
        if done:
            return
        try:
            data = await _receive(sock)
        except ConnectionError:
            data = b""
        if not data and first and hop.server_side:  # a port scan or a health check: nothing to do with TLS
            raise ConnectionAbortedError("the client left without a word")
        if not data:
            raise TlsHandshakeError("closed", "TLS: the peer closed the connection within the handshake")


async def _step(tls: ssl.SSLObject) -> bool:
    """One step of the handshake; whether it was the last. Raises ssl.SSLError."""
    async with _steps:
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        finally:
            await trio.lowlevel.cancel_shielded_checkpoint()  # the loop's turn before the next step
        return True


def _not_tls(data: bytes, hop: Hop) -> TlsHandshakeError:
    if not hop.server_side:
        return TlsHandshakeError("not_tls", f"TLS: the broker does not speak TLS on this port (it began with {data[:8]!r})")
    text = next((text for start, text in WITHOUT_TLS if data.startswith(start)), f"does not speak TLS (it began with {data[:8]!r})")
    return TlsHandshakeError("not_tls", f"TLS: the client {text}")


async def _receive(sock: socket.socket) -> bytes:
    while True:
        try:
            return sock.recv(READ_BYTES)
        except BlockingIOError:
            await trio.lowlevel.wait_readable(sock)


async def _send(sock: socket.socket, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[sock.send(view) :]
        except BlockingIOError:
            await trio.lowlevel.wait_writable(sock)


async def _linger(sock: socket.socket, outgoing: ssl.MemoryBIO) -> None:
    """Send the alert and FIN, then read until the peer closes."""
    try:
        await _send(sock, outgoing.read())
        sock.shutdown(socket.SHUT_WR)
        while await _receive(sock):
            pass
    except OSError:
        pass  # it is gone
