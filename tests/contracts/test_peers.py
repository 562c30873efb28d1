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
from botocore.config import Config

from cli.client import AdminClient
from cli.exits import CommandError
from config.http_urls import parts_of
from config.known_settings import FleetRedis, Tracing
from gateway.alerting import http_post
from gateway.alerting.http_post import NoAnswerError
from gateway.broker_load.amqp import AmqpSource
from gateway.broker_load.rocketmq import RocketmqSource
from gateway.broker_load.source import BacklogError, Source
from gateway.clock import now_ns
from gateway.fleet.outages import OwnerGoneError
from gateway.fleet.redis_owner import RedisOwner
from gateway.listeners.upstream import Upstream
from gateway.listeners.upstreams import Upstreams
from gateway.log_files import s3, webhdfs
from gateway.log_files.targets import TargetError
from gateway.protocols import PROTOCOLS
from gateway.telemetry.span_export import SpanExport
from limiter.limits import Lag, Rate
from support.processes import LOOPBACK
from support.spans import record

SECURITY = (Path(__file__).parents[2] / "SECURITY.md").read_text()
IN_SOCKETS = 16 << 20  # bytes; that the kernel may hold of what the peer has sent and nobody has read
TIMEOUT_S = 0.3
CHUNK = b"x" * 65_536
HTTP = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


class Peer:
    """Takes connections and misbehaves on each: a `way` of WAYS, after `head`. `greeting` answers what comes first. A context manager."""

    def __init__(self, way: str, head: bytes, huge_head: bytes, greeting: bytes, chunk: bytes) -> None:
        self.sent = 0
        self._chunk = chunk
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
                if self._way == "drips":
                    self.sent += client.send(b"x")
                else:
                    client.sendall(self._chunk)
                    self.sent += len(self._chunk)

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


def ask_whether_it_lives(port: int) -> None:
    for protocol in ("amqp", "rocketmq"):
        upstream = Upstream("orders", (LOOPBACK, port), question=PROTOCOLS[protocol].question)
        trio.run(upstream.probe)
        assert upstream.ok is False


def backlog(source: Source) -> None:
    async def ask() -> None:
        with pytest.raises(BacklogError):
            await source.backlog("orders", Lag(1, Rate(1), queue="orders", group="workers"))

    trio.run(ask)
    assert source.channel is None


def ask_rabbitmq_for_a_backlog(port: int) -> None:
    backlog(AmqpSource(Upstreams.at("orders", [(LOOPBACK, port)]), "/", lambda: ("sluice", "secret")))


def ask_rocketmq_for_a_backlog(port: int) -> None:
    backlog(RocketmqSource(Upstreams.at("orders", [(LOOPBACK, port)])))


def ask_hdfs(port: int) -> None:
    with pytest.raises(TargetError):
        webhdfs.WebHdfs("webhdfs", LOOPBACK, port, "/logs", "sluice", {}).get("manifest.json")


def ask_s3(port: int) -> None:
    with pytest.raises(TargetError):
        s3.S3("logs", "", f"http://{LOOPBACK}:{port}").put_bytes("manifest.json", b"{}")


OTHERS = b'{"code":0,"flag":1,"opaque":-1}'
ANSWER_TO_OTHERS = (4 + len(OTHERS) + 65_000).to_bytes(4, "big") + len(OTHERS).to_bytes(4, "big") + OTHERS + b" " * 65_000
HEARTBEATS = b"\x08\x00\x00\x00\x00\x00\x00\xce" * 8192
REFUSED_HTTP = HTTP.replace(b"200 OK", b"400 Bad")
HUGE_HTTP = HTTP.replace(b"\r\n\r\n", b"\r\nContent-Length: 4000000000\r\n\r\n")
OLD_REDIS = b"-ERR unknown\r\n" * 2  # answers CLIENT SETINFO
# By its name in SECURITY.md, and of which kind it is: who asks, how an answer begins, how one of 4 GB does, what comes before it, and what
# an answer without an end goes on with.
PEERS: dict[tuple[str, str], tuple[Callable[[int], None], bytes, bytes, bytes, bytes]] = {
    ("the tracing collector", ""): (ask_collector, HTTP, HUGE_HTTP, b"", CHUNK),
    ("Redis", ""): (ask_redis, b"+", b"$4000000000\r\n", OLD_REDIS, CHUNK),
    ("a webhook", ""): (ask_webhook, HTTP, HUGE_HTTP, b"", CHUNK),
    ("the admin API", ""): (ask_gateway, HTTP, HUGE_HTTP, b"", CHUNK),
    ("a broker, asked whether it lives", ""): (ask_whether_it_lives, b"\x01\x00", b"\xee\x6b\x28\x00", b"", CHUNK),
    ("a broker, asked for a backlog", "RabbitMQ"): (ask_rabbitmq_for_a_backlog, b"", b"\x01\x00\x00\xee\x6b\x28\x00", b"", HEARTBEATS),
    ("a broker, asked for a backlog", "RocketMQ"): (ask_rocketmq_for_a_backlog, b"", b"\x7e\x6b\x28\x00", b"", ANSWER_TO_OTHERS),
    ("HDFS, to which `sluice log ship` sends", ""): (ask_hdfs, HTTP, HUGE_HTTP, b"", CHUNK),
    ("S3, to which `sluice log ship` sends", ""): (ask_s3, REFUSED_HTTP, HUGE_HTTP.replace(b"200 OK", b"400 Bad"), b"", CHUNK),
}
MOST_READ = {  # bytes
    "the tracing collector": 65_536, "Redis": 4 << 20, "a webhook": 65_536 + 16_384, "the admin API": 64 << 20,
    "a broker, asked whether it lives": 2 * 80 << 10, "a broker, asked for a backlog": 4 << 20,
    "HDFS, to which `sluice log ship` sends": 1 << 20, "S3, to which `sluice log ship` sends": 1 << 20,
}  # fmt: skip

# In tests/gateway/lifecycle/test_takeover.py: they speak over a Unix socket.
TAKEOVER = {"the running process that a new one takes over from", "the next process of a takeover"}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("peer_of", PEERS, ids=" ".join)
def test_an_answer_without_an_end_is_an_outage_of_its_peer(peer_of: tuple[str, str], way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhdfs, "TIMEOUT_S", TIMEOUT_S)
    monkeypatch.setattr(webhdfs, "SLOWEST", 1 << 40)
    monkeypatch.setattr(s3, "OPERATION_S", TIMEOUT_S)
    monkeypatch.setattr(s3, "CONFIG", s3.CONFIG.merge(Config(retries={"max_attempts": 1})))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.setenv(name, "peers")
    ask, head, huge_head, greeting, chunk = PEERS[peer_of]
    with Peer(way, head, huge_head, greeting, chunk) as peer:
        ask(peer.port)
        assert peer.sent < MOST_READ[peer_of[0]] + IN_SOCKETS


def test_the_table_of_peers_has_them_and_no_other() -> None:
    rows = {
        row.split(" | ")[0].removeprefix("| ") for row in SECURITY.split("## Peers")[1].split("\n## ")[0].splitlines() if row[:2] == "| "
    }
    assert rows - {"peer"} == {name for name, _ in PEERS} | TAKEOVER
