"""RocketMQ's client libraries, each as one small program that does what it is told and says what its application saw.

Orders and reports go as `support/clients/answering.py` says; one producer, so one connection, serves all sends of a program. Orders, with
`namesrv` in each:

    do=send      topic, run (bodies are RUN-NUMBER), count, mode: sync (one after the other) | async | oneway | batch (of `batch`) | ordered
                 timeout  of the last send, ms; all others have two minutes: how busy the machine is is not what is tested
                 free     another topic: 0.2 s after the second began, `free_count` messages to it in turn, same connection (not async)
    do=consume   topic, group (a new consumer, from the first message on), expected (different bodies, then it ends), within (seconds)
                 fail_first  so many messages fail once              orderly  1: one queue at a time, locked (Java)

What a library needs is fetched or built at the first use and kept under build/; where that cannot be had the test fails, but without
Maven Central the Java ones are skipped.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from support.clients.answering import Answering
from support.clients.probes import npm_modules, tool_of_debian
from support.clients.programs import CLIENT_JARS, CLIENTS, go_program
from support.environments import environment
from support.java import compiled, java

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CPP = "rocketmq==0.4.4"  # brings the C++ core 1.2.x along; later ones on PyPI do not
LIBRARIES = ("java-5", "java-4", "cpp", "go", "node")


def word(library: str) -> str:
    """The library in the name of a topic or group, which may have no dots."""
    return library.replace(".", "")


@dataclass(frozen=True)
class Failure:
    """What a send that failed says."""

    kind: str  # exception or error type
    code: int | None  # the broker's response code, where the library tells it
    text: str


@dataclass(frozen=True)
class Sent:
    """What came of the sends, as the application saw it. None: it succeeded, as far as the library can tell."""

    seen: list[Failure | None]
    free: list[Failure | None]
    free_over_s: list[float]  # when each send to `free` was over, since the beginning
    free_before: int  # of these were over before the last to `topic`
    elapsed_s: float


@dataclass(frozen=True)
class Consumed:
    """What the application got, in this order; `failed` are those that it failed on at first."""

    consumed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    elapsed_s: float = 0.0


def program(library: str, home: Path) -> tuple[list[str], Mapping[str, str]]:
    """The command that runs the probe of `library`, and what its environment must have."""
    if library == "cpp":
        return [str(environment("rocketmq-cpp", CPP)), str(CLIENTS / "python" / "rocketmq_cpp.py")], {"HOME": str(home)}  # for its logs
    if library == "go":
        return [str(go_program("rocketmq", ".", "go-rocketmq", patient="github.com/apache/rocketmq-client-go/v2"))], {}
    if library == "node":
        script = CLIENTS / "node-rocketmq" / "probe.js"
        return [tool_of_debian("node", "nodejs"), str(script)], {"NODE_PATH": str(npm_modules("node-rocketmq"))}
    jar_set = CLIENT_JARS[library.removeprefix("java-")]
    settings = {"rocketmq.client.rebalance.waitInterval": "2000"}
    return java(compiled(CLIENTS / "java" / "rocketmq", jar_set), "Probe", home, properties=settings), {}


def outcome(word: Any) -> Failure | None:
    assert word == "ok" or isinstance(word, dict), word
    return None if word == "ok" else Failure(word["class"], word["code"], word["text"])


class RocketmqProbe:
    """One library's program, for one name server."""

    def __init__(self, library: str, home: Path, name_server: str) -> None:
        self.library = library
        self.name_server = name_server
        self._program = Answering(library, home, lambda: program(library, home))

    def send(self, topic: str, *, count: int, run: str = "m", mode: str = "sync", **more: object) -> Sent:
        answer = self._program.ask(do="send", namesrv=self.name_server, topic=topic, run=run, count=count, mode=mode, **more)
        seen, free = ([outcome(word) for word in answer[name]] for name in ("seen", "free"))
        return Sent(seen, free, answer["free_over_s"], answer["free_before"], answer["elapsed_s"])

    def consume(self, topic: str, group: str, *, expected: int, within: int = 240, **more: object) -> Consumed:
        orders = {"topic": topic, "group": group, "expected": expected, "within": within, **more}
        return Consumed(**self._program.ask(within + 60.0, do="consume", namesrv=self.name_server, **orders))

    def close(self) -> None:
        self._program.close()

    def __repr__(self) -> str:
        return repr(self._program)
