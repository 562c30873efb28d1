"""What a new connection is set up with."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import trio

from gateway.listeners.listener import Arrival, Listener
from gateway.listeners.tcp import KEEPALIVE_IDLE_S, KEEPALIVE_INTERVAL_S, KEEPALIVE_PROBES, set_up
from gateway.listeners.upstreams import Upstreams
from gateway.session.listener_config import ListenerConfig
from support.amqp import frames as amqp
from support.processes import LOOPBACK


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
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, other_than_reno())
            set_up(end)
            assert end.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert congestion_control(end) == "reno"


def keepalive(sock: socket.socket) -> tuple[bool, int, int, int]:
    """Whether it is on; seconds of silence before it begins, seconds between probes, and their number."""
    names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    idle, interval, probes = (sock.getsockopt(socket.IPPROTO_TCP, name) for name in names)
    return bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)), idle, interval, probes


def test_a_peer_that_is_gone_is_noticed_within_two_minutes() -> None:
    assert KEEPALIVE_IDLE_S + KEEPALIVE_INTERVAL_S * KEEPALIVE_PROBES <= 120


@pytest.mark.parametrize("inherited", [False, True])
async def test_both_sockets_of_a_client_are_set_up(inherited: bool) -> None:
    """The one that is accepted, and the one that is dialled for it; also where the client came before this process did."""
    arrived: list[Arrival] = []
    with socket.create_server(("127.0.0.1", 0)) as broker:
        upstream = Upstreams.at("rabbit", [broker.getsockname()[:2]])
        listener = Listener(ListenerConfig("rabbit", "amqp", 1 << 20, 5_000_000_000, 0), ("127.0.0.1", 0), upstream)
        listener.open(socket.create_server((LOOPBACK, 0)) if inherited else None)
        assert listener.sock is not None
        listener.sock.setblocking(False)
        listener.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, other_than_reno())  # which who is accepted inherits
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listener.accept_forever, lambda _, arrival: arrived.append(arrival))
            client = await trio.open_tcp_stream(*listener.address)
            await client.send_all(amqp.greeting())
            with trio.fail_after(30):
                while not arrived:
                    await trio.sleep(0.005)
            nursery.cancel_scope.cancel()
        (arrival,) = arrived
        assert arrival.upstream is not None
        for channel in (arrival.client, arrival.upstream):
            assert channel.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert congestion_control(channel.sock) == "reno"
            assert keepalive(channel.sock) == (True, KEEPALIVE_IDLE_S, KEEPALIVE_INTERVAL_S, KEEPALIVE_PROBES)
            assert channel.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 0, "which ends peers that live and do not read"
            channel.close()
        await client.aclose()
        listener.close()


def other_than_reno() -> bytes:
    """A congestion control to begin with, where the system has another one."""
    return next((name for name in allowed().split() if name != b"reno"), b"reno")


def test_between_two_addresses_it_is_as_the_system_has_it() -> None:
    with connected("127.0.0.1", "127.0.0.2") as (accepted, client):
        for end in (accepted, client):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, other_than_reno())
            set_up(end)
            assert end.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert congestion_control(end) == other_than_reno().decode()


def allowed() -> bytes:
    return Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control").read_bytes()


@pytest.mark.parametrize("closed", [False, True], ids=["reset by its peer", "closed here"])
def test_setting_up_a_connection_that_is_gone_already_is_no_fault(closed: bool) -> None:
    with connected("127.0.0.1", "127.0.0.1") as (accepted, client):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        if closed:
            accepted.close()
        set_up(accepted)
