"""Messages put into a real RocketMQ broker past any gateway, by frames of our own."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from support.brokers.rocketmq import RocketMQ
from support.processes import HANG_S, LOOPBACK
from support.rocketmq.frames import read_response, send

QUEUES = 4  # `send` writes to queue `opaque` modulo this


def store(broker: RocketMQ, topic: str, bodies: Sequence[str], *, queues: int = 1) -> None:
    """Store `bodies`, in turn in each of the first `queues` (at most 4) queues of a topic that is there. Raises AssertionError."""
    with socket.create_connection((LOOPBACK, broker.port), timeout=HANG_S) as connection:
        answers = connection.makefile("rb")
        for number, body in enumerate(bodies):
            connection.sendall(send(topic, body.encode(), opaque=QUEUES * number + number % queues))
            length = answers.read(4)
            answer = read_response(length + answers.read(int.from_bytes(length, "big")))
            assert answer["code"] == 0, answer
