"""AMQP clients that come all the time: each connects, publishes one message, waits for its confirm, and leaves."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from pamqp import commands

from support.amqp import frames as amqp
from support.clients.raw_amqp import opening
from support.processes import HANG_S, LOOPBACK

NEWCOMERS: Final = 3  # threads that connect again and again
PAUSE_S: Final = 0.01  # after each; without it they take both processors from the process that is to start


@dataclass
class Newcomers:
    """What clients met that connect, publish one message, wait for its confirm, and leave."""

    port: int
    key: str
    confirmed: list[str] = field(default_factory=list)
    told: int = 0  # connection.close of a gateway that stops
    faults: list[str] = field(default_factory=list)
    longest_s: float = 0.0  # from connect to open-ok
    _stopping: threading.Event = field(default_factory=threading.Event)

    def _client(self, number: int) -> None:
        for sequence in range(1 << 30):
            if self._stopping.wait(PAUSE_S):
                return
            name = f"{number}-{sequence}"
            try:
                self._once(name)
            except OSError as error:
                self.faults.append(f"{name}: {error!r}")

    def _once(self, name: str) -> None:
        began = time.monotonic()
        with socket.create_connection((LOOPBACK, self.port), timeout=HANG_S) as client:
            client.sendall(opening(1) + amqp.method(1, commands.Confirm.Select()))
            if not self._heard(client, b"\x00\x55\x00\x0b"):  # confirm.select-ok
                return
            self.longest_s = max(self.longest_s, time.monotonic() - began)
            client.sendall(amqp.publish(1, self.key, message_id=name))
            if self._heard(client, b"\x00\x3c\x00\x50"):  # basic.ack
                self.confirmed.append(name)

    def _heard(self, client: socket.socket, wanted: bytes) -> bool:
        """Whether it came; False where connection.close did."""
        data = b""
        while wanted not in data:
            more = client.recv(1 << 16)
            if b"\x00\x0a\x00\x32" in data + more:
                self.told += 1
                return False
            if not more:
                raise ConnectionResetError("closed without a word")
            data = data[-16:] + more
        return True

    def have_confirmed(self, count: int) -> bool:
        return len(self.confirmed) >= count

    @contextmanager
    def coming(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._client, args=(number,)) for number in range(NEWCOMERS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            for thread in threads:
                thread.join()
