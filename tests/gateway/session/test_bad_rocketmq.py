"""Bad bytes of RocketMQ clients in real sessions: let go and counted, nothing of them forwarded, everybody else goes on (F08 to F10)."""

from __future__ import annotations

import socket
import tracemalloc

import pytest

from gateway.protocols import PROTOCOLS as REGISTERED
from gateway.session.listener_config import ListenerConfig
from support.rocketmq.bad_bytes import BAD, OF_SENDS
from support.rocketmq.frames import encode_request, heartbeat, response, send
from support.wires.conversations import MAX_FRAME, Ports
from support.wires.wires import Wires

PROTOCOLS = ("rocketmq", "rocketmq-nameserver")
ROUTE = encode_request(105, {"topic": "orders"}, opaque=5)


def connect(wires: Wires, protocol: str) -> tuple[socket.socket, socket.socket]:
    config = ListenerConfig("here", protocol, MAX_FRAME, 10_000_000_000)
    config.routes = Ports()
    return wires.connect(protocol, config=config)


def sweep(wires: Wires, times: int = 5) -> None:
    for _ in range(times):
        wires.sweeper.sweep(0)


def ended(end: socket.socket) -> bool:
    """Whether the gateway has closed its side, everything before it having been read."""
    end.settimeout(1)
    try:
        return end.recv(1) == b""
    except ConnectionResetError:
        return True


CASES = [
    pytest.param(name, protocol, pieces, id=f"{name}, {protocol}, {pieces}")
    for name, (data, _, _) in BAD.items()
    for protocol in PROTOCOLS
    for pieces in ("in one piece", "byte by byte")
    if not (protocol == "rocketmq-nameserver" and name in OF_SENDS)
    if pieces == "in one piece" or len(data) < 1_000
]


@pytest.mark.parametrize(("name", "protocol", "pieces"), CASES)
def test_the_sender_is_let_go_and_everybody_else_goes_on(name: str, protocol: str, pieces: str) -> None:
    data, cause, words = BAD[name]
    before = heartbeat() if protocol == "rocketmq" else ROUTE
    with Wires() as wires:
        bad, bad_broker = connect(wires, protocol)
        other, other_broker = connect(wires, protocol)
        if pieces == "in one piece":
            bad.sendall(before + data + before)
            sweep(wires)
        else:
            for octet in before + data:
                if 1 not in wires.sweeper.sessions:
                    break
                bad.send(bytes([octet]))
                wires.sweeper.sweep(0)
        sweep(wires)
        assert wires.received(bad_broker) == before
        ((session, error),) = wires.ended
        assert (session.cause, error) == (cause, None)
        assert cause in REGISTERED[protocol].close_causes
        assert words in session.detail
        assert "\n" not in session.detail
        assert ended(bad)
        assert ended(bad_broker)
        other.sendall(before)
        other_broker.sendall(response(1))
        sweep(wires)
        assert wires.received(other_broker) == before
        assert wires.received(other) == response(1)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "name", ["4 GiB", "2 GiB", "a byte too large", "header of 16 MiB", "header larger than is taken, of something else"]
)
def test_a_size_that_is_only_announced_takes_no_memory(name: str, protocol: str) -> None:
    with Wires() as wires:
        bad, _ = connect(wires, protocol)
        sweep(wires)
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        bad.sendall(BAD[name][0])
        sweep(wires)
        peak = tracemalloc.get_traced_memory()[1] - before
        tracemalloc.stop()
        assert peak < 100_000


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_largest_frame_that_may_be_announced_takes_no_memory_until_it_comes(protocol: str) -> None:
    with Wires() as wires:
        client, broker = connect(wires, protocol)
        sweep(wires)
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        client.sendall(((1 << 24) - 4).to_bytes(4, "big") + send()[4:100])
        sweep(wires)
        peak = tracemalloc.get_traced_memory()[1] - before
        tracemalloc.stop()
        assert wires.ended == []
        assert wires.received(broker) == b""
        assert peak < 100_000
