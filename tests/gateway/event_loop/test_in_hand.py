"""What a sweep reads is judged and passed on before it is more than the processor's cache holds, and what is little goes together."""

from __future__ import annotations

import socket

import pytest

from gateway.event_loop.sweeper import MAX_IN_HAND_BYTES
from gateway.transport.channel import READ_BYTES
from limiter.executor import NEVER, TRUSTED
from support.amqp import frames as amqp
from support.wires.conversations import rule
from support.wires.wires import Wires

CLIENTS = 8
GREETING = amqp.greeting(channels=(1,), heartbeat=0)


def opened(wires: Wires) -> tuple[socket.socket, socket.socket]:
    client, broker = wires.connect("amqp")
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    client.sendall(GREETING)
    wires.run(0.001)
    broker.sendall(amqp.broker_opens() + amqp.opened(1))
    wires.run(0.001)
    wires.received(broker)
    return client, broker


@pytest.mark.parametrize("size", [300, 6000])
def test_many_reads_are_submitted_in_lots(size: int) -> None:
    with Wires(rule(messages=10**6)) as wires:
        ends = [opened(wires) for _ in range(CLIENTS)]
        said = b"".join(amqp.publish(1, "orders", b"x" * size) for _ in range(10))
        for client, _ in ends:
            client.sendall(said)
        before = wires.sweeper.submissions
        wires.sweep(0.001)
        in_a_lot = -(-MAX_IN_HAND_BYTES // min(len(said), READ_BYTES))
        assert wires.sweeper.submissions - before == -(-CLIENTS // in_a_lot)
        wires.run()
        assert all(wires.received(broker) == said for _, broker in ends)


@pytest.mark.parametrize("inline", [TRUSTED, NEVER])
def test_whatever_judges_them_all_of_it_arrives_in_order(inline: str) -> None:
    """Also where a verdict comes from a thread while others still have their turn in the sweep."""
    with Wires(rule(messages=10**6), threads=1, inline=inline) as wires:
        ends = [opened(wires) for _ in range(CLIENTS)]
        for turn in range(20):
            said = b"".join(amqp.publish(1, f"orders-{number % 3}", b"%d" % turn * 5000) for number in range(12))
            for client, _ in ends:
                client.sendall(said)
            arrived = dict.fromkeys(ends, b"")

            def whole(arrived: dict[tuple[socket.socket, socket.socket], bytes] = arrived, said: bytes = said) -> bool:
                for end in arrived:
                    arrived[end] += wires.received(end[1])
                return all(found == said for found in arrived.values())

            wires.until(whole)
