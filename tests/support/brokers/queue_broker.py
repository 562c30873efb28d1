"""A broker of a few lines that knows one queue, for what a real one hardly ever says."""

from __future__ import annotations

import contextlib
import socket
from threading import Thread

from pamqp import commands, frame
from pamqp.base import Frame

from gateway.listeners.upstreams import Upstreams

Said = list[tuple[int, Frame] | bytes]
HELLO: list[Said] = [
    [(0, commands.Connection.Start(0, 9, {}, "PLAIN", "en_US"))],
    [(0, commands.Connection.Tune(10, 131072, 60))],
    [],
    [(0, commands.Connection.OpenOk())],
    [(1, commands.Channel.OpenOk())],
]


class Broker:
    """Answers what it is sent, message by message, with `script`, anew for each connection; then closes."""

    def __init__(self, *answers: Said) -> None:
        self.script = [*HELLO, *answers]
        self.heard: list[str] = []
        self.connections = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.upstreams = Upstreams.at("rabbit", [self._listening.getsockname()[:2]])
        Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            with connection:
                self._converse(connection)

    def _converse(self, connection: socket.socket) -> None:
        """Until the script is at its end, or the client has gone."""
        assert connection.recv(8) == b"AMQP\0\0\x09\x01"
        data = b""
        for number, said in enumerate(self.script):
            if number:
                while len(data) < 8 or len(data) < 8 + int.from_bytes(data[3:7], "big"):
                    more = connection.recv(4096)
                    if not more:
                        return
                    data += more
                whole = 8 + int.from_bytes(data[3:7], "big")
                self.heard.append(frame.unmarshal(data[:whole])[2].name)
                data = data[whole:]
            for one in said:
                connection.sendall(one if isinstance(one, bytes) else frame.marshal(one[1], one[0]))

    def close(self) -> None:
        with contextlib.suppress(OSError):  # closed before
            self._listening.shutdown(socket.SHUT_RDWR)  # which wakes who waits in accept
        self._listening.close()


def declared(count: int) -> tuple[int, Frame]:
    """The answer to a look at the queue `jobs`."""
    return 1, commands.Queue.DeclareOk("jobs", count, 0)
