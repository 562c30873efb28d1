"""A RocketMQ client that sends one message after the other, each when the one before is answered."""

from __future__ import annotations

import socket
import threading
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field

from support.processes import HANG_S, LOOPBACK
from support.rocketmq.frames import send
from support.threads import working


@dataclass
class Flood:
    """A client that sends in lockstep as fast as it can, and connects again when its connection ends."""

    port: int
    passed: int = 0
    refused: int = 0
    faults: list[str] = field(default_factory=list)
    _stopping: threading.Event = field(default_factory=threading.Event)

    def have_passed(self, count: int) -> bool:
        return self.passed >= count

    def sending(self) -> AbstractContextManager[None]:
        return working(self._run, self._stopping)

    def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            try:
                client = socket.create_connection((LOOPBACK, self.port), timeout=HANG_S)
            except OSError as error:
                self.faults.append(repr(error))
                return
            with client, suppress(ConnectionError):
                while not self._stopping.is_set():
                    number += 1
                    client.sendall(send("flooded", opaque=number))
                    answer = client.recv(1 << 16)
                    if not answer:
                        break
                    self.passed += b'"code":0,' in answer
                    self.refused += b'"code":215,' in answer
