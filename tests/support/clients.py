"""Ordinary client libraries, as programs of their own: what an application sees when it talks to a broker through the gateway.

Each runs in its own process (so that it does not share a scheduler with the test) and prints JSON. Java and Go are compiled once and
kept under build/.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.java import ROOT, compiled, java

CLIENTS = ROOT / "tests" / "end_to_end" / "clients"
GO_MISSING = "Go is not installed: run `make test` (it installs it), or `apt-get install golang-go`"


class Program:
    """A client that is running. `result()` waits for its end and returns the JSON lines it printed."""

    def __init__(self, command: list[str], *, cwd: Path | None = None) -> None:
        self.command = command
        self._scratch = tempfile.TemporaryFile("w+")  # noqa: SIM115  -- closed with the program; a pipe could fill and stall it
        self._popen = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._scratch, text=True, cwd=cwd)

    @property
    def pid(self) -> int:
        return self._popen.pid

    def result(self, within: float = 120.0) -> list[dict[str, Any]]:
        """Raises AssertionError, with what the program said, where it failed or did not end within that many seconds."""
        with self._scratch:
            try:
                output, _ = self._popen.communicate(timeout=within)
            except subprocess.TimeoutExpired:
                self._popen.kill()
                output, _ = self._popen.communicate()
                raise AssertionError(f"{self._name()} did not end within {within:g} s\n{output[-1000:]}{self._complaints()}") from None
            if self._popen.returncode:
                raise AssertionError(f"{self._name()} ended with {self._popen.returncode}\n{output[-1000:]}{self._complaints()}")
        return [json.loads(line) for line in output.splitlines() if line.startswith("{")]

    def _complaints(self) -> str:
        self._scratch.seek(0)
        return self._scratch.read()[-3000:]

    def _name(self) -> str:
        return " ".join(word for word in self.command if not word.startswith("-") and "/" not in word)[:200]


@dataclass
class Published:
    """What a publisher with confirms saw: one letter per message and connection (A acked, N nacked, ? no answer)."""

    run: str
    outcomes: list[str]
    elapsed_s: float
    returned: int = 0
    multiple: int = 0
    closed: list[str] = field(default_factory=list)
    started_ms: int = 0
    acked_per_100ms: dict[int, int] = field(default_factory=dict)

    @classmethod
    def from_json(cls, run: str, line: dict[str, Any]) -> Published:
        known = {name: line[name] for name in ("outcomes", "elapsed_s", "returned", "multiple", "closed", "started_ms") if name in line}
        return cls(run=run, acked_per_100ms={int(slot): n for slot, n in line.get("acked_per_100ms", {}).items()}, **known)

    def ids(self, outcome: str) -> set[str]:
        """The ids of all messages with this outcome."""
        return {
            f"{self.run}-{connection}-{sequence}"
            for connection, letters in enumerate(self.outcomes)
            for sequence, letter in enumerate(letters)
            if letter == outcome
        }

    def count(self, outcome: str) -> int:
        return sum(letters.count(outcome) for letters in self.outcomes)

    @property
    def sent(self) -> int:
        return sum(map(len, self.outcomes))


def go_program(name: str, package: str) -> Path:
    """The compiled program of a package under `clients/go`; built at the first call and when a source changes."""
    source = CLIENTS / "go"
    files = [file for file in sorted(source.rglob("*")) if file.is_file()]
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    program = ROOT / "build" / "go" / f"{name}-{digest}"
    if not program.exists():
        if shutil.which("go") is None:
            raise RuntimeError(GO_MISSING)
        partial = program.with_suffix(f".{os.getpid()}")
        command = ["go", "build", "-o", str(partial), package]
        done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False, timeout=300)
        if done.returncode:
            raise RuntimeError(f"go build: {done.stderr}")
        partial.rename(program)
    return program


def go_publisher() -> Path:
    return go_program("publisher", ".")


@dataclass
class Publishing:
    """A publisher at work."""

    run: str
    program: Program

    def result(self, within: float = 120.0) -> Published:
        return Published.from_json(self.run, self.program.result(within)[-1])


def go_publish(url: str, exchange: str, key: str, run: str, **flags: float | str) -> Publishing:
    """Start the Go publisher; `flags` are its command line flags, e.g. count=20000, connections=4, rate=2000, mandatory=True."""
    words = [f"-{name}={str(value).lower()}" for name, value in flags.items()]
    return Publishing(run, Program([str(go_publisher()), f"-url={url}", f"-exchange={exchange}", f"-key={key}", f"-run={run}", *words]))


def pika_publish(url: str, exchange: str, key: str, run: str, *, count: int, size: int = 200, window: int = 1000) -> Publishing:
    program = CLIENTS / "python" / "pika_publish.py"
    return Publishing(run, Program([sys.executable, str(program), url, exchange, key, run, str(count), str(size), str(window)]))


def java_publish(home: Path, url: str, exchange: str, key: str, run: str, *, count: int, every: int = 0, everykey: str = "") -> Publishing:
    """Start the Java publisher; every `every`th message (0: none) goes to `everykey`."""
    command = java(compiled(CLIENTS / "java" / "amqp", "amqp-client"), "Publish", home)
    words = [url, exchange, key, run, str(count), "200", "1000"]  # bytes of a body, and how many may be unanswered at a time
    if every:
        words += [str(every), everykey]
    return Publishing(run, Program([*command, *words]))


class RocketMQClient:
    """The Java client of one version (`5.3.3` or `4.9.8`)."""

    def __init__(self, version: str, home: Path, name_server: str) -> None:
        jar_set = {"5.3.3": "rocketmq-5.3.3", "4.9.8": "rocketmq-client-4.9.8"}[version]
        self.version = version
        self.home = home
        self.name_server = name_server
        self._class_path = compiled(CLIENTS / "java" / "rocketmq", jar_set)

    def _start(self, main: str, *words: object, **properties: str) -> Program:
        settings = {"rocketmq.client.rebalance.waitInterval": "2000"} | properties
        return Program([*java(self._class_path, main, self.home, properties=settings), self.name_server, *map(str, words)], cwd=self.home)

    def produce(self, run: str, *jobs: dict[str, object], connections: int = 1, vip: bool = False, tls: bool = False) -> Program:
        """Start sending. Each job is settings as in Produce.java (topic, mode, count, seconds, rate, size, batch); a result line each."""
        words = [",".join(f"{name}={value}" for name, value in job.items()) for job in jobs]
        return self._start("Produce", run, connections, *words, vip=str(vip).lower(), **{"tls.enable": str(tls).lower()})

    def consume(
        self, group: str, topic: str, *, expected: int, within: float = 60.0, orderly: bool = False, send_back_every: int = 0
    ) -> Program:
        way = "orderly" if orderly else "concurrently"
        return self._start("Consume", group, topic, expected, within, way, send_back_every)

    def transact(self, run: str, topic: str, *, count: int, within: float = 30.0) -> Program:
        return self._start("Transact", run, topic, count, within)
