"""What a new connection is set up with."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from gateway.accepting.tcp import set_up

SYSTEM = Path("/proc/sys/net/ipv4/tcp_congestion_control")


@contextmanager
def connected(server_address: str, client_address: str) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection, the accepted one first."""
    with ExitStack() as held:
        server = held.enter_context(socket.create_server((server_address, 0)))
        client = held.enter_context(socket.create_connection(server.getsockname(), source_address=(client_address, 0)))
        yield held.enter_context(server.accept()[0]), client


def congestion_control(sock: socket.socket) -> str:
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()


def test_a_connection_that_stays_on_the_machine_is_not_paced() -> None:
    with connected("127.0.0.1", "127.0.0.1") as ends:
        for end in ends:
            set_up(end)
            assert end.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert congestion_control(end) == "reno"


def test_between_two_addresses_it_is_as_the_system_has_it() -> None:
    with connected("127.0.0.1", "127.0.0.2") as (accepted, client):
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic" if b"cubic" in allowed() else b"reno")
        before = congestion_control(client)
        for end in (accepted, client):
            set_up(end)
            assert end.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert congestion_control(accepted) == SYSTEM.read_text().strip()
        assert congestion_control(client) == before


def allowed() -> bytes:
    return Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control").read_bytes()


@pytest.mark.parametrize("closed", [False, True], ids=["reset by its peer", "closed here"])
def test_one_that_is_gone_already_is_no_fault(closed: bool) -> None:
    with connected("127.0.0.1", "127.0.0.1") as (accepted, client):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        if closed:
            accepted.close()
        set_up(accepted)
