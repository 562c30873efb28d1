"""Whether load on the admin API moves the latency of messages: the same load with and without it, in turns, on one gateway.

PYTHONPATH=.:tests .venv/bin/python bench/admin_load.py --rounds 5 --seconds 3 --topics 10000 --rate 5000

One gateway (the installed one, or SLUICE_COMMAND's) between RocketMQ sends, one in flight on each connection, and `respond`. With `--rate`
so many messages are sent in a second (`crowd`); without it they are sent as fast as they are answered (`request`), which leaves the gateway
no processor to spare. It has met as many topics as `--topics` says. In some turns there is load on its admin port, all at once or what
`--load` names: a page of `GET /v1/topics` a second, 1,000 changes of limits a minute, 8 streams (one of them does not read), and 50
requests a second without a token. In other turns (`beside`) the same load is on a second gateway with as many topics, through which no
message goes: what these differ from those without load is the machine's, which the senders, the broker, the gateways and who asks share.
`--load attack`, which is not among the parts by default: on the admin port and on the probes' port each, 100 connections of one address
(`--attackers`, by default 127.0.0.2) that send 50 requests at once, read nothing, add one every 50 ms and open again when they are closed,
ATTACK_RATE bytes a second in all. Meanwhile `/livez` of the probes' port and, with a token, `/v1/status` are asked from 127.0.0.1; how many
were answered in time is printed, and whether the messages' p99 stays within 20 % and 2 ms. The messages are half of what passes without
load, unless `--rate` says otherwise: senders without a rate leave nothing of the gateway's core, so whatever an attack costs is taken from
them, and p99 says how full the core was, not what an attack does to a gateway that is in use. `--rate 0` is the harder question to
`/livez`: there every turn of the event loop is 4 ms long.

`--load exports`, not among them either: EXPORTS spreadsheets of all topics at once, again and again, and meanwhile another viewer's page of
`/v1/topics`, timed in the same way.

`--load page` is an open page, its topics searched, sorted and paged: the stream, the worst topics each 2 s, and a search, an order and a
page anywhere twice a second, each timed. Before the turns the gateway's processor time is taken without a message for `--idle` seconds,
alone and with an open page that nobody searches. It goes to admin-page.json. All of it, as it is kept:

PYTHONPATH=.:tests .venv/bin/python bench/admin_load.py --load page --topics 100000 --rate 8000 --rounds 5

Medians of the turns, and their ratios; two kinds of turns without load, compared with each other in the same way, are the noise. What is
under way stands on stderr. Whatever is not answered for PATIENCE_S ends it with an error.
"""

from __future__ import annotations

import argparse
import functools
import http.client
import itertools
import json
import multiprocessing
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from keeping import BIN, PATIENCE_S, ended, run, turn
from kept import RESULTS, before, keep

from support.gateways import Gateway, command
from support.processes import LOOPBACK, accepts, free_ports, wait_until
from support.processor_time import spent_by_tree
from support.rocketmq import frames

if TYPE_CHECKING:
    from multiprocessing.context import ForkProcess
    from multiprocessing.sharedctypes import Synchronized
    from multiprocessing.synchronize import Event

FORK = multiprocessing.get_context("fork")
OF_ONE_CLIENT = 5000  # topics; fewer than one address may use at once (`limiter.new_names`)
STREAMS = 8
CHANGES_PER_MINUTE = 1000
PARTS = ("topics", "changes", "streams", "strangers")  # of the load
ATTACK = "attack"
EXPORTS = "exports"
PAGE = "page"
TIMED = frozenset((ATTACK, EXPORTS, PAGE))  # parts of the load whose answers are timed
PAGE_SHARE = 0.02  # of a core, at most wanted for it
EXPORTERS = 12  # who export at once
ATTACKERS = 100  # connections to each port
ATTACK_RATE = 1_000_000  # bytes a second to each port
ATTACK_REQUEST = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
OPEN = "/v1/stream?topics=50&events=0"  # what an open page reads on, and what it asks for each 2 s
WORST = "/v1/topics?sort=worst&limit=50"
SEARCH = f"{WORST}&q=topic-0{{number:03}}"
PAGES = (SEARCH, "/v1/topics?sort=rate&limit=50&offset={number}1", "/v1/topics?sort=name&limit=50&offset={number}1")
ASKED = {"/livez": 0.5, "/v1/status": 1.0, "/v1/topics": 0.5, **dict.fromkeys(PAGES, 0.1)}  # path -> seconds for an answer


def say(what: str) -> None:
    """Progress."""
    print(what, file=sys.stderr, flush=True)


def meet(port: int, topics: int) -> None:
    """Send one message to each of so many topics, each OF_ONE_CLIENT from another address, and wait for all answers."""
    for first in range(0, topics, OF_ONE_CLIENT):
        _meet(port, f"127.0.1.{1 + first // OF_ONE_CLIENT}", first, min(first + OF_ONE_CLIENT, topics))


def _meet(port: int, address: str, begin: int, end: int) -> None:
    with socket.create_connection((LOOPBACK, port), timeout=PATIENCE_S, source_address=(address, 0)) as client:
        for first in range(begin, end, 100):
            sent = range(first, min(first + 100, end))
            client.sendall(b"".join(frames.send(f"topic-{number:05}", opaque=1 + number) for number in sent))
            data, answers = b"", 0
            while answers < len(sent):
                got = client.recv(1 << 16)
                if not got:
                    raise SystemExit(f"the gateway closed the connection after {first + answers} topics")
                data += got
                while len(data) >= 4 and len(data) >= 4 + int.from_bytes(data[:4]):
                    data = data[4 + int.from_bytes(data[:4]) :]
                    answers += 1


def open_turn(port: int, seconds: int, connections: int, rate: int) -> dict[str, float]:
    """One run of an open load: messages a second, p50 and p99 in microseconds, from when each was sent."""
    return run(["crowd", str(port), "request", *map(str, (connections, seconds, rate, 200, 1, 1, 0))], seconds)


def as_from_elsewhere(task: Callable[[], None]) -> None:
    """Run it at the kernel's idle priority: whoever asks is on another host as a rule, and does not take the gateway's processor."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))  # 0: this thread
    task()


def attack(port: int, address: str, over: Event, connections: Synchronized[int]) -> None:
    """Attack a port from `address` until it is `over`; counts its connections."""
    due: dict[socket.socket, float] = {}  # connection -> when it sends next
    sent, began = 0, time.monotonic()
    while not over.wait(0.01):
        while len(due) < ATTACKERS:
            client = socket.socket()
            client.bind((address, 0))
            client.setblocking(False)
            client.connect_ex((LOOPBACK, port))
            due[client] = 0.0
            with connections:
                connections.value += 1
        now = time.monotonic()
        for client, at in list(due.items()):
            if at > now or sent > ATTACK_RATE * (now - began):
                continue
            due[client] = now + 0.05
            try:
                sent += client.send(ATTACK_REQUEST * (1 if at else 50))
            except BlockingIOError:
                pass
            except OSError:
                client.close()
                del due[client]


class AdminLoad:
    """The load, on threads of this process; attackers are processes of their own. What it did is in `done`."""

    def __init__(self, gateway: Gateway, probes: int, parts: Collection[str], attackers: str) -> None:
        """`probes`: the port of the listener for probes; `attackers`: their address."""
        self.gateway = gateway
        self.probes = probes
        self.attackers = attackers
        self.parts = parts
        self.took: dict[str, list[float]] = {path: [] for path in ASKED}  # seconds; infinite where there was no answer of 200
        self.done: Counter[str] = Counter()
        self.timed_pages: Collection[str] = PAGES
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._attack_over = FORK.Event()
        self._attacked: list[tuple[ForkProcess, Synchronized[int]]] = []

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.gateway.token}", "Content-Type": "application/json"}

    def _ask(self, what: str, method: str, path: str, body: str | None, every_s: float, headers: dict[str, str]) -> None:
        for number in itertools.count():
            if self._over.is_set():
                return
            with suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPConnection(LOOPBACK, self.gateway.admin_port, timeout=20)
                connection.request(method, path.format(number=number % 500), body and body.format(number=1 + number % 900), headers)
                answer = connection.getresponse()
                answer.read()
                self.done[f"{what} {answer.status}"] += 1
                connection.close()
            self._over.wait(every_s)

    def _stream(self, path: str = "/v1/stream?topics=200", *, reads: bool) -> None:
        with socket.create_connection((LOOPBACK, self.gateway.admin_port)) as client:
            client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.gateway.token}\r\n\r\n".encode())
            client.settimeout(0.5)
            while not self._over.is_set():
                if not reads:
                    self._over.wait(0.5)
                    continue
                with suppress(TimeoutError, ConnectionError):
                    self.done["stream bytes"] += len(client.recv(1 << 16))

    def _time(self, path: str, port: int, headers: dict[str, str], every_s: float = 0.1) -> None:
        for number in itertools.count():
            if self._over.wait(every_s):
                return
            began, status = time.monotonic(), 0
            with suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPConnection(LOOPBACK, port, timeout=5)
                connection.request("GET", path.format(number=number % 1000), None, headers)
                answer = connection.getresponse()
                status, _ = answer.status, answer.read()
                connection.close()
            self.took[path].append(time.monotonic() - began if status == 200 else float("inf"))

    def __enter__(self) -> AdminLoad:
        self._over.clear()
        self._attack_over.clear()
        for port in (self.probes, self.gateway.admin_port) if ATTACK in self.parts else ():
            count = FORK.Value("i", 0)
            process = FORK.Process(target=attack, args=(port, self.attackers, self._attack_over, count), daemon=True)
            process.start()
            self._attacked.append((process, count))
        change = '{{"messages": "{number}000/s"}}'
        tasks: dict[str, list[Callable[[], None]]] = {
            "topics": [lambda: self._ask("topics", "GET", "/v1/topics?limit=100&sort=rate", None, 1.0, self._headers())],
            "changes": [
                lambda: self._ask(
                    "changes", "PUT", "/v1/limits/rocketmq/topic-{number:05}?force=1", change, 60 / CHANGES_PER_MINUTE, self._headers()
                )
            ],
            "strangers": [lambda: self._ask("without a token", "GET", "/v1/status", None, 0.02, {})],
            ATTACK: [
                lambda: self._time("/livez", self.probes, {}),
                lambda: self._time("/v1/status", self.gateway.admin_port, self._headers()),
            ],
            EXPORTS: [
                *(lambda: self._ask("exports", "GET", "/v1/topics?format=csv", None, 0.0, self._headers()) for _ in range(EXPORTERS)),
                lambda: self._time("/v1/topics", self.gateway.admin_port, self._headers()),
            ],
            PAGE: [
                lambda: self._stream(OPEN, reads=True),
                lambda: self._ask("worst", "GET", WORST, None, 2.0, self._headers()),
                *(functools.partial(self._time, path, self.gateway.admin_port, self._headers(), 0.5) for path in self.timed_pages),
            ],
            "streams": [*(lambda: self._stream(reads=True) for _ in range(STREAMS - 1)), lambda: self._stream(reads=False)],
        }
        self._threads = [  # what is timed does not wait for the processor
            threading.Thread(target=(lambda task: task()) if part in TIMED else as_from_elsewhere, args=(task,), daemon=True)
            for part in self.parts
            for task in tasks[part]
        ]
        for thread in self._threads:
            thread.start()
        time.sleep(0.3)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._attack_over.set()
        for process, count in self._attacked:
            process.join()
            self.done["attacking connections"] += count.value
        self._attacked.clear()
        for thread in self._threads:
            thread.join(PATIENCE_S)
        if any(thread.is_alive() for thread in self._threads):
            raise SystemExit(f"the load on the admin port has not ended after {PATIENCE_S:.0f} s: {dict(self.done)}")


def share_of_a_core(gateway: Gateway, seconds: float) -> float:
    """Of the gateway's processes, over so long."""
    began, spent = time.monotonic(), spent_by_tree(gateway.process.pid)
    time.sleep(seconds)
    return (spent_by_tree(gateway.process.pid) - spent) / (time.monotonic() - began)


def share_of_a_page(load: AdminLoad, seconds: float) -> tuple[float, float]:
    """Of a core, without a message: of the gateway alone, and with an open page that nobody searches."""
    alone = share_of_a_core(load.gateway, seconds)
    load.timed_pages = ()
    with load:
        with_page = share_of_a_core(load.gateway, seconds)
    load.timed_pages = PAGES
    return alone, with_page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument(
        "--rate", type=int, help=f"messages a second; 0: as fast as they are answered; default 0, with `--load {ATTACK}` half of that"
    )
    parser.add_argument("--attackers", default="127.0.0.2", metavar="ADDRESS", help="where an attack comes from; default 127.0.0.2")
    parser.add_argument(
        "--load",
        nargs="+",
        choices=(*PARTS, ATTACK, EXPORTS, PAGE),
        default=PARTS,
        metavar="PART",
        help=f"of {', '.join(PARTS)}, and {ATTACK}, {EXPORTS} and {PAGE}; default: all but these three",
    )
    parser.add_argument("--idle", type=float, default=20, help=f"seconds; with `--load {PAGE}` without a message; default 20")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER", help="where the JSON goes")
    parser.add_argument("--workers", type=int, default=1, help="processes of the gateway (gateway.workers); default 1")
    options = parser.parse_args()
    backend, front, other, probes, other_probes = free_ports(5)
    facts = before(command())
    listener = {"name": "bench", "protocol": "rocketmq", "bind": f"{LOOPBACK}:{front}", "upstream": f"{LOOPBACK}:{backend}"}
    turns: dict[str, list[dict[str, float]]] = {"without": [], "again": [], "with": [], "beside": []}
    rules = [{"name": "all", "limit": {"messages": "1000000/s"}}]
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as scratch, ended(subprocess.Popen([str(BIN / "respond"), str(backend)])):
        wait_until(lambda: accepts(LOOPBACK, backend), within=PATIENCE_S, what="respond listens")
        settings = {
            "gateway": {"name": "bench", "state_directory": "state", "workers": options.workers, "max_topics": max(10_000, options.topics)},
            "probes": {"bind": f"{LOOPBACK}:{probes}"},
        }
        beside = settings | {"probes": {"bind": f"{LOOPBACK}:{other_probes}"}}
        with (
            Gateway(Path(scratch) / "gateway", [listener], rules, settings) as gateway,
            Gateway(Path(scratch) / "beside", [{**listener, "bind": f"{LOOPBACK}:{other}"}], rules, beside) as neighbour,
        ):
            say(f"meeting {options.topics} topics")
            meet(front, options.topics)
            meet(other, options.topics)

            def measured() -> dict[str, float]:
                if options.rate:
                    return open_turn(front, options.seconds, options.connections, options.rate)
                return turn(front, options.seconds, options.connections)

            loads = {
                "with": AdminLoad(gateway, probes, options.load, options.attackers),
                "beside": AdminLoad(neighbour, other_probes, options.load, options.attackers),
            }
            passed = turn(front, 1, options.connections)["rate"]
            if options.rate is None:
                options.rate = int(passed / 2) if ATTACK in options.load else 0
            say(f"messages: {options.rate or 'as many as are answered'} a second; {passed:.0f} without load")
            idle = share_of_a_page(loads["with"], options.idle) if PAGE in options.load else None
            began = 0.0
            for number in range(options.rounds):
                say(f"round {number + 1} of {options.rounds}: {options.seconds} s without, with, beside and again without load")
                turns["without"].append(measured())
                for name, load in loads.items():
                    with load:
                        started = time.monotonic()
                        turns[name].append(measured())
                        began += time.monotonic() - started
                turns["again"].append(measured())
            known = gateway.get("/v1/topics?limit=1")["total"]
            if known < options.topics:
                raise SystemExit(f"the gateway has told {known} topics apart, of {options.topics} that it was to meet")
    medians = {
        name: {what: statistics.median(each[what] for each in found) for what in ("rate", "p50", "p99")} for name, found in turns.items()
    }
    for name, found in turns.items():
        spread = " ".join(f"{each['p99']:.0f}" for each in found)
        of = medians[name]
        print(f"{name:8} {of['rate']:8.0f}/s  p50 {of['p50']:.0f} us  p99 {of['p99']:.0f} us  (p99 of the turns: {spread})")
    for one, other_kind in (("with", "without"), ("beside", "without"), ("with", "beside"), ("again", "without")):
        ratios = {what: round(medians[one][what] / medians[other_kind][what], 3) for what in ("rate", "p50", "p99")}
        print(f"{one} / {other_kind}:".ljust(17), json.dumps(ratios))
    if ATTACK in options.load:
        bound = 1.2 * medians["without"]["p99"] + 2000
        held = "held" if medians["with"]["p99"] <= bound else "NOT held"
        print(f"messages' p99 under attack {medians['with']['p99']:.0f} us, at most {bound:.0f} wanted: {held}")
    answers = {path: sorted(took) for path, took in loads["with"].took.items() if took}
    for path, took in answers.items():
        in_time = sum(seconds <= ASKED[path] for seconds in took)
        middle, late = (took[int(part * (len(took) - 1))] for part in (0.5, 0.99))
        told = f"p50 {middle:.3f} s, p99 {late:.3f} s, the slowest {took[-1]:.3f} s"
        print(f"{path} meanwhile: {in_time} of {len(took)} within {ASKED[path]} s, {told}")
    if idle is not None:
        share = idle[1] - idle[0]
        print(f"an open page: {share:.2%} of a core, at most {PAGE_SHARE:.0%} wanted: {'held' if share <= PAGE_SHARE else 'NOT held'}")
    print(f"topics known: {known}; in {began:.1f} s of load: " + ", ".join(f"{name} {dict(load.done)}" for name, load in loads.items()))
    plan = {name: value for name, value in vars(options).items() if name not in {"load", "results"}}
    result = {"plan": {**plan, "load": list(options.load)}, "turns": turns, "took": answers}
    if idle is None:
        keep(options.results / "admin-load.json", facts, result)
    else:
        keep(options.results / "admin-page.json", facts, {**result, "idle": dict(zip(("alone", "with a page"), idle, strict=True))})


if __name__ == "__main__":
    main()
