"""Dear inputs: the processor time that clients make the gateway spend, beside their own.

    PYTHONPATH=.:tests python bench/dear_inputs.py [--rounds 3] [TEXT …]

One gateway (the installed one, or SLUICE_COMMAND's), whose rules refuse nothing, between a client and brokers that swallow all. Each input
is a row of messages that differ in seven digits, if at all. The client makes each of them from a template and sends them, a MiB at a time,
in one thread; questions go a hundred at a time, and their answers are read. The time of both processes is taken from the first byte until
the broker has the last one, less what the gateway takes when idle; before that 7,000 messages of the kind have used up the client's new
names. An input of connections has one for each message. Medians of the rounds. TEXT: only inputs that have it in their names.
"""

from __future__ import annotations

import argparse
import re
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any, Final

from kept import RESULTS, before, keep
from pamqp import commands
from report import markdown_table, number

from support.amqp import frames as amqp
from support.brokers.swallowing import SwallowingBroker
from support.clients.raw_amqp import opening
from support.dear_inputs import INPUTS, Input, one_way
from support.gateways import Gateway, command
from support.processes import HANG_S, LOOPBACK, free_ports, processor_seconds
from support.rocketmq.frames import response

WARMING: Final = 7000  # messages; more than the new names that a client has at once
CHUNK: Final = 1 << 20
WINDOW: Final = 100  # questions
RULES: Final[list[dict[str, object]]] = [{"name": "all", "limit": {"messages": "10M/s"}}]
OPAQUE: Final = re.compile(rb'"opaque": ?(\d+)')
ROUTE: Final = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"broker-a","cluster":"c"},{"brokerAddrs":'
    b'{0:"10.0.0.3:10911",1:"10.0.0.4:10911"},"brokerName":"broker-b","cluster":"c"}],"filterServerTable":{},"queueDatas":[{"brokerName":'
    b'"broker-a","perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}]}'
)


class Marks:
    """Messages that are the last of a row; the brokers tell when they have come."""

    def __init__(self) -> None:
        self._come: dict[bytes, Event] = {}

    def new(self) -> bytes:
        mark = b"mark-%08d" % len(self._come)
        self._come[mark] = Event()
        return mark

    def look_for(self, data: bytes) -> None:
        at = data.rfind(b"mark-")
        if at >= 0 and data[at : at + 13] in self._come:
            self._come[data[at : at + 13]].set()

    def wait_for(self, mark: bytes) -> None:
        if not self._come[mark].wait(HANG_S):
            raise RuntimeError("the broker has not got the last message")


MARKS: Final = Marks()


def swallow_rocketmq(connection: socket.socket) -> None:
    """Takes one-way requests; answers others, with a route."""
    rest = b""
    while data := connection.recv(CHUNK):
        MARKS.look_for(rest[-16:] + data)
        rest += data
        answers, at = [], 0
        while len(rest) - at >= 8 and len(rest) - at >= 4 + int.from_bytes(rest[at : at + 4], "big"):
            end = at + 4 + int.from_bytes(rest[at : at + 4], "big")
            if (asked := OPAQUE.search(rest, at, end)) and b'"flag":2' not in rest[at:end]:
                answers.append(response(int(asked.group(1)), body=ROUTE))
            at = end
        rest = rest[at:]
        if answers:
            connection.sendall(b"".join(answers))


def swallow_amqp(connection: socket.socket) -> None:
    """Lets the client in, and takes everything."""
    connection.recv(8, socket.MSG_WAITALL)
    connection.sendall(amqp.method(0, commands.Connection.Start(0, 9, {"capabilities": {"publisher_confirms": True}}, "PLAIN", "en_US")))
    answers: dict[bytes, Any] = {
        b"\0\x0a\0\x0b": (0, commands.Connection.Tune(2047, 131072, 0)), b"\0\x0a\0\x28": (0, commands.Connection.OpenOk()),
        b"\0\x14\0\x0a": (1, commands.Channel.OpenOk()), b"\0\x0a\0\x32": (0, commands.Connection.CloseOk()),
    }  # fmt: skip
    last = b""
    while data := connection.recv(CHUNK):
        MARKS.look_for(last + data)
        last = data[-16:]
        if len(data) < 4096:  # what is not a flood's
            for word, (channel, method) in answers.items():
                if word in data:
                    connection.sendall(amqp.method(channel, method))


class Rig:
    """The gateway, and what it takes when idle."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        began = self.spent()
        time.sleep(2)
        self.idle = (self.spent() - began) / 2  # processor seconds a second

    def spent(self) -> float:
        return processor_seconds(self.gateway.process.pid)

    def measure(self, work: Callable[[], float]) -> tuple[float, float]:
        """Processor seconds of the gateway and of the client, which `work` returns."""
        began, clock = self.spent(), time.monotonic()
        client = work()
        return max(self.spent() - began - self.idle * (time.monotonic() - clock), 0.0), client

    def play(self, row: Input) -> tuple[float, float]:
        """The same for one input."""
        protocol, _, connects = row.kind.partition(" ")
        port = self.gateway.port(protocol)
        if connects:
            self.connect(row, port, 50)
            return self.measure(lambda: self.connect(row, port, row.count))
        with socket.create_connection((LOOPBACK, port), timeout=HANG_S) as client:
            if protocol == "amqp":
                client.sendall(opening(1))
                received = b""
                while b"\0\x14\0\x0b" not in received:  # channel.open-ok
                    received += client.recv(CHUNK)
            if protocol == "nameserver":
                self.ask(row, client, 0, 500)
                return self.measure(lambda: self.ask(row, client, 500, row.count))
            self.flood(row, client, 0, max(WARMING * (len(row.message) < 1000), 200))
            return self.measure(lambda: self.flood(row, client, WARMING, row.count))

    def flood(self, row: Input, client: socket.socket, first: int, count: int) -> float:
        mark = MARKS.new()
        began = time.thread_time()
        data = row.make(first, count)
        for at in range(0, len(data), CHUNK):
            client.sendall(data[at : at + CHUNK])
        took = time.thread_time() - began
        client.sendall(amqp.publish(1, "onekey", mark) if row.kind == "amqp" else one_way(310, {"a": "g", "b": "one"}, mark))
        MARKS.wait_for(mark)
        return took

    def ask(self, row: Input, client: socket.socket, first: int, count: int) -> float:
        began = time.thread_time()
        for at in range(first, first + count, WINDOW):
            client.sendall(row.make(at, WINDOW))
            left, size = WINDOW, 0
            data = b""
            while left:
                data += client.recv(CHUNK)
                size = size or 4 + int.from_bytes(data[:4], "big")  # all answers are alike
                left = WINDOW - len(data) // size
        return time.thread_time() - began

    def connect(self, row: Input, port: int, count: int) -> float:
        began = time.thread_time()
        for _ in range(count):
            with socket.create_connection((LOOPBACK, port), timeout=HANG_S) as client:
                if row.message:
                    client.sendall(row.message)
        took = time.thread_time() - began
        with suppress(OSError):
            while self.gateway.get("/v1/connections")["total"]:
                time.sleep(0.2)
        return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("texts", nargs="*")
    options = parser.parse_args()
    facts = before(command())
    rows = [row for row in INPUTS if not options.texts or any(text in f"{row.kind}, {row.name}" for text in options.texts)]
    found: dict[Input, list[tuple[float, float]]] = {row: [] for row in rows}
    ports = free_ports(11)
    with (
        SwallowingBroker(swallow_rocketmq) as rocketmq,
        SwallowingBroker(swallow_amqp) as rabbitmq,
        tempfile.TemporaryDirectory() as folder,
    ):
        listeners: list[dict[str, object]] = [
            {"name": "rocketmq", "protocol": "rocketmq", "bind": f"{LOOPBACK}:{ports[0]}", "upstream": rocketmq.address},
            {"name": "amqp", "protocol": "amqp", "bind": f"{LOOPBACK}:{ports[1]}", "upstream": rabbitmq.address},
            {
                "name": "nameserver", "protocol": "rocketmq-nameserver", "bind": f"{LOOPBACK}:{ports[2]}", "upstream": rocketmq.address,
                "broker_ports": f"{ports[3]}-{ports[-1]}",
            },
        ]  # fmt: skip
        with Gateway(Path(folder), listeners, RULES, {"memory": {"high_watermark": "1GiB"}}, until="/livez") as gateway:
            rig = Rig(gateway)
            for _ in range(options.rounds):
                for row in rows:
                    ours, theirs = rig.play(row)
                    found[row].append((ours / row.count * 1e6, theirs / row.count * 1e6))
                    print(f"{row.kind:20} {row.name:36} {found[row][-1][0]:9.2f} {found[row][-1][1]:9.2f} µs", flush=True)
    costs: list[list[Any]] = []
    for row, runs in found.items():
        ours, theirs = (statistics.median(run[at] for run in runs) for at in (0, 1))
        times = statistics.median(run[0] / run[1] for run in runs)
        costs.append([f"{row.kind}: {row.name}", len(row.message), round(ours, 2), round(theirs, 2), round(times, 1)])
    columns = ["input", "bytes", "gateway, µs", "its client, µs", "times"]
    print(markdown_table(columns, [[str(word), *(number(cell) for cell in cells)] for word, *cells in costs], 1))
    if not options.texts:
        keep(RESULTS / "dear-inputs.json", facts, {"costs": {"columns": columns, "rows": costs}})


if __name__ == "__main__":
    main()
