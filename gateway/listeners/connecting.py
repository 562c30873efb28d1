"""A connection to a broker: TCP, the PROXY header, TLS; and the question asked on one.

All addresses of a name are tried, IPv4 and IPv6 side by side (RFC 8305, trio.open_tcp_stream), within CONNECT_TIMEOUT_S in all. That takes
a task for each, and ten times as long as the rest of a connection to a broker on this machine (340 against 34 µs, 2026-11). So where the
configuration has an address, nothing is looked up and nobody waits for what is there already.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from contextlib import suppress
from typing import Final

import trio

from common.tls.context import Hop
from gateway.listeners.tcp import set_up
from gateway.listeners.tls_handshake import protect
from gateway.listeners.unreachable import CLOSED, TLS, WRONG_ANSWER, NoAnswerError
from gateway.protocols.question import MAX_ANSWER_BYTES, Question, WrongAnswerError
from gateway.transport import proxy_protocol
from gateway.transport.channel import Channel, Heard
from gateway.transport.channel_io import read_some, write_all
from gateway.transport.proxy_protocol import Ends

CONNECT_TIMEOUT_S: Final = 5.0  # docs/design/reliability.md F35
UNSENT_BYTES: Final = 16_384  # in the kernel for a broker before it takes no more of us (TCP_NOTSENT_LOWAT): as trio sets it up for a name


async def connect(
    address: tuple[str, int], heard: Heard, ends: Ends | None, *, send_proxy: bool, tls: Hop | None, handshake_s: float = CONNECT_TIMEOUT_S
) -> Channel:
    """A connection for the client with these ends; None: for the gateway itself. TLS has `handshake_s` seconds.

    Raises what sockets, the resolver and TLS raise.
    """
    sock = await _connect(address)
    try:
        if send_proxy:
            sock.send(proxy_protocol.write(ends or _own_ends(sock)))  # a new socket takes 52 bytes at once
        channel = Channel(sock) if tls is None else await protect(sock, tls, handshake_s)
    except BaseException:
        sock.close()
        raise
    channel.heard = heard
    return channel


async def _connect(address: tuple[str, int]) -> socket.socket:
    host, port = address
    family = _family_of(host)
    try:
        sock = await (_connect_to(family, (host, port)) if family else _connect_by_name(host, port))
    except trio.TooSlowError as error:
        raise TimeoutError(errno.ETIMEDOUT, f"no connection within {CONNECT_TIMEOUT_S:.0f} s") from error
    set_up(sock)
    return sock


def _family_of(host: str) -> int:
    """Of an address; 0: it is a name."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with suppress(OSError, ValueError):
        socket.inet_pton(family, host)
        return family
    return 0


async def _connect_to(family: int, address: tuple[str, int]) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
        number = sock.connect_ex(address)
        if number == errno.EINPROGRESS:
            number = sock.connect_ex(address)  # within a machine it is done by now
        if number == errno.EALREADY:
            with trio.fail_after(CONNECT_TIMEOUT_S):
                await trio.lowlevel.wait_writable(sock)
            number = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            raise OSError(number, os.strerror(number))
    except BaseException:
        sock.close()
        raise
    return sock


async def _connect_by_name(host: str, port: int) -> socket.socket:
    with trio.fail_after(CONNECT_TIMEOUT_S):
        stream = await trio.open_tcp_stream(host, port)
    sock = socket.socket(fileno=stream.socket.detach())
    sock.setblocking(False)
    return sock


def _own_ends(sock: socket.socket) -> Ends:
    """The gateway's own connection. LOCAL is the word for it, but RabbitMQ 3.10's reader crashes on that (rabbit_net:socket_ends/2)."""
    source, destination = sock.getsockname(), sock.getpeername()
    return Ends((source[0], source[1]), (destination[0], destination[1]))


async def greet(channel: Channel, greeting: bytes, hint: str) -> None:
    """Send `greeting` and wait for the first byte of the answer, which stays where it is. Raises NoAnswerError, OSError."""
    await write_all(channel, greeting)
    if channel.write_error is not None:
        raise channel.write_error
    while True:
        try:
            if channel.sock.recv(1, socket.MSG_PEEK):
                return
        except BlockingIOError:
            await trio.lowlevel.wait_readable(channel.fd)
        else:
            raise NoAnswerError(CLOSED, f"it closed the connection and did not answer{hint}")


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


def hint(*, send_proxy: bool, tls: Hop | None) -> str:
    """What a broker that closes the connection without a word may have missed: the alert of TLS may be lost with a reset."""
    sends = "v2" if send_proxy else "none"
    wants = "; does it require a certificate (upstream_tls.certificate)?" if tls is not None and tls.own is None else ""
    return f"; does send_proxy_protocol ({sends}) fit the broker's proxy_protocol?{wants}"
