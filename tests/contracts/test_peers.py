"""Peers whose answers have no end: asking them ends, and reads little. SECURITY.md has the table of peers and their bounds."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from gateway.alerting import http_post
from gateway.alerting.http_post import NoAnswerError
from gateway.cli.client import AdminClient
from gateway.cli.exits import CommandError
from gateway.clock import now_ns
from gateway.fleet.outages import OwnerGoneError
from gateway.fleet.redis_owner import RedisOwner
from gateway.settings.http_urls import parts_of
from gateway.settings.known_settings import FleetRedis, Tracing
from gateway.telemetry.span_export import SpanExport
from support.processes import LOOPBACK
from support.spans import record

SECURITY = (Path(__file__).parents[2] / "SECURITY.md").read_text()
IN_SOCKETS = 16 << 20  # bytes; that the kernel may hold of what the peer has sent and nobody has read
TIMEOUT_S = 0.3
CHUNK = b"x" * 65_536
HTTP = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


class Peer:
    """Takes connections and misbehaves on each: a `way` of WAYS, after `head`. `greeting` answers what comes first. A context manager."""

    def __init__(self, way: str, head: bytes, huge_head: bytes, greeting: bytes) -> None:
        self.sent = 0
        self._greeting = greeting
        self._way = way
        self._head = huge_head if way == "announces 4 GB" else head
        self._ended = threading.Event()
        self._listening = socket.create_server((LOOPBACK, 0))
        self.port: int = self._listening.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while not self._ended.is_set():
                client = self._listening.accept()[0]
                self._threads.append(threading.Thread(target=self._answer, args=(client,)))
                self._threads[-1].start()

    def _answer(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            client.recv(65_536)
            if self._greeting:
                client.sendall(self._greeting)
                client.recv(65_536)
            if self._way == "resets":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.sendall(self._head)
                return
            if self._way == "says nothing":
                self._ended.wait()
                return
            client.sendall(self._head)
            while not self._ended.wait(0.01 if self._way == "drips" else 0):
                self.sent += client.send(b"x" if self._way == "drips" else CHUNK)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in self._threads:
            thread.join(60)


WAYS = ("never ends", "drips", "resets", "announces 4 GB", "says nothing")


def ask_collector(port: int) -> None:
    export = SpanExport(Tracing(endpoint=f"http://{LOOPBACK}:{port}/v1/traces", timeout_ns=int(TIMEOUT_S * 1e9)), "orders", "0a1b")
    export.start()
    export.recorder.add(record())
    export.tick(now_ns())
    export._queue.put(None)
    thread = export._thread
    assert thread is not None
    thread.join(60)
    assert not thread.is_alive(), "the thread of the spans waits for ever"
    export._thread = None
    export._complaints.end()
    counts = export.counts()
    assert counts["exported"] + counts["failed"] == 1  # a 200 whose end is a reset may count as an answer


def ask_redis(port: int) -> None:
    owner = RedisOwner(FleetRedis(f"redis://{LOOPBACK}:{port}/0", "peers", int(TIMEOUT_S * 1e9)), "a")
    with pytest.raises(OwnerGoneError):
        owner.show()


def ask_webhook(port: int) -> None:
    where = parts_of(f"http://{LOOPBACK}:{port}/hook")
    with suppress(NoAnswerError):  # a status that has come is an answer, whatever follows it
        trio.run(http_post.post, where, b"{}", [], None, TIMEOUT_S)


def ask_gateway(port: int) -> None:
    with pytest.raises(CommandError):
        AdminClient(f"http://{LOOPBACK}:{port}", "token", TIMEOUT_S).ask("GET", "/v1/status")


HUGE_HTTP = HTTP.replace(b"\r\n\r\n", b"\r\nContent-Length: 4000000000\r\n\r\n")
OLD_REDIS = b"-ERR unknown\r\n" * 2  # answers CLIENT SETINFO
# By its name in SECURITY.md: who asks, how an answer begins, how one of 4 GB does, and what comes before it.
PEERS: dict[str, tuple[Callable[[int], None], bytes, bytes, bytes]] = {
    "the tracing collector": (ask_collector, HTTP, HUGE_HTTP, b""),
    "Redis": (ask_redis, b"+", b"$4000000000\r\n", OLD_REDIS),
    "a webhook": (ask_webhook, HTTP, HUGE_HTTP, b""),
    "the admin API": (ask_gateway, HTTP, HUGE_HTTP, b""),
}
MOST_READ = {"the tracing collector": 65_536, "Redis": 4 << 20, "a webhook": 65_536 + 16_384, "the admin API": 64 << 20}  # bytes


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", PEERS)
def test_an_answer_without_an_end_is_an_outage_of_its_peer(name: str, way: str) -> None:
    ask, head, huge_head, greeting = PEERS[name]
    with Peer(way, head, huge_head, greeting) as peer:
        ask(peer.port)
        assert peer.sent < MOST_READ[name] + IN_SOCKETS


def test_the_table_of_peers_names_them() -> None:
    for name in PEERS:
        assert f"| {name} |" in SECURITY
