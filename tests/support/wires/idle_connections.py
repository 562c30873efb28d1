"""Many connections that have been used and now say nothing: both ends are played here, the gateway stands between."""

from __future__ import annotations

import queue
import resource
import socket
import threading
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Self

from pamqp import commands

from support.amqp import frames as amqp
from support.processes import LOOPBACK
from support.rocketmq import frames as rocketmq

PATIENCE_S = 20.0

Dialogue = list[tuple[bytes, bytes]]  # what the client says and what the broker answers, in turns

# Handshake, one channel with confirms, one publish.
AMQP: Dialogue = [
    (amqp.PROTOCOL_HEADER, amqp.broker_start()),
    (
        amqp.method(0, commands.Connection.StartOk({"product": "test", "version": "1"}, "PLAIN", "\0guest\0secret", "en_US")),
        amqp.method(0, commands.Connection.Tune(2047, 131072, 60)),
    ),
    (
        amqp.method(0, commands.Connection.TuneOk(2047, 131072, 60)) + amqp.method(0, commands.Connection.Open("/")),
        amqp.method(0, commands.Connection.OpenOk()),
    ),
    (amqp.method(1, commands.Channel.Open()), amqp.method(1, commands.Channel.OpenOk())),
    (amqp.method(1, commands.Confirm.Select()), amqp.method(1, commands.Confirm.SelectOk())),
    (amqp.publish(1, "orders.created", b"x" * 200, exchange="orders"), amqp.ack(1, 1)),
]

# A heartbeat, a send, a send-back, and four long polls the broker keeps.
ROCKETMQ: Dialogue = [
    (rocketmq.heartbeat(opaque=1), rocketmq.response(1)),
    (rocketmq.send(opaque=2), rocketmq.response(2)),
    (rocketmq.send(opaque=3), rocketmq.response(3)),
    (rocketmq.send_back(opaque=4), rocketmq.response(4)),
    (b"".join(rocketmq.pull(queue, opaque=5 + queue) for queue in range(4)) + rocketmq.heartbeat(opaque=9), rocketmq.response(9)),
]


def allow_open_files(count: int) -> None:
    """Raise the limit of descriptors of this process and of what it starts from now on. Raises ValueError above the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


class IdleConnections:
    """Opens connections through the gateway, as their clients and their broker at once. A context manager: leaving it closes them."""

    def __init__(self, dialogue: Dialogue) -> None:
        self._dialogue = dialogue
        self._open = ExitStack()
        self._server = self._open.enter_context(socket.create_server((LOOPBACK, 0), backlog=1024))
        self._greeted: queue.Queue[socket.socket] = queue.Queue()  # connections that the gateway has opened and that were answered once
        threading.Thread(target=self._greet, daemon=True).start()
        self.pairs: list[tuple[socket.socket, socket.socket]] = []  # client and broker

    @property
    def upstream(self) -> str:
        return f"{LOOPBACK}:{self._server.getsockname()[1]}"

    def add(self, count: int, port: int) -> None:
        """Open `count` more through the gateway's `port`, each used as far as the dialogue goes."""
        for _ in range(count):
            client = self._open.enter_context(socket.create_connection((LOOPBACK, port), timeout=PATIENCE_S))
            first, *others = self._dialogue
            client.sendall(first[0])  # the gateway dials the broker when the client has spoken
            _read_exactly(client, first[1])
            client.sendall(others[0][0])
            broker = self._accept()
            for turn, (said, answered) in enumerate(others):
                if turn:
                    client.sendall(said)
                _read_exactly(broker, said)
                broker.sendall(answered)
                _read_exactly(client, answered)
            self.pairs.append((client, broker))

    def _greet(self) -> None:
        """Give every connection its first answer. The gateway's question whether the broker lives gets it as well: it is a good one."""
        while True:
            try:
                broker = self._server.accept()[0]
            except OSError:
                return
            broker.settimeout(PATIENCE_S)
            if broker.recv(65536):
                broker.sendall(self._dialogue[0][1])
            self._greeted.put(broker)

    def _accept(self) -> socket.socket:
        """The gateway's next connection for a client; one that says nothing more was to see whether the broker is there."""
        while True:
            broker = self._greeted.get(timeout=PATIENCE_S)
            if broker.recv(1, socket.MSG_PEEK):
                return self._open.enter_context(broker)
            broker.close()

    @property
    def count(self) -> int:
        return len(self.pairs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # which wakes the thread in accept
        self._open.close()
        while not self._greeted.empty():
            self._greeted.get().close()


def _read_exactly(sock: socket.socket, expected: bytes) -> None:
    got = b""
    while len(got) < len(expected):
        data = sock.recv(65536)
        assert data, f"closed after {len(got)} of {len(expected)} bytes"
        got += data
    assert got == expected
