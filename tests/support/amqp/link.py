"""An AMQP connection through a session in `Wires`: both its ends in our hands, its handshake played."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress

from pamqp import commands

from gateway.assembly import assemble
from gateway.session.listener_config import ListenerConfig
from gateway.session.session import Session
from gateway.transport.channel import Channel
from support.amqp import frames as amqp
from support.wires.wires import Wires

MOST_FLOOD = 1 << 23  # bytes; sockets and caps hold much less
Connect = Callable[[str], tuple[socket.socket, socket.socket]]


class Link:
    """`say` speaks as the client, `answer` as the broker; `at_client` and `at_broker` are what has arrived there since the last look."""

    def __init__(
        self,
        wires: Wires,
        *,
        heartbeat: int = 0,
        frame_max: int = 131072,
        channels: tuple[int, ...] = (1, 2),
        confirms: tuple[int, ...] = (),
        connect: Connect | None = None,
        address: str = "10.0.0.7",
    ) -> None:
        self.wires = wires
        self.client, self.broker = wires.connect("amqp", address) if connect is None else connect("amqp")
        self.session: Session = list(wires.sweeper.sessions.values())[-1]
        self.answer(amqp.broker_start())
        self.say(amqp.greeting(heartbeat=heartbeat, frame_max=frame_max, channels=channels, confirms=confirms))
        answers = [amqp.method(0, commands.Connection.Tune(2047, frame_max, heartbeat)), amqp.method(0, commands.Connection.OpenOk())]
        self.answer(b"".join(answers))
        self.answer(amqp.opened(*channels))
        self.at_client()
        self.at_broker()

    def say(self, data: bytes) -> None:
        self._send(self.client, data)

    def answer(self, data: bytes) -> None:
        self._send(self.broker, data)

    def _send(self, end: socket.socket, data: bytes) -> None:
        """Send all of it, as the gateway takes it, and let the gateway do what follows. Raises TimeoutError where it takes no more."""
        deadline = time.monotonic() + 5
        left = memoryview(data)
        end.setblocking(False)
        try:
            while left:
                with suppress(BlockingIOError):
                    left = left[end.send(left) :]
                self.wires.run(0.003)
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{len(left)} of {len(data)} bytes are not taken: {self.session}")
        finally:
            end.settimeout(60)

    def flood(self, end: socket.socket, data: bytes) -> None:
        """Send `data` at `end` again and again, until no more of it is taken. Fails where all is taken for ever."""
        end.setblocking(False)
        with suppress(BlockingIOError):
            for _ in range(MOST_FLOOD // len(data)):
                end.send(data)
                self.wires.run(0.001)
            raise AssertionError(f"{MOST_FLOOD} bytes were taken: {self.session}")
        end.settimeout(60)

    def end_in_words(self) -> bytes:
        """The broker is told that its connection ends, answers, and gets the FIN. What had come before that."""
        *before, last = amqp.read(self.at_broker())
        assert last.name == "Connection.Close", last
        self.answer(amqp.method(0, commands.Connection.CloseOk()))
        assert self.broker.recv(1) == b"", "the FIN"
        return b"".join([frame.raw for frame in before])

    def at_client(self) -> bytes:
        return self._received(self.client)

    def at_broker(self) -> bytes:
        return self._received(self.broker)

    def _received(self, end: socket.socket) -> bytes:
        """All there is, and what follows when there is room again."""
        found = more = self.wires.received(end)
        while more:
            self.wires.run(0.002)
            more = self.wires.received(end)
            found += more
        return found

    def close_of(self, data: bytes) -> commands.Connection.Close:
        """The connection.close with which `data` ends."""
        last = amqp.read(data)[-1].value
        assert isinstance(last, commands.Connection.Close), last
        return last

    def cause(self) -> str:
        """Why the session is ending, or has ended: the label of `sluice_connections_closed_total`."""
        return self.session.cause


def over_tcp(wires: Wires, **more: object) -> Link:
    """A link over loopback TCP, which knows RST."""

    def connect(protocol: str) -> tuple[socket.socket, socket.socket]:
        (client, ours_client), (broker, ours_upstream) = wires.tcp_pair(), wires.tcp_pair()
        config = ListenerConfig("here", protocol, 1 << 24, 10_000_000_000)
        session = assemble(99, Channel(ours_client), ("10.0.0.7", 1), Channel(ours_upstream), config, wires.shared)
        wires.sweeper.add(session, wires.now())
        return client, broker

    return Link(wires, connect=connect, **more)  # type: ignore[arg-type]
