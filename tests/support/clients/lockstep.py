"""A RocketMQ client that sends a few messages at a time, the next when those before are answered."""

from __future__ import annotations

import re
import socket
import threading
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import Final

from support.processes import HANG_S, LOOPBACK
from support.rocketmq.frames import send
from support.threads import working

AT_ONCE: Final = 30
PAUSE_S: Final = 0.02  # after them: hundreds a second are ten times what limits here let pass, and leave the processor to others
CODE: Final = re.compile(rb'"code":(\d+),')


@dataclass
class Flood:
    """A client that sends in lockstep, and connects again when its connection ends."""

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
                while not self._stopping.wait(PAUSE_S) and self._are_answered(client, number):
                    number += AT_ONCE

    def _are_answered(self, client: socket.socket, number: int) -> bool:
        """Sends the next; False where the connection ends before all answers have come."""
        client.sendall(b"".join(send("flooded", opaque=number + step) for step in range(AT_ONCE)))
        said = b""
        while len(codes := CODE.findall(said)) < AT_ONCE and (more := client.recv(1 << 16)):
            said += more
        self.passed += codes.count(b"0")
        self.refused += codes.count(b"215")
        return len(codes) == AT_ONCE
