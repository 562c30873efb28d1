"""What is in flight between a gateway and its broker, counted by neither of them."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import Counter
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING

from pamqp import commands

from support.amqp import frames as amqp
from support.brokers.splice import Splice
from support.processes import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Iterator

SEND = 310


class InFlight(Splice):
    """Between the gateway and a broker: counts what has gone by and has no answer yet, on all connections."""

    def __init__(self, port: int, broker: int, away_s: float = 0.0) -> None:
        self.most = 0
        self.away_s = away_s  # so much later than the broker says it, an answer goes by
        self.waiting: dict[socket.socket, list[int]] = {}
        self._lock = threading.Lock()
        super().__init__((LOOPBACK, port), (LOOPBACK, broker))

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        upwards = sink.getpeername() == self.upstream
        broker = sink if upwards else source
        rest = b""
        with suppress(OSError):
            for data in iter(lambda: source.recv(65536), b"") if upwards else self._late(source):
                rest += data
                while len(rest) >= 8 and len(rest) >= (size := self.size_of(rest)):
                    with self._lock:
                        self.look(broker, rest[:size], self.waiting.setdefault(broker, []))
                        self.most = max(self.most, sum(map(len, self.waiting.values())))
                    rest = rest[size:]
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def _late(self, source: socket.socket) -> Iterator[bytes]:
        """What the broker says, each `away_s` later."""
        said: SimpleQueue[tuple[float, bytes]] = SimpleQueue()

        def read() -> None:
            with suppress(OSError):
                while data := source.recv(65536):
                    said.put((time.monotonic() + self.away_s, data))
            said.put((0.0, b""))

        threading.Thread(target=read, daemon=True).start()
        for due, data in iter(said.get, (0.0, b"")):
            time.sleep(max(0.0, due - time.monotonic()))
            yield data

    @staticmethod
    def size_of(begun: bytes) -> int:
        """Bytes of the frame that begins so."""
        raise NotImplementedError

    def look(self, broker: socket.socket, raw: bytes, waiting: list[int]) -> None:
        """One frame of either direction; `waiting` has the numbers of what this connection to the broker has no answer for."""
        raise NotImplementedError


class Unconfirmed(InFlight):
    """Publishes before RabbitMQ."""

    def __init__(self, port: int, broker: int, away_s: float = 0.0) -> None:
        self._published: Counter[socket.socket] = Counter()
        super().__init__(port, broker, away_s)

    @staticmethod
    def size_of(begun: bytes) -> int:
        return 8 if begun.startswith(b"AMQP") else 8 + int.from_bytes(begun[3:7], "big")

    def look(self, broker: socket.socket, raw: bytes, waiting: list[int]) -> None:
        value = amqp.read_raw(raw).value if raw[0] == 1 else None
        if isinstance(value, commands.Basic.Publish):
            self._published[broker] += 1
            waiting.append(self._published[broker])
        elif isinstance(value, commands.Basic.Ack | commands.Basic.Nack):
            waiting[:] = [tag for tag in waiting if (tag > value.delivery_tag if value.multiple else tag != value.delivery_tag)]


class Unanswered(InFlight):
    """Sends before RocketMQ."""

    @staticmethod
    def size_of(begun: bytes) -> int:
        return 4 + int.from_bytes(begun[:4], "big")

    def look(self, broker: socket.socket, raw: bytes, waiting: list[int]) -> None:
        header = json.loads(raw[8 : 8 + int.from_bytes(raw[5:8], "big")])
        if header["flag"] & 1 and header["opaque"] in waiting:
            waiting.remove(header["opaque"])
        elif header["code"] == SEND:
            waiting.append(header["opaque"])
