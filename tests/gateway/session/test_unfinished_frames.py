"""A frame that a client begins and does not go on with: closed in words at `frame_timeout`, whether or not a byte comes now and then."""

from __future__ import annotations

import socket

import pytest

from gateway.session.deadlines import MIN_FRAME_RATE
from gateway.session.listener_config import ListenerConfig
from support.amqp import frames as amqp
from support.rocketmq import frames as rocketmq
from support.wires.wires import Wires

FRAME = rocketmq.send("orders", body=b"x" * 120_000)  # looked at whole


def config(protocol: str = "rocketmq", seconds: float = 30) -> ListenerConfig:
    made = ListenerConfig("here", protocol, 1 << 24, 10_000_000_000)
    made.frame_ns = int(seconds * 1e9)
    return made


def begun(wires: Wires, size: int, listener: ListenerConfig | None = None) -> tuple[socket.socket, socket.socket]:
    """A RocketMQ client that has sent one request, and so much of the next."""
    client, broker = wires.connect("rocketmq", config=listener or config())
    client.sendall(rocketmq.send("orders"))
    wires.run(0.003)
    client.sendall(FRAME[:size])
    wires.run(0.003)
    wires.received(broker)
    return client, broker


@pytest.mark.parametrize("size", [1, 7, 60, 100_000])
def test_a_frame_that_does_not_go_on_ends_the_connection_at_its_time(size: int) -> None:
    with Wires() as wires:
        begun(wires, size)
        wires.elapse(29)
        assert wires.sweeper.sessions
        wires.elapse(2)
        [session] = [*wires.sweeper.sessions.values(), *(ended for ended, _ in wires.ended)]
        assert session.cause == "frame_timeout"
        assert session.detail == f"a frame of which {size} bytes have come did not go on for 30 s (frame_timeout)"
        assert session.decode.undecoded() == 0, "and what it kept is free at once"


def test_a_byte_now_and_then_is_no_progress() -> None:
    with Wires() as wires:
        client, _ = begun(wires, 100)
        left = bytearray(FRAME[100:])

        def trickle() -> None:
            if not wires.ended:
                client.send(bytes([left.pop(0)]))

        wires.elapse(31, trickle)
        session = wires.ended[0][0] if wires.ended else wires.session()
        assert session.cause == "frame_timeout"


def test_a_slow_network_is_not_a_stranger() -> None:
    """Half as much again as the least rate, for as long as the frame takes: minutes."""
    with Wires() as wires:
        client, broker = begun(wires, 100)
        left = memoryview(FRAME)[100:]
        slice_bytes = MIN_FRAME_RATE * 3 // 2 // 4  # of a tick

        def go_on() -> None:
            nonlocal left
            client.sendall(left[:slice_bytes])
            left = left[slice_bytes:]

        while left:
            wires.elapse(0.25, go_on)
        wires.run()
        assert wires.received(broker) == FRAME
        assert not wires.ended


def test_an_amqp_client_is_told() -> None:
    with Wires() as wires:
        client, broker = wires.connect("amqp", config=config("amqp", 5))
        client.sendall(amqp.greeting(heartbeat=0, channels=(1,)))
        broker.sendall(amqp.broker_opens())
        wires.run()
        wires.received(client)
        client.sendall(amqp.publish(1, "orders")[:9])
        wires.elapse(6)
        assert b"did not go on for 5 s (frame_timeout)" in wires.received(client)


def test_a_client_that_is_not_read_owes_nothing() -> None:
    """The gateway itself keeps the frame from going on."""
    with Wires() as wires:
        begun(wires, 100_000)
        session = wires.session()
        session.budget.hold_back(yes=True)
        wires.elapse(90)
        assert wires.sweeper.sessions
        session.budget.hold_back(yes=False)
        wires.elapse(29)
        assert wires.sweeper.sessions
        wires.elapse(2)
        assert session.cause == "frame_timeout"


def test_a_gateway_that_stood_still_blames_nobody() -> None:
    with Wires() as wires:
        begun(wires, 100_000)
        wires.elapse(20)
        wires._clock += 60_000_000_000  # SIGSTOP, or a virtual machine that was suspended
        wires.elapse(20)
        assert wires.sweeper.sessions
        wires.elapse(12)
        assert not wires.sweeper.sessions or wires.session().cause == "frame_timeout"


def test_while_memory_is_scarce_the_time_is_a_quarter() -> None:
    with Wires() as wires:
        begun(wires, 100_000)
        session = wires.session()
        wires.shared.patience_divisor = 4
        wires.elapse(9)
        assert session.cause == "frame_timeout"


def test_a_whole_frame_ends_the_wait() -> None:
    with Wires() as wires:
        client, broker = begun(wires, 100_000)
        wires.elapse(20)
        client.sendall(FRAME[100_000:])
        wires.run()
        assert wires.received(broker) == FRAME
        wires.elapse(100)
        assert not wires.ended
