"""What is measured and what loads it: sluice as its users run it, the stand-in broker behind it, and the crowd of clients in front.

Three processes, each with its own limit of descriptors. The stand-in and the crowd are C (`bench/load`): on a small machine they share the
processors with sluice, so they must cost little.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from scale.sampling import look
from support.gateways import Gateway
from support.processes import LOOPBACK, Process, accepts, free_ports

BENCH = Path(__file__).resolve().parents[1]
PATIENCE_S = 120.0  # for a start with 10,000 rules, an opening of 4,000 connections
LIMIT: dict[str, object] = {"messages": "100M/s", "bytes": "1000GiB/s"}  # in force, and far above any load
STRIDE = 611_953  # a prime: topics are visited in an order that is not that of their making
CALM_S, CALM = (
    1.1,
    0.15,
)  # a gateway that uses less than so much of a core for longer than a second has no work left (a million topics: 0.06)
REST_S = 20.0
SETTLE_S = 0.3  # what opening connections left to do is done


def built(program: str) -> Path:
    """A load program, compiled if it is not there or older than its source."""
    done = subprocess.run(["make", "-s", "-C", str(BENCH / "load"), f"../bin/{program}"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"cannot build bench/load/{program}.c:\n{done.stderr}")
    return BENCH / "bin" / program


def rules(count: int) -> list[dict[str, object]]:
    """So many rules: one bucket for every topic, and all but one of them for one topic each, as the crowd names them."""
    everything: dict[str, object] = {"name": "all", "match": {"protocol": "rocketmq"}, "per": "topic", "limit": LIMIT}
    exact: list[dict[str, object]] = [
        {"name": f"topic-{n}", "match": {"protocol": "rocketmq", "topic": f"bench-{n:07}"}, "per": "topic", "limit": LIMIT}
        for n in range(count - 1)
    ]
    return [*exact, everything]


@contextmanager
def stand_in(scratch: Path, program: str, *words: str) -> Iterator[int]:
    """A stand-in broker; its port."""
    port = free_ports(1)[0]
    scratch.mkdir(parents=True, exist_ok=True)
    with Process([built(program), str(port), *words], log=scratch / f"{program}-{port}.log") as process:
        process.wait_until(lambda: accepts(LOOPBACK, port), within=10, what=f"{program} listens")
        yield port


def listener(name: str, protocol: str, upstream: str) -> dict[str, object]:
    return {"name": name, "protocol": protocol, "bind": f"{LOOPBACK}:0", "upstream": upstream}


@contextmanager
def sluice(
    directory: Path, listeners: list[dict[str, object]], rule_list: list[dict[str, object]], **settings: object
) -> Iterator[Gateway]:
    """One gateway with the access log and the limiter's own thread on, unless `settings` say otherwise."""
    gateway = Gateway(directory, listeners, [], {"limiter": {"threads": 1, "max_keys": 2_000_000}} | settings)
    gateway.rules_file.write_text(json.dumps({"rules": rule_list}))  # JSON is YAML, and 10,000 rules are written at once
    gateway.start(within=PATIENCE_S)
    try:
        yield gateway
    finally:
        if gateway.alive():
            gateway.stop(within=PATIENCE_S)


@dataclass(frozen=True)
class Load:
    """What a crowd does; see `bench/load/crowd.c`."""

    connections: int = 32
    seconds: float = 2.0
    rate: float = 0.0  # messages per second of all connections; 0: as fast as they are answered
    topics: int = 1
    count: int = 0  # messages after which it ends; 0: only SECONDS end it
    kind: str = "request"
    stride: int = STRIDE
    body: int = 200  # bytes

    def words(self) -> list[str]:
        numbers = (self.seconds, self.rate, self.body, self.topics, self.stride, self.count)
        return [self.kind, str(self.connections), *(f"{value:g}" if isinstance(value, float) else str(value) for value in numbers)]

    def every_topic(self) -> Load:
        """One message for each topic in the order of their numbers, as fast as possible."""
        return replace(self, seconds=PATIENCE_S, rate=0.0, count=self.topics, stride=1)


@dataclass
class Crowd:
    """A running load program. A context manager: entered, its connections are open; left, they are closed."""

    port: int
    load: Load
    _held: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Crowd:
        command = [str(built("crowd")), str(self.port), *self.load.words()]
        pipe = subprocess.PIPE
        self._process = self._held.enter_context(subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True))
        self._expect("ready")
        return self

    def _expect(self, begin: str) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith(begin):
            raise SystemExit(f"crowd {self.load}: {line}{self._process.communicate()[1]}")
        return line

    def begin(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def result(self) -> dict[str, Any]:
        """`messages`, `seconds`; of requests also `p50_us`, `p99_us`, `p999_us` and `worst`. Waits for the end."""
        found: dict[str, Any] = json.loads(self._expect("{"))
        return found

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self._process.kill()
        self._process.communicate()
        self._held.close()


def rest(pid: int) -> tuple[float, float]:
    """Until a gateway does nothing but what it does without clients: its bookkeeping of what was is done, or REST_S are over.

    Processor seconds that this took beyond what it needs each second anyway; and how much that is, as a part of a core.
    """
    begun = before = look(pid)
    while True:
        time.sleep(CALM_S)
        after = look(pid)
        idle = (after.processor_s - before.processor_s) / (after.at - before.at)
        if idle < CALM or after.at - begun.at > REST_S:
            return max(0.0, after.processor_s - begun.processor_s - idle * (after.at - begun.at)), idle
        before = after


def loaded(gateway: Gateway, name: str, load: Load, *, calm: bool = False) -> dict[str, Any]:
    """What a crowd at the gateway's listener `name` found, and what it cost: `cpu_s` and `cpu_us` per message of the process tree.

    With `calm` the bookkeeping that the load leaves behind counts, too: once a second, of each topic used in it. And `idle` is what
    the gateway needs afterwards, as a part of a core.
    """
    pid = gateway.process.pid
    with Crowd(gateway.port(name), load) as crowd:
        time.sleep(SETTLE_S)
        before = look(pid)
        crowd.begin()
        found = crowd.result()
        time.sleep(0.05)  # what it does after the last byte belongs to the work
        after = look(pid)
        found["cpu_s"] = after.processor_s - before.processor_s
        if calm:
            left, found["idle"] = rest(pid)
            found["cpu_s"] += left
    found["cpu_us"] = found["cpu_s"] / max(found["messages"], 1) * 1e6
    found["processors_busy"] = (after.machine_s - before.machine_s) / (after.at - before.at)  # of the whole machine
    return found
