"""Ordinary client libraries, as programs of their own: what an application sees when it talks to a broker through the gateway.

Each runs in its own process (so that it does not share a scheduler with the test) and prints JSON. Java and Go are compiled once and
kept under build/.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from support.brokers.rocketmq import JARS
from support.java import ROOT, compiled, java
from support.processes import HANG_S
from support.ran import ran

CLIENTS = ROOT / "tests" / "end_to_end" / "clients"
CLIENT_JARS = {"5": JARS, "4": "rocketmq-client-4.9.8"}  # of RocketMQ's Java client: the brokers' version, and the last of 4
PATIENCE_MS = 120_000  # of a send, where how long a busy machine takes is not what is tested; the Java client's own is 3 s
CLIENT_SETTINGS = {"rocketmq.client.rebalance.waitInterval": "2000"}
THREE_SECONDS = "3*time.Second"
FIFTEEN_SECONDS = "15*time.Second"  # what is never answered, as a heartbeat on a connection that ended, is waited for as long
GO_MISSING = "Go is not installed: run `make test` (it installs it), or `apt-get install golang-go`"


class Program:
    """A client that is running. `result()` waits for its end and returns the JSON lines it printed."""

    started: ClassVar[list[Program | Job]] = []  # and not yet looked after by `none_outlives`

    def __init__(self, command: list[str], *, cwd: Path | None = None) -> None:
        self.command = command
        self._scratch = tempfile.TemporaryFile("w+")  # noqa: SIM115  -- closed with the program; a pipe could fill and stall it
        self._popen = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._scratch, text=True, cwd=cwd)
        self.started.append(self)

    @classmethod
    @contextmanager
    def none_outlives(cls) -> Iterator[None]:
        """End what was started meanwhile and nobody waited for: a test that fails leaves its clients behind."""
        before, cls.started = cls.started, []
        try:
            yield
        finally:
            left, cls.started = cls.started, before
            for program in left:
                program.kill()

    @property
    def pid(self) -> int:
        return self._popen.pid

    def ended(self) -> bool:
        return self._popen.poll() is not None

    def result(self, within: float = HANG_S) -> list[dict[str, Any]]:
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

    def lines(self) -> Iterator[dict[str, Any]]:
        """The JSON lines it prints, as they come, until it ends or is stopped. For programs that talk all the time; instead of `result`."""
        assert self._popen.stdout is not None
        with self._popen.stdout as output:
            for line in output:
                if line.startswith("{"):
                    yield json.loads(line)

    def stop(self) -> None:
        """End one whose `lines` somebody reads, who comes to the end of them."""
        with self._scratch:
            self._popen.kill()
            self._popen.wait()

    def kill(self) -> None:
        """End it now, if it has not ended; what it said is lost."""
        self._popen.kill()
        self._popen.wait()
        self._scratch.close()
        if self._popen.stdout is not None:
            self._popen.stdout.close()

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
    begun_per_100ms: dict[int, int] = field(default_factory=dict)  # slots since 1970, as below
    acked_per_100ms: dict[int, int] = field(default_factory=dict)

    @classmethod
    def from_json(cls, run: str, line: dict[str, Any]) -> Published:
        known = {name: line[name] for name in ("outcomes", "elapsed_s", "returned", "multiple", "closed", "started_ms") if name in line}
        begun, acked = ({int(slot): n for slot, n in line.get(f"{what}_per_100ms", {}).items()} for what in ("begun", "acked"))
        return cls(run=run, begun_per_100ms=begun, acked_per_100ms=acked, **known)

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


def go_program(name: str, package: str, module: str = "go", patient: str = "") -> Path:
    """The compiled program of a package of the module `clients/MODULE`; built at the first call and when a source changes.

    `patient`: a library that gives every answer three seconds, which nobody can set. It is built with fifteen instead.
    """
    source = CLIENTS / module
    files = [file for file in sorted(source.rglob("*")) if file.is_file()]
    content = [file.read_bytes() for file in files] + [f"{patient} {FIFTEEN_SECONDS}".encode()] * bool(patient)
    digest = hashlib.sha256(b"".join(content)).hexdigest()[:16]
    program = ROOT / "build" / "go" / f"{name}-{digest}"
    if not program.exists():
        if shutil.which("go") is None:
            raise RuntimeError(GO_MISSING)
        partial = program.with_suffix(f".{os.getpid()}")
        with tempfile.TemporaryDirectory() as folder:
            other = _with_patience(patient, source, Path(folder)) if patient else []
            command = ["go", "build", *other, "-o", str(partial), package]
            done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False, timeout=HANG_S)
        if done.returncode:
            raise RuntimeError(f"go build: {done.stderr}")
        partial.rename(program)
    _tell_what_runs(program)
    return program


@cache
def _tell_what_runs(program: Path) -> None:
    """The modules that a program of Go says it was built of."""
    told = subprocess.run(["go", "version", "-m", str(program)], capture_output=True, text=True, check=True).stdout
    for module, version in re.findall(r"^\s+dep\s+(\S+)\s+v(\S+)", told, re.MULTILINE):
        ran(module, version)


def _with_patience(library: str, source: Path, folder: Path) -> list[str]:
    """The option that builds the module of `source` with a copy of `library` in `folder` that gives every answer fifteen seconds."""
    asked = ["go", "mod", "download", "-json", library]
    done = subprocess.run(asked, cwd=source, capture_output=True, text=True, check=False, timeout=HANG_S)
    if done.returncode:
        raise RuntimeError(f"go mod download: {done.stderr or done.stdout}")
    copy = shutil.copytree(json.loads(done.stdout)["Dir"], folder / "library", copy_function=shutil.copyfile)
    replaced = 0
    for file in copy.rglob("*.go"):
        text = file.read_text()
        replaced += text.count(THREE_SECONDS)
        file.write_text(text.replace(THREE_SECONDS, FIFTEEN_SECONDS))
    assert replaced, f"{library} gives nothing three seconds any more"
    (folder / "go.mod").write_text((source / "go.mod").read_text() + f"\nreplace {library} => {copy}\n")
    shutil.copyfile(source / "go.sum", folder / "go.sum")
    return [f"-modfile={folder / 'go.mod'}"]


def go_publisher() -> Path:
    return go_program("publisher", ".")


@dataclass
class Publishing:
    """A publisher at work."""

    run: str
    program: Program

    def result(self, within: float = HANG_S) -> Published:
        return Published.from_json(self.run, self.program.result(within)[-1])


def go_publish(url: str, exchange: str, key: str, run: str, **flags: float | str) -> Publishing:
    """Start the Go publisher; `flags` are its command line flags, e.g. count=20000, connections=4, rate=2000, mandatory=True."""
    words = [f"-{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in flags.items()]
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


class Jobs:
    """A JVM that runs applications of RocketMQ's Java client side by side (Jobs.java), until this process ends or one of them hangs."""

    _running: ClassVar[dict[tuple[str, bool], Jobs]] = {}  # by class path and patience

    def __init__(self, class_path: str, home: Path, *, patient: bool) -> None:
        """`patient`: a request that is not answered in time, as a heartbeat in 3 s, does not take all sends of its connection along."""
        self._scratch = tempfile.TemporaryFile("w+")  # noqa: SIM115  -- closed with the JVM; a pipe could fill and stall it
        settings = CLIENT_SETTINGS | {"com.rocketmq.remoting.client.closeSocketIfTimeout": str(not patient).lower()}
        command = java(class_path, "Jobs", home, properties=settings)
        self._popen = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._scratch, text=True, cwd=home)
        self._jobs: list[Job] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        atexit.register(self.end)

    @classmethod
    def begin(cls, class_path: str, home: Path, application: str, words: Sequence[object], *, patient: bool) -> Job:
        """Begin a job, in the JVM of this class path and patience; that is started where there is none."""
        running = cls._running.get((class_path, patient))
        if running is None or running._popen.poll() is not None:
            running = cls._running[class_path, patient] = cls(class_path, home, patient=patient)
        job = Job(running, application)
        running._jobs.append(job)
        assert running._popen.stdin is not None
        running._popen.stdin.write("\t".join(map(str, (len(running._jobs) - 1, application, *words))) + "\n")
        running._popen.stdin.flush()
        return job

    def _read(self) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            told = json.loads(line)
            self._jobs[told["job"]].told.put(told["report"])
        for job in self._jobs:
            job.told.put("its JVM has ended")

    def end(self) -> str:
        """End the JVM, and whatever it runs; what it has complained of."""
        if self._scratch.closed:
            return ""
        self._popen.kill()
        self._popen.wait(HANG_S)
        self._reader.join(HANG_S)
        for pipe in (self._popen.stdin, self._popen.stdout):
            assert pipe is not None
            pipe.close()
        with self._scratch:
            self._scratch.seek(0)
            return self._scratch.read()[-3000:]


class Job:
    """An application that is running; as a Program."""

    def __init__(self, jvm: Jobs, application: str) -> None:
        self.told: queue.Queue[dict[str, Any] | str | None] = queue.Queue()  # its reports; then None, or what went wrong
        self._jvm = jvm
        self._application = application
        self._ended = False
        Program.started.append(self)

    def ended(self) -> bool:
        return self._ended or any(not isinstance(report, dict) for report in list(self.told.queue))

    def result(self, within: float = HANG_S) -> list[dict[str, Any]]:
        """Raises AssertionError, with what the application said, where it failed or did not end within that many seconds."""
        deadline = time.monotonic() + within
        reports: list[dict[str, Any]] = []
        while True:
            try:
                told = self.told.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                told = f"it did not end within {within:g} s"
            if isinstance(told, dict):
                reports.append(told)
                continue
            self._ended = True
            assert told is None, f"{self._application}: {told}\n{self._jvm.end()}"
            return reports

    def kill(self) -> None:
        """End it now, if it has not ended, and its JVM with it."""
        if not self.ended():
            self._jvm.end()


class RocketMQClient:
    """The Java client of one line, `5` or `4`."""

    def __init__(self, version: str, home: Path, name_server: str) -> None:
        jar_set = CLIENT_JARS[version]
        self.version = version
        self.home = home
        self.name_server = name_server
        self._class_path = compiled(CLIENTS / "java" / "rocketmq", jar_set)

    def _begin(self, application: str, *words: object, patient: bool = True) -> Job:
        return Jobs.begin(self._class_path, self.home, application, [self.name_server, *words], patient=patient)

    def _start(self, main: str, *words: object) -> Program:
        command = java(self._class_path, main, self.home, properties=CLIENT_SETTINGS)
        return Program([*command, self.name_server, *map(str, words)], cwd=self.home)

    def produce(
        self, run: str, *jobs: dict[str, object], connections: int = 1, vip: bool = False, tls: bool = False, timeout_ms: int = PATIENCE_MS
    ) -> Job:
        """Start sending. Each job is settings as in Produce.java (topic, mode, count, rate, until, ...); a result line each."""
        words = [",".join(f"{name}={value}" for name, value in job.items()) for job in jobs]
        return self._begin("Produce", run, connections, str(vip).lower(), str(tls).lower(), timeout_ms, *words, patient=timeout_ms > 3000)

    def steady(self, group: str, topics: list[str], *, rate: float, seconds: float, size: int = 200) -> Program:
        """Start an application that sends `rate` messages a second to each topic and prints what it saw in every second (Steady.java)."""
        return self._start("Steady", group, rate, seconds, size, *topics)

    def consume(self, group: str, topic: str, *, expected: int | Path, within: float = 240.0, orderly: bool = False) -> Job:
        """Start a push consumer (Consume.java). `expected` may be a file that will be there with the number once it is known."""
        way = "orderly" if orderly else "concurrently"
        return self._begin("Consume", group, topic, expected, within, way)

    def consume_all(self, *consumers: tuple[str, str, str, int], within: float = 240.0) -> Program:
        """Consumers in one client, each (push, lite or pop; group; topic; how many are expected). A result line each."""
        return self._start("Consumers", within, *(":".join(map(str, one)) for one in consumers))

    def transact(self, run: str, topic: str, *, count: int, within: float = 240.0) -> Job:
        return self._begin("Transact", run, topic, count, within)
