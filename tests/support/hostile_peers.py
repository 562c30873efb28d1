"""Peers that a gateway asks and that misbehave: an answer that never ends, one that drips, a reset, 4 GB announced, nothing at all.

SECURITY.md has the table of peers; MANNERS has how each of them speaks, by its name there and of which kind it is.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Self

from support.processes import LOOPBACK

WAYS: Final = ("never ends", "drips", "resets", "announces 4 GB", "says nothing")
WELL: Final = "well"
CHUNK: Final = b"x" * 65_536
HTTP: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


def table() -> set[str]:
    """The peers that SECURITY.md has."""
    rows = (Path(__file__).parents[2] / "SECURITY.md").read_text().split("## Peers")[1].split("\n## ")[0].splitlines()
    return {row.split(" | ")[0].removeprefix("| ") for row in rows if row[:2] == "| "} - {"peer"}


class Manner(NamedTuple):
    """How an answer begins, how one of 4 GB does, what comes before it, and what one without an end goes on with."""

    head: bytes
    huge_head: bytes
    greeting: bytes = b""
    chunk: bytes = CHUNK


_OTHERS = b'{"code":0,"flag":1,"opaque":-1}'
ANSWERS_TO_OTHERS = 1000 * ((4 + len(_OTHERS)).to_bytes(4, "big") + len(_OTHERS).to_bytes(4, "big") + _OTHERS)
HEARTBEATS = b"\x08\x00\x00\x00\x00\x00\x00\xce" * 8192
REFUSED_HTTP = HTTP.replace(b"200 OK", b"400 Bad")
HUGE_HTTP = HTTP.replace(b"\r\n\r\n", b"\r\nContent-Length: 4000000000\r\n\r\n")
OLD_REDIS = b"-ERR unknown\r\n" * 2  # answers CLIENT SETINFO
COLLECTOR, REDIS, WEBHOOK, ADMIN_API = "the tracing collector", "Redis", "a webhook", "the admin API"
LIVENESS, BACKLOG = "a broker, asked whether it lives", "a broker, asked for a backlog"
RUNNING, NEXT = "the running process that a new one takes over from", "the next process of a takeover"
HDFS, S3 = "HDFS, to which `sluice log ship` sends", "S3, to which `sluice log ship` sends"
MANNERS: Final[dict[tuple[str, str], Manner]] = {
    (COLLECTOR, ""): Manner(HTTP, HUGE_HTTP),
    (REDIS, ""): Manner(b"+", b"$4000000000\r\n", OLD_REDIS),
    (WEBHOOK, ""): Manner(HTTP, HUGE_HTTP),
    (ADMIN_API, ""): Manner(HTTP, HUGE_HTTP),
    (LIVENESS, ""): Manner(b"\x01\x00", b"\xee\x6b\x28\x00"),
    (BACKLOG, "RabbitMQ"): Manner(b"", b"\x01\x00\x00\xee\x6b\x28\x00", chunk=HEARTBEATS),
    (BACKLOG, "RocketMQ"): Manner(b"", b"\x7e\x6b\x28\x00", chunk=ANSWERS_TO_OTHERS),
    (HDFS, ""): Manner(HTTP, HUGE_HTTP),
    (S3, ""): Manner(REFUSED_HTTP, HUGE_HTTP.replace(b"200 OK", b"400 Bad")),
}


class Peer:
    """Takes connections and misbehaves on each in one of WAYS, or does as `well` does. A context manager."""

    def __init__(self, manner: Manner, way: str = WELL, well: Callable[[socket.socket], None] | None = None) -> None:
        self.sent = 0
        self.asked: Counter[str] = Counter()  # connections, by the way
        self._manner = manner
        self._well = well
        self._way = way
        self._turned = threading.Event()
        self._ended = False
        self._clients: list[socket.socket] = []
        self._listening = socket.create_server((LOOPBACK, 0))
        self.port: int = self._listening.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    def turn(self, way: str) -> None:
        """From now on another way; what there is of connections ends."""
        self._way = way
        self._turned.set()
        self._turned = threading.Event()
        while self._clients:
            with suppress(OSError):
                self._clients.pop().shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):
            while not self._ended:
                client = self._listening.accept()[0]
                self._clients.append(client)
                self._threads.append(threading.Thread(target=self._answer, args=(client, self._way, self._turned)))
                self._threads[-1].start()

    def _answer(self, client: socket.socket, way: str, turned: threading.Event) -> None:
        self.asked[way] += 1
        with client, suppress(OSError):
            if way == WELL:
                if self._well is not None:
                    self._well(client)
                return
            self._misbehave(client, way, turned)

    def _misbehave(self, client: socket.socket, way: str, turned: threading.Event) -> None:
        manner = self._manner
        head = manner.huge_head if way == "announces 4 GB" else manner.head
        client.recv(65_536)
        if manner.greeting:
            client.sendall(manner.greeting)
            client.recv(65_536)
        if way == "resets":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sendall(head)
            return
        if way == "says nothing":
            turned.wait()
            return
        client.sendall(head)
        while not turned.wait(0.01 if way == "drips" else 0):
            if way == "drips":
                self.sent += client.send(b"x")
            else:
                client.sendall(manner.chunk)
                self.sent += len(manner.chunk)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.turn(WELL)
        for thread in self._threads:
            thread.join(60)
