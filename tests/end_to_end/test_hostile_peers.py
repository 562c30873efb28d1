"""All peers that a gateway asks misbehave at once, while clients send: its memory, its event loop and its clients do not notice.

The peers of SECURITY.md that a gateway itself speaks to; those of the `sluice` command are in tests/contracts/test_peers.py. What they must
not do holds for all of them together, and so for each.

How long the loop pauses is told by how late a timer is, but no more than the loop's thread has worked meanwhile: in processor time, or
other users of the processor would be in it, by tenths of a second. It is held against the same while all is well. The program is the source
tree's: MEASURED puts a probe of its own beside the gateway's tasks.
"""

from __future__ import annotations

import logging
import mmap
import shlex
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import pika
import pytest

from support.amqp import frames as amqp
from support.brokers import stand_ins
from support.builds import SOURCES
from support.clients.raw_amqp import RawClient, opening
from support.floods import AMQPFlood
from support.gateways import Gateway, amqp_listener
from support.hostile_peers import (
    ADMIN_API,
    BACKLOG,
    CHUNK,
    COLLECTOR,
    HDFS,
    HTTP,
    LIVENESS,
    MANNERS,
    NEXT,
    REDIS,
    RUNNING,
    S3,
    WAYS,
    WEBHOOK,
    WELL,
    Peer,
    table,
)  # fmt: skip
from support.processes import HANG_S, LOOPBACK, wait_until
from support.rocketmq import frames as rocketmq
from support.threads import working

logging.getLogger("pika").setLevel(logging.ERROR)  # it warns of each nack

MIB: Final = 1 << 20
SHORTEST_S: Final = 6.0  # of a stretch; brokers are asked every 5 s whether they live
MEASURED: Final = """\
import mmap, os, struct, sys, time
import trio

held = os.open(sys.argv.pop(1), os.O_RDWR)
longest = mmap.mmap(held, 8)
run = trio.run

async def probe():
    while True:
        due = trio.current_time() + 0.005
        worked = time.thread_time()
        await trio.sleep_until(due)
        pause = min(trio.current_time() - due, time.thread_time() - worked)
        if pause > struct.unpack("d", longest)[0]:
            longest[:] = struct.pack("d", pause)

async def probed(main, *words):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(probe)
        result = await main(*words)
        nursery.cancel_scope.cancel()
    return result

trio.run = lambda main, *words, **more: run(probed, main, *words, **more)
from cli.main import main
sys.exit(main())
"""


TRACED = pika.BasicProperties(headers={"traceparent": f"00-{'1' * 32}-{'2' * 16}-01"})


class Stranger:
    """What connects where the next process asks, and misbehaves as the peers do."""

    def __init__(self, path: Path) -> None:
        self.asked = 0
        self._path = path

    @contextmanager
    def being(self, way: str) -> Iterator[None]:
        stopping = threading.Event()
        with working(lambda: self._go_on(way, stopping), stopping):
            yield

    def _go_on(self, way: str, stopping: threading.Event) -> None:
        while not stopping.wait(0.05):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock, suppress(OSError):
                sock.settimeout(0.5)
                sock.connect(str(self._path))
                self.asked += 1
                self._misbehave(sock, way, stopping)

    def _misbehave(self, sock: socket.socket, way: str, stopping: threading.Event) -> None:
        if way == "resets":
            sock.sendall(b'{"format":')
        while way != "resets" and not stopping.wait(0.01 if way != "never ends" else 0):
            if way == "drips":
                sock.sendall(b"x")
            elif way in ("never ends", "announces 4 GB"):
                sock.sendall(CHUNK)


class Walk:
    """A gateway, all its peers, and the clients that it serves meanwhile."""

    def __init__(self, gateway: Gateway, peers: dict[tuple[str, str], Peer], longest: mmap.mmap) -> None:
        self.gateway = gateway
        self.peers = peers
        self.stranger = Stranger(gateway.directory / "run" / "takeover.sock")
        self.well_s = 0.0  # the longest pause while all was well, so far
        self._longest = longest

    def longest_s(self, stretch: Callable[[], None]) -> float:
        """Of the pauses in a stretch."""
        self._longest[:] = struct.pack("d", 0.0)
        stretch()
        found: float = struct.unpack("d", self._longest)[0]
        return found

    def reset_peak(self) -> int:
        """Bytes resident now, from where the most is counted."""
        Path(f"/proc/{self.gateway.process.pid}/clear_refs").write_text("5")
        return self.gateway.resident_bytes()

    def peak(self) -> int:
        status = Path(f"/proc/{self.gateway.process.pid}/status").read_text()
        return 1024 * int(status.split("VmHWM:")[1].split()[0])

    def turn(self, way: str) -> None:
        for peer in self.peers.values():
            peer.turn(way)

    def use_backlogs(self) -> None:
        """A message for each limit that follows a backlog: only those in use are looked at."""
        wait_until(lambda: self.gateway.answers("/readyz"), within=30, what="all brokers to live again")
        before = self.lagging()
        rabbit = RawClient(self.gateway.port("lag-rabbit"))
        rabbit.say(opening(1) + amqp.publish(1, "lagging"))
        with socket.create_connection((LOOPBACK, self.gateway.port("lag-rocket"))) as rocket:
            rocket.sendall(rocketmq.send("lagging"))
            assert rocket.recv(65_536)
        wait_until(lambda: self.lagging() > before, within=30, what="it to be judged")
        rabbit.socket.close()

    def do_well(self, before: str) -> None:
        """A stretch with the same clients while all is well: how long the loop pauses then."""
        with AMQPFlood(self.gateway.port("rabbit"), key=f"before: {before}", properties=TRACED):
            self.well_s = max(self.well_s, self.longest_s(lambda: self.all_are_asked(WELL)))

    def lagging(self) -> float:
        return self.gateway.messages_by_fate("amqp", "%2F/amq.default/lagging")["forwarded"]

    def all_are_asked(self, way: str) -> None:
        """For SHORTEST_S at least."""
        began = time.monotonic()
        for name, peer in self.peers.items():
            wait_until(lambda: peer.asked[way] > 0, within=30, what=f"{name} to be asked, {way}")  # noqa: B023  -- called at once
        time.sleep(max(0.0, began + SHORTEST_S - time.monotonic()))


def answer_http(client: socket.socket) -> None:
    client.recv(65_536)
    client.sendall(HTTP.replace(b"\r\n\r\n", b"\r\nContent-Length: 0\r\n\r\n"))


RABBIT, ROCKET = stand_ins.serve_amqp, stand_ins.serve_remoting
DO_WELL: dict[tuple[str, str], tuple[tuple[str, str], Callable[[socket.socket], None] | None]] = {
    (COLLECTOR, ""): ((COLLECTOR, ""), answer_http),
    (WEBHOOK, ""): ((WEBHOOK, ""), answer_http),
    (REDIS, ""): ((REDIS, ""), None),
    (LIVENESS, "RabbitMQ"): ((LIVENESS, ""), RABBIT),
    (LIVENESS, "RocketMQ"): ((LIVENESS, ""), ROCKET),
    (BACKLOG, "RabbitMQ"): ((BACKLOG, "RabbitMQ"), RABBIT),
    (BACKLOG, "RocketMQ"): ((BACKLOG, "RocketMQ"), ROCKET),
}


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    folder = tmp_path_factory.mktemp("walk")
    (folder / "longest").write_bytes(bytes(8))
    (folder / "password").write_text("guest\n")
    program = ["env", f"PYTHONPATH={SOURCES}", sys.executable, "-c", MEASURED, str(folder / "longest")]
    with ExitStack() as stack:
        peers = {name: stack.enter_context(Peer(MANNERS[manner], WELL, well)) for name, (manner, well) in DO_WELL.items()}
        broker = stack.enter_context(stand_ins.rabbitmq())
        login = {"user": "guest", "password_file": str(folder / "password")}
        listeners: list[dict[str, object]] = [
            amqp_listener(broker.address),
            amqp_listener(peers[LIVENESS, "RabbitMQ"].address, name="alone-rabbit", max_connections=1),
            {"name": "alone-rocket", "protocol": "rocketmq", "bind": f"{LOOPBACK}:0", "upstream": peers[LIVENESS, "RocketMQ"].address},
            amqp_listener(peers[BACKLOG, "RabbitMQ"].address, name="lag-rabbit", own_login=login),
            {"name": "lag-rocket", "protocol": "rocketmq", "bind": f"{LOOPBACK}:0", "upstream": peers[BACKLOG, "RocketMQ"].address},
        ]
        following = {"algorithm": "lag", "limit": {"messages": "1000/s", "burst": "100ms"}}
        rules: list[dict[str, object]] = [
            {"name": "orders", "match": {"protocol": "amqp", "exchange": "orders"}, "per": "topic", "limit": {"messages": "20/s"}},
            {
                "name": "rabbit",
                "match": {"protocol": "amqp", "listener": "lag-rabbit"},
                **following,
                "lag": {"queue": "lagging", "target": 400, "slowest": "20/s"},
            },
            {
                "name": "rocket",
                "match": {"protocol": "rocketmq", "listener": "lag-rocket"},
                **following,
                "lag": {"group": "workers", "target": 400, "slowest": "20/s"},
            },
        ]
        gateway = Gateway(
            folder / "gateway",
            listeners,
            rules,
            {
                "gateway": {"name": "walk", "state_directory": "state", "takeover": "run/takeover.sock"},
                "tracing": {"endpoint": f"http://{peers[COLLECTOR, ''].address}/v1/traces"},
                "fleet": {"redis": {"url": f"redis://{peers[REDIS, ''].address}/0", "name": "walk"}},
                "webhooks": [{"url": f"http://{peers[WEBHOOK, ''].address}/hook", "name": "ops"}],
            },
            until="/livez",
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SLUICE_COMMAND", shlex.join(program))
            stack.enter_context(gateway)
        with (folder / "longest").open("r+b") as held:
            yield Walk(gateway, peers, stack.enter_context(mmap.mmap(held.fileno(), 8)))


@pytest.mark.parametrize("way", WAYS)
def test_peers_that_misbehave_cost_neither_memory_nor_a_pause(walk: Walk, way: str, record_property: Callable[[str, object], None]) -> None:
    gateway = walk.gateway
    walk.turn(WELL)
    walk.use_backlogs()
    with AMQPFlood(gateway.port("rabbit"), properties=TRACED):
        walk.do_well(way)
        resident = walk.reset_peak()
        walk.turn(way)
        # Of a topic that is over its limit only now, the webhook is told.
        with AMQPFlood(gateway.port("rabbit"), key=way, properties=TRACED), walk.stranger.being(way):
            pause_s = walk.longest_s(lambda: walk.all_are_asked(way))
        more = walk.peak() - resident
        walk.turn(WELL)
    record_property(
        "remark", f"{more / MIB:.1f} MiB more, longest pause {1000 * pause_s:.1f} ms, {1000 * walk.well_s:.1f} ms while all was well"
    )
    assert walk.stranger.asked
    assert more <= 16 * MIB
    assert pause_s <= 3 * walk.well_s
    status = gateway.get("/v1/status")
    assert (status["memory_full"], status["memory_limit"]["step"]) == (False, 0)
    figures = {sample.name: sample.value for sample in gateway.samples()}
    assert figures["sluice_memory_full_seconds_total"] == figures["sluice_memory_closed_connections_total"] == 0


def test_clients_that_are_turned_away_and_go_on_sending_cost_no_pause(walk: Walk, record_property: Callable[[str, object], None]) -> None:
    """Two of them made /livez wait for six seconds, and the loop pause a hundred times as long: nobody else had a turn."""
    walk.turn(WELL)
    wait_until(lambda: walk.gateway.answers("/readyz"), within=30, what="all brokers to live again")
    port = walk.gateway.port("alone-rabbit")
    stopping = threading.Event()
    attacks: list[float] = []

    def attack() -> None:
        while not stopping.is_set():
            with socket.create_connection((LOOPBACK, port), timeout=HANG_S) as client, suppress(OSError):
                client.sendall(opening(1))
                attacks.append(time.monotonic())
                while not stopping.is_set():
                    client.sendall(16 * CHUNK)

    only = RawClient(port)
    only.say(opening(1))
    assert only.read()
    with AMQPFlood(walk.gateway.port("rabbit"), properties=TRACED):
        walk.do_well("they are turned away")
        with working(attack, stopping), working(attack, stopping):
            pause_s = walk.longest_s(lambda: time.sleep(SHORTEST_S))
            wait_until(lambda: len(attacks) > 10, within=60, what="ten of them to be turned away")
    only.socket.close()
    record_property("remark", f"longest pause {1000 * pause_s:.1f} ms, {1000 * walk.well_s:.1f} ms while all was well")
    assert pause_s <= 10 * walk.well_s


def test_the_walk_has_all_peers_of_a_gateway_that_serves() -> None:
    assert table() - {ADMIN_API, HDFS, S3, RUNNING} == {name for name, _ in DO_WELL} | {NEXT}
