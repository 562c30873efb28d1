"""A client that others suffer from, as a program of its own: a storm, new names, consumers that do not read, churn, wrong bytes, huge
messages, reads of the admin API; and `STORMS` of all that a client of RabbitMQ can do.

It has a rate of its own that does not wait for answers: it is the same whatever the gateway does about it.
`Disturber` starts the program and has it disturb in stretches.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import selectors
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from pamqp import commands, header

from support.amqp import frames as amqp
from support.clients.raw_amqp import opening
from support.processes import HANG_S, LOOPBACK
from support.rocketmq import frames as rocketmq

TESTS = Path(__file__).parents[2]
STORM = 3000  # messages a second, of CONNECTIONS together
CONNECTIONS = 4
STALLED = 3  # consumers that do not read
PREFETCH = 400  # of each: more than the gateway keeps, and little work for RabbitMQ, which is not what is tested
PULLS = 10  # that each of them asks for, on RocketMQ
CHURN = 25  # connections a second, each with one message
FUZZED = 25  # connections a second, each with wrong bytes
HUGE = 3_900_000  # bytes: RocketMQ takes 4 MiB
HUGE_RATE = 8  # a second
NAMES = 200  # messages a second, each to a new topic
READS = 50  # requests a second
PATHS = ("/v1/topics?limit=100&sort=rate", "/v1/limits?limit=100", "/v1/connections", "/metrics")
TICK_S = 0.01
ORDINARY = b"x" * 200
COPIES = 49  # that a message names
DELIVER = b"\x00\x3c\x00\x3c"  # basic.deliver; in no body here


class Amqp:
    """AMQP 0-9-1 to the default exchange; the topic is a queue."""

    protocol: Final = "amqp"

    def __init__(self, topic: str) -> None:
        self.topic = topic

    def connected(self, port: int) -> socket.socket:
        """A connection with channel 1 open and confirms selected."""
        client = socket.create_connection((LOOPBACK, port), timeout=HANG_S)
        client.sendall(opening(1) + amqp.method(1, commands.Confirm.Select()))
        self._read_until(client, b"\x00\x55\x00\x0b")  # confirm.select-ok
        return client

    def message(self, body: bytes, number: int) -> bytes:
        del number
        return amqp.publish(1, self.topic, body)

    def consuming(self) -> bytes:
        return amqp.method(1, commands.Basic.Qos(prefetch_count=PREFETCH)) + amqp.method(1, commands.Basic.Consume(queue=self.topic))

    def await_answer(self, client: socket.socket) -> None:
        self._read_until(client, b"\x00\x3c\x00")  # basic.ack or basic.nack

    def _read_until(self, client: socket.socket, wanted: bytes) -> None:
        data = b""
        while wanted not in data:
            more = client.recv(1 << 16)
            if not more:
                raise ConnectionResetError
            data = data[-8:] + more


class RocketMQ:
    """RocketMQ's remoting; JSON headers."""

    protocol: Final = "rocketmq"

    def __init__(self, topic: str) -> None:
        self.topic = topic

    def connected(self, port: int) -> socket.socket:
        return socket.create_connection((LOOPBACK, port), timeout=HANG_S)

    def message(self, body: bytes, number: int) -> bytes:
        return rocketmq.send(self.topic, body, opaque=number)

    def consuming(self) -> bytes:
        return b"".join(rocketmq.pull(number % 4, self.topic, opaque=number) for number in range(PULLS))

    def await_answer(self, client: socket.socket) -> None:
        if not client.recv(1 << 16):
            raise ConnectionResetError


Wire = Amqp | RocketMQ
PROTOCOLS: dict[str, Callable[[str], Wire]] = {"amqp": Amqp, "rocketmq": RocketMQ}


def paced(rate: float, stopping: threading.Event, done: Counter[str], what: Callable[[int], None]) -> None:
    """`what` so many times a second, until it is to stop; a connection that is refused or closed is counted and is not the end."""
    began = time.monotonic()
    for number in range(1 << 30):
        if stopping.wait(max(0.0, began + number / rate - time.monotonic())):
            return
        try:
            what(number)
            done["done"] += 1
        except OSError:
            done["refused"] += 1


def storm(wire: Wire, port: int, stopping: threading.Event, done: Counter[str]) -> None:
    flood(wire, port, stopping, done, rate=STORM, message=wire.message(ORDINARY, 1), connections=CONNECTIONS)


def new_names(wire: Wire, port: int, stopping: threading.Event, done: Counter[str]) -> None:
    """Each message to a topic that nobody has named before."""
    begun = time.time_ns()
    client = wire.connected(port)
    client.setblocking(False)

    def once(number: int) -> None:
        name = f"{wire.topic}-{begun}-{number}"
        client.sendall(PROTOCOLS[wire.protocol](name).message(ORDINARY, number))
        with suppress(BlockingIOError):
            client.recv(1 << 16)

    paced(NAMES, stopping, done, once)
    client.close()


def admin_reads(wire: Wire, port: int, stopping: threading.Event, done: Counter[str]) -> None:
    """Lists and metrics, one behind the other, with the token that the environment has."""
    del wire
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=60)
    headers = {"Authorization": f"Bearer {os.environ['SLUICE_ADMIN_TOKEN']}"}

    def once(number: int) -> None:
        connection.request("GET", PATHS[number % len(PATHS)], headers=headers)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200, answer.status

    paced(READS, stopping, done, once)
    connection.close()


def huge_messages(wire: Wire, port: int, stopping: threading.Event, done: Counter[str]) -> None:
    flood(wire, port, stopping, done, rate=HUGE_RATE, message=wire.message(b"x" * HUGE, 1), connections=1)


def flood(wire: Wire, port: int, stopping: threading.Event, done: Counter[str], *, rate: int, message: bytes, connections: int) -> None:
    """Messages at a rate, whether they are answered or not; what the gateway does not take waits here."""
    clients = [wire.connected(port) for _ in range(connections)]
    unsent: dict[socket.socket, memoryview] = {client: memoryview(b"") for client in clients}
    with selectors.DefaultSelector() as selector:
        for client in clients:
            client.setblocking(False)
            selector.register(client, selectors.EVENT_READ)
        began = time.monotonic()
        while not stopping.wait(TICK_S):
            due = int((time.monotonic() - began) * rate) - done["done"]
            clients = clients[1:] + clients[:1]  # else the last have nothing to say for so long that they are closed
            for client in clients:
                if not unsent[client] and due > 0:
                    share = max(1, min(due, round(rate * TICK_S)))
                    unsent[client] = memoryview(message * share)
                    done["done"] += share
                    due -= share
                with suppress(BlockingIOError):
                    while unsent[client]:
                        unsent[client] = unsent[client][client.send(unsent[client]) :]
            for ready, _ in selector.select(0):
                with suppress(BlockingIOError):
                    client = ready.fileobj  # type: ignore[assignment]
                    done["bytes answered"] += len(client.recv(1 << 18))
    for client in clients:
        client.close()


def stalled_consumers(wire: Wire, port: int, stopping: threading.Event, done: Counter[str]) -> None:
    """They ask for what is there and read none of it."""
    clients = []
    for _ in range(STALLED):
        client = wire.connected(port)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.sendall(wire.consuming())
        clients.append(client)
        done["done"] += 1
    stopping.wait()
    for client in clients:
        client.close()


def churn(wire: Wire, port: int, stopping: threading.Event, done: Counter[str]) -> None:
    def once(number: int) -> None:
        with wire.connected(port) as client:
            client.sendall(wire.message(ORDINARY, number))
            wire.await_answer(client)

    paced(CHURN, stopping, done, once)


def wrong_bytes(wire: Wire, port: int, stopping: threading.Event, done: Counter[str]) -> None:
    """A log-in, then messages with some bytes that are others."""
    chance = random.Random(20)

    def once(number: int) -> None:
        data = bytearray(b"".join(wire.message(ORDINARY, number + each) for each in range(20)))
        for _ in range(chance.randrange(1, 12)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        with wire.connected(port) as client, suppress(TimeoutError):
            client.sendall(data)
            client.settimeout(0.02)
            client.recv(1 << 16)

    paced(FUZZED, stopping, done, once)


KINDS = {
    "storm": storm, "new names": new_names, "stalled consumers": stalled_consumers, "churn": churn, "wrong bytes": wrong_bytes,
    "huge messages": huge_messages, "admin reads": admin_reads,
}  # fmt: skip


def requeues(wire: Wire, port: int, stopping: threading.Event, done: Counter[str]) -> None:
    """A consumer that gives back all that it gets, at once."""
    client = wire.connected(port)
    client.settimeout(TICK_S)
    client.sendall(wire.consuming())
    rest = b""
    while not stopping.is_set():
        with suppress(TimeoutError):
            data = rest + client.recv(1 << 18)
            delivered = data.count(DELIVER)
            rest = data[-3:]
            tags = range(done["done"] + 1, done["done"] + delivered + 1)
            client.sendall(b"".join(amqp.method(1, commands.Basic.Nack(tag, requeue=True)) for tag in tags))
            done["done"] += delivered
    client.close()


def declares(wire: Wire, port: int, stopping: threading.Event, done: Counter[str]) -> None:
    declare = amqp.method(1, commands.Queue.Declare(queue=wire.topic))
    flood(wire, port, stopping, done, rate=STORM, message=declare, connections=CONNECTIONS)


def copies(wire: Wire, port: int, stopping: threading.Event, done: Counter[str]) -> None:
    """Each message names many queues more, which do not exist."""
    names: list[Any] = [f"{wire.topic}-{number}" for number in range(COPIES)]
    properties = commands.Basic.Properties(headers={"CC": names})
    content = amqp.method(1, header.ContentHeader(body_size=len(ORDINARY), properties=properties)) + amqp.raw_frame(3, 1, ORDINARY)
    publish = amqp.method(1, commands.Basic.Publish(routing_key=wire.topic)) + content
    flood(wire, port, stopping, done, rate=STORM // 10, message=publish, connections=CONNECTIONS)


def connects(wire: Wire, port: int, stopping: threading.Event, done: Counter[str]) -> None:
    """Each as soon as the one before it is let in, or refused."""

    def again() -> None:
        while not stopping.is_set():
            with suppress(OSError):
                wire.connected(port).close()
            done["done"] += 1

    threads = [threading.Thread(target=again) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


STORMS = {"publishes": storm, "requeues": requeues, "declares": declares, "copies": copies, "connects": connects}


class Disturber:
    """The program, at rest until it is told. A context manager."""

    def __init__(self, protocol: str, kind: str, port: int, topic: str, token: str = "") -> None:
        self._program = subprocess.Popen(
            [sys.executable, "-m", "support.clients.disturber", protocol, kind, str(port), topic],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=os.environ | {"PYTHONPATH": str(TESTS), "SLUICE_ADMIN_TOKEN": token},
        )  # fmt: skip

    @contextmanager
    def disturbing(self) -> Iterator[Counter[str]]:
        """One stretch; what it did is in the counter that is given, once it is over."""
        done: Counter[str] = Counter()
        self._tell("start")
        try:
            yield done
        finally:
            done.update(self._tell("stop"))

    def _tell(self, word: str) -> dict[str, int]:
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        self._program.stdin.write(word + "\n")
        self._program.stdin.flush()
        line = self._program.stdout.readline()
        assert line, f"the disturber has ended with {self._program.wait()}"
        answer: dict[str, int] = json.loads(line)
        return answer

    def __enter__(self) -> Disturber:
        return self

    def __exit__(self, *_: object) -> None:
        self._program.kill()
        self._program.communicate()


def main() -> None:
    protocol, kind, port, topic = sys.argv[1:]
    wire = PROTOCOLS[protocol](topic)
    os.nice(10)  # its clients are on other hosts in truth: what they cost is not the gateway's
    done: Counter[str] = Counter()
    stopping = threading.Event()
    running: threading.Thread | None = None
    for line in sys.stdin:
        if line.strip() == "start":
            done, stopping = Counter(), threading.Event()
            running = threading.Thread(target=(KINDS | STORMS)[kind], args=(wire, int(port), stopping, done), daemon=True)
            running.start()
        elif running is not None:
            stopping.set()
            running.join()
        print(json.dumps(done), flush=True)


if __name__ == "__main__":
    main()
