"""Nine client libraries, each as one small program that does what it is told and says what its application saw.

A probe reads an order a line and answers each with a report a line, so that one start (a JVM, a Ruby, a Node) serves many tests. The order
is `name=value name=value ...`:

    url        where to connect                          mode     of the limited channel: confirm | plain | tx | flood (see below)
    key        routing key (default exchange) published  count    publishes on it, each answered before the next (confirm)
    run        start of every message id: RUN-NUMBER     mandatory, other_first   1: yes
    free       a queue without a limit: the connection's other channel publishes there with a confirm and gets it back
    heartbeat  seconds asked for                         pause    seconds at most between the publishes and the commit, see below
    linger     seconds to wait at most behind the publishes, events served; over as soon as the client was blocked and unblocked, as
               its limited channel was closed, or as it has heard as many as it is to `expect`
    listen     a queue one more channel consumes all the while
    back       1: it gives each message back (requeue) that comes for the first time, and acknowledges the others (not py-amqp, AMQPStorm)
    timeout    milliseconds for the answer to the last publish (Bunny's, which cannot know that none will come)

`pause` is for libraries that learn of a close by themselves, and is over as soon as they have; the others do not wait.

and it goes: connect, open the channels, publish, commit (tx), [other channel], linger, a passive declare on the limited channel (is it
still open?), other channel (and one more channel opened and closed), close. `flood` publishes `count` messages without waiting, at most
1000 unanswered, every `every`th to `every_key`. `Report` is what comes back.

What a library needs is fetched or built at the first use and kept under build/; where that cannot be had the test fails.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from support.clients.answering import Answering
from support.clients.programs import CLIENTS, go_program
from support.environments import environment, one_at_a_time
from support.java import ROOT, compiled, java
from support.processes import HANG_S
from support.ran import ran, version_by

if TYPE_CHECKING:
    from pathlib import Path

# aiormq (of aio-pika) and AMQPStorm have asked for different pamqp before; at these versions they agree.
PYTHON_LIBRARIES = ("aio-pika==10.2.1", "aiormq==7.2.4", "pamqp==4.0.1", "AMQPStorm==3.1.4", "amqp==5.4.2", "vine==5.1.0")
OF_LIBRABBITMQ = "#include <amqp.h>\nAMQP_VERSION_MAJOR AMQP_VERSION_MINOR AMQP_VERSION_PATCH"
CELERY_LIBRARIES = ("celery==5.7.0", "kombu==5.7.0", "amqp==5.4.2", "vine==5.1.0")


@dataclass(frozen=True)
class Report:
    """What the application saw."""

    seen: list[str] = field(default_factory=list)  # a word for each publish: `ack`, `sent`, or what the library says or raises
    commit: str = ""
    returns: list[dict[str, Any]] = field(default_factory=list)  # code, text, key, body
    channel: Any = "open"  # or how it, or the whole connection, was closed: class, code, text
    refused: Any = None  # how the connection was refused: class, code, text
    blocked: list[str] = field(default_factory=list)  # reasons
    unblocked: int = 0
    other: Any = ""  # `ok`, or what went wrong on the connection's other channel
    heard: int = 0  # messages that `listen` received
    longest_gap_s: float = 0.0  # between two of them
    outcomes: str = ""  # of a flood: A acked, N nacked, ? no answer
    nacked: list[int] | None = None  # of a flood, where the library keeps a list of refused tags itself


def npm_modules(project: str) -> Path:
    """The folder of node modules that the committed lock file of `clients/PROJECT` names. Raises RuntimeError."""
    source = CLIENTS / project
    lock = source / "package-lock.json"
    folder = ROOT / "build" / "node" / hashlib.sha256(lock.read_bytes()).hexdigest()[:16]
    with one_at_a_time(folder):
        modules = _npm_modules(source, lock, folder)
    for name in json.loads((source / "package.json").read_text())["dependencies"]:
        ran(name, json.loads((modules / name / "package.json").read_text())["version"])
    return modules


def _npm_modules(source: Path, lock: Path, folder: Path) -> Path:
    modules = folder / "node_modules"
    if modules.exists():
        return modules
    npm = tool_of_debian("npm")
    partial = folder.with_suffix(f".{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for file in (lock, source / "package.json"):
        shutil.copy(file, partial)
    command = [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    done = subprocess.run(command, cwd=partial, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        raise RuntimeError(f"npm ci: {(done.stdout + done.stderr)[-1500:]}")
    partial.rename(folder)
    return modules


def c_program() -> Path:
    """The compiled probe on librabbitmq. Raises RuntimeError."""
    source = CLIENTS / "c" / "probe.c"
    program = ROOT / "build" / "c" / f"probe-{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        partial = program.with_suffix(f".{os.getpid()}")
        command = [tool_of_debian("cc", "gcc"), "-O1", "-Wall", "-Wextra", "-o", str(partial), str(source), "-lrabbitmq"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANG_S)
        if done.returncode:
            raise RuntimeError(f"cc: {done.stderr[-1500:]}\nIs librabbitmq-dev installed? `make test` installs it.")
        partial.rename(program)
    return program


def tool_of_debian(name: str, package: str | None = None) -> str:
    path = shutil.which(name)
    if path is None:
        raise RuntimeError(f"{name} is not installed: run `make test` (it installs it), or `apt-get install {package or name}`")
    return path


def python_probe(name: str) -> list[str]:
    return [str(environment("clients", *PYTHON_LIBRARIES)), str(CLIENTS / "python" / f"probe_{name}.py")]


def command(library: str, home: Path) -> list[str]:
    """The command that runs the probe of `library`."""
    if library == "pika":
        ran("pika", importlib.metadata.version("pika"))
        return [sys.executable, str(CLIENTS / "python" / "probe_pika.py")]
    if library == "java":
        return java(compiled(CLIENTS / "java" / "amqp", "amqp-client"), "Probe", home)
    if library == "go":
        return [str(go_program("probe", "./probe"))]
    if library == "librabbitmq":
        ran("librabbitmq", version_by("cc", "-E", "-P", "-", read=OF_LIBRABBITMQ))
        return [str(c_program())]
    if library == "amqplib":
        return [tool_of_debian("node", "nodejs"), str(CLIENTS / "node" / "probe.js")]
    if library == "bunny":
        ran("bunny", version_by("ruby", "-r", "bunny", "-e", "puts Bunny::VERSION"))
        return [tool_of_debian("ruby", "ruby-bunny"), str(CLIENTS / "ruby" / "probe.rb")]
    return python_probe({"aio-pika": "aio_pika", "amqpstorm": "amqpstorm", "py-amqp": "py_amqp"}[library])


LIBRARIES = ("pika", "aio-pika", "amqpstorm", "py-amqp", "amqplib", "bunny", "java", "go", "librabbitmq")


class Probe:
    """One library's program, started at the first order and again after it was lost."""

    def __init__(self, library: str, home: Path) -> None:
        self.library = library
        self._program = Answering(library, home, self._start_with)

    def _start_with(self) -> tuple[list[str], dict[str, str]]:
        environment_of = {"NODE_PATH": str(npm_modules("node"))} if self.library == "amqplib" else {}
        return command(self.library, self._program.home), environment_of

    def ask(self, within: float = HANG_S, /, **order: object) -> Report:
        """Raises AssertionError, with what the program said, where it fails, ends or has no report within that many seconds."""
        return Report(**self._program.ask(within, **order))

    def close(self) -> None:
        self._program.close()

    def __repr__(self) -> str:
        return repr(self._program)


@contextmanager
def asked_at_once(home: Path, orders: dict[str, dict[str, object]]) -> Iterator[dict[str, Future[Report]]]:
    """Give every order to a probe of its own, all at the same time; an order's name is `WHAT.LIBRARY`. The reports come by name."""
    with ExitStack() as stack:
        at_work = stack.enter_context(ThreadPoolExecutor(len(orders)))

        def ask(name: str) -> Report:
            probe = Probe(name.partition(".")[2], home / name)
            stack.callback(probe.close)
            return probe.ask(**orders[name])

        yield {name: at_work.submit(ask, name) for name in orders}
