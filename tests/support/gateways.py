"""The gateway as its users have it: the installed `sluice` command in a process of its own, spoken to over HTTP and the command line."""

from __future__ import annotations

import http.client
import io
import json
import os
import shlex
import signal
import ssl
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, chdir, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest.mock import patch
from urllib.parse import quote

import yaml
from prometheus_client.samples import Sample

from support.expositions import families
from support.log_calls import faults_of_lines
from support.processes import HANG_S, LOOPBACK, Process, free_ports, resident_bytes, tree, wait_until
from support.supervision import Supervisor


def command() -> list[str]:
    """`sluice`: what SLUICE_COMMAND says, which in a test run is the source tree unless it is for what is installed; or the console script
    beside this interpreter.
    """
    given = os.environ.get("SLUICE_COMMAND")
    if given:
        return shlex.split(given)
    script = Path(sys.executable).with_name("sluice")
    if not script.exists():
        raise FileNotFoundError(f"{script} is not there: `make install` puts it there")
    return [str(script)]


def run_here(words: Sequence[str], environment: Mapping[str, str], directory: Path) -> subprocess.CompletedProcess[str]:
    """Run `sluice WORDS` in this process, as if it had been started in `directory`, with no terminal and nothing to read."""
    from cli.main import main

    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with ExitStack() as meanwhile:
        meanwhile.enter_context(patch.dict(os.environ, environment))
        meanwhile.enter_context(patch.object(sys, "stdin", io.StringIO()))
        for change in (chdir(directory), redirect_stdout(out), redirect_stderr(err)):
            meanwhile.enter_context(change)
        code = main(words)
    said = [stream.buffer.getvalue().decode() for stream in (out, err)]
    return subprocess.CompletedProcess(["sluice", *words], code, *said)


@dataclass(frozen=True)
class Answer:
    """An HTTP answer of the admin API."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def etag(self) -> str:
        return self.headers["etag"]


class OpenThings(NamedTuple):
    """Of a process and those it has started."""

    files: int  # descriptors that are no sockets
    sockets: int
    threads: int


# More than at the first: rolled files, a pool of threads that have had work, admin clients that keep their connection.
ALLOWED: Final = {"files": 12, "sockets": 24, "threads": 24}


def opened(pid: int) -> list[str]:
    """What each descriptor of the process and those it has started stands for; one that closes meanwhile is left out, and no other."""
    targets = []
    for process in tree(pid):
        with suppress(OSError):  # it has ended meanwhile
            for link in Path(f"/proc/{process}/fd").iterdir():
                with suppress(OSError):
                    targets.append(str(link.readlink()))
    return targets


def threads_of(pid: int) -> list[str]:
    """The names of the threads of the process and those it has started."""
    names = []
    for process in tree(pid):
        with suppress(OSError):
            for task in Path(f"/proc/{process}/task").iterdir():
                with suppress(OSError):
                    names.append((task / "comm").read_text().strip())
    return names


def open_things(pid: int) -> OpenThings:
    targets = opened(pid)
    sockets = sum(target.startswith("socket:") for target in targets)
    return OpenThings(len(targets) - sockets, sockets, len(threads_of(pid)))


def open_names(pid: int) -> str:
    """What is open, for a message: each thing once with its count, and the connections with their ends and states."""
    names = Counter([*(target.partition(":")[0] for target in opened(pid)), *(f"thread {name}" for name in threads_of(pid))])
    ours: list[str] = []
    with suppress(FileNotFoundError):  # `make unit` does not install ss
        connections = subprocess.run(["ss", "-tanp"], capture_output=True, text=True, check=False, timeout=HANG_S).stdout.splitlines()
        ours = [line for line in connections if f"pid={pid}," in line]
    return "\n".join([*(f"{count} {name}" for name, count in names.most_common()), *ours])


class Gateway:
    """One gateway with its own configuration, state and log in `directory`. A context manager; leaving it demands an orderly exit 0."""

    def __init__(
        self,
        directory: Path,
        listeners: Sequence[Mapping[str, object]],
        rules: Sequence[Mapping[str, object]],
        settings: Mapping[str, object] | None = None,
        until: str = "/readyz",
        supervisor: Supervisor | None = None,
        under: Sequence[str] = (),
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.config = directory / "sluice.yaml"
        self.rules_file = directory / "limits.yaml"
        self.admin_port = free_ports(1)[0]
        self.trusted: ssl.SSLContext | None = None  # where the admin port speaks TLS: what its certificate is checked with
        self.write_rules(rules)
        configuration: dict[str, object] = {
            "version": 1,
            "gateway": {"name": "end-to-end", "state_directory": "state"},
            "listeners": listeners,
            "admin": {"bind": f"{LOOPBACK}:{self.admin_port}"},
            "access_log": {"directory": "access-log", "roll_every": "5min", "roll_size": "128MiB"},
            "disk": {"low_watermark": "1MiB"},  # whatever else fills the disk of the machine that tests
            "rules_file": "limits.yaml",
        }
        configuration |= settings or {}
        self.config.write_text(yaml.safe_dump(configuration, sort_keys=False))
        self.under = under  # a program that it is started by, and which becomes it: `nice`, `strace -D`
        self.supervisor = supervisor  # holds the listening sockets, where one does
        self.until = until  # what answers 200 once it is up; /livez where there is no broker to be ready for
        self._process: Process | None = None
        self._at_first = OpenThings(0, 0, 0)
        self._starts = 0

    def write_rules(self, rules: Sequence[Mapping[str, object]]) -> None:
        written_out = json.loads(json.dumps(rules))  # values used twice would become YAML aliases, which the gateway refuses
        self.rules_file.write_text(yaml.safe_dump({"rules": written_out}, sort_keys=False))

    def protect_admin(self, certificate: Path, key: Path, trusted: ssl.SSLContext) -> None:
        """Let the admin port speak TLS. Before the start."""
        configuration = yaml.safe_load(self.config.read_text())
        configuration["admin"]["tls"] = {"certificate": str(certificate), "key": str(key)}
        self.config.write_text(yaml.safe_dump(configuration, sort_keys=False))
        self.trusted = trusted

    # ---- its life ----------------------------------------------------------------------------------------------------

    def start(self, *, within: float = HANG_S) -> float:
        """Start and wait until it is up (`until`). Returns the seconds from the start of the process to that. Kills one that is not up."""
        started = time.monotonic()
        self._process = self._begin()
        try:
            self._process.wait_until(lambda: self.answers(self.until), within=within, what=f"sluice run: {self.until}")
        except BaseException:
            self.kill()
            raise
        took = time.monotonic() - started
        self._at_first = open_things(self.process.pid)
        return took

    def _begin(self) -> Process:
        self._starts += 1
        argv = [*self.under, *command(), "run", "-c", str(self.config)]
        held: Sequence[int] = ()
        if self.supervisor is not None:
            argv, held = self.supervisor.command(argv), self.supervisor.descriptors
        return Process(argv, log=self.directory / f"stderr-{self._starts}.log", cwd=self.directory, pass_fds=held)

    def replace(self, *, within: float = HANG_S) -> str:
        """Start the next process beside this one, which it takes over from (`gateway.takeover`); the log of the one that ended with 0."""
        before, self._process = self.process, self._begin()
        self._process.wait_until(lambda: '"event": "started"' in self.log(), within=within, what="the next process to serve")
        code = before.popen.wait(within)
        assert code == 0, f"the process before ended with {code}\n{before.output()[-3000:]}"
        self._at_first = open_things(self.process.pid)
        return before.output()

    def begin_next(self) -> Process:
        """Start the next process beside this one, and look after it yourself."""
        return self._begin()

    def try_to_replace(self, *, within: float = HANG_S) -> tuple[int, str]:
        """Start a next process that does not come up; its exit code and its log."""
        failing = self._begin()
        return failing.popen.wait(within), failing.output()

    @property
    def process(self) -> Process:
        assert self._process is not None, "not started"
        return self._process

    def stop(self, *, within: float = HANG_S) -> int:
        """SIGTERM; returns the exit code."""
        self.process.popen.send_signal(signal.SIGTERM)
        try:
            return self.process.popen.wait(within)
        except subprocess.TimeoutExpired:
            self.process.stop(grace=0, number=signal.SIGKILL)
            raise AssertionError(f"sluice did not end within {within:g} s after SIGTERM\n{self.log()[-3000:]}") from None

    def kill(self) -> None:
        self.process.stop(grace=0, number=signal.SIGKILL)

    def alive(self) -> bool:
        return self._process is not None and self._process.alive()

    def log(self) -> str:
        """Everything the running gateway has written to stderr so far (and to stdout, which should stay empty)."""
        return self.process.output()

    def leaks(self) -> str:
        """What is open now that neither was when it had started nor belongs to a client (docs/design/reliability.md I10); "" for nothing.

        Where the admin API does not let this test in any more, sockets are left out: how many clients have is not known.
        """
        first, now = self._at_first, open_things(self.process.pid)
        found = {"files": now.files - first.files, "threads": now.threads - first.threads}
        try:
            status = self.request("GET", "/v1/status")
        except OSError:  # the token's file is gone
            status = Answer(0, {}, "")
        if status.status == 200:
            found["sockets"] = now.sockets - first.sockets - 2 * status.json["connections"]  # a client's and its broker's
        return ", ".join(f"{more} {name}" for name, more in found.items() if more > ALLOWED[name])

    def _expect_no_leak(self) -> None:
        """Clients may still be there, and what they have is allowed for. Of a gateway that is not up any more there is nothing to say."""
        try:
            wait_until(
                lambda: not self.answers(self.until) or not self.leaks(), within=60, what="what requests and clients opened to be closed"
            )
        except TimeoutError as error:
            raise AssertionError(f"{error}: more than at the first by {self.leaks()}\n{open_names(self.process.pid)}") from None

    def resident_bytes(self) -> int:
        return resident_bytes(self.process.pid)

    def __enter__(self) -> Gateway:
        self.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if not self.alive():
            return
        if kind is not None:
            self.kill()
            return
        try:
            self._expect_no_leak()
        except BaseException:
            self.kill()
            raise
        code = self.stop()
        assert code == 0, f"sluice ended with {code} after SIGTERM\n{self.log()[-3000:]}"
        assert not faults_of_lines(self.log()), "not in docs/reference/log_events.py"

    # ---- its admin API -----------------------------------------------------------------------------------------------

    @property
    def admin(self) -> str:
        return f"http://{LOOPBACK}:{self.admin_port}"

    @property
    def token(self) -> str:
        return (self.directory / "state" / "admin.token").read_text().strip()

    def request(self, method: str, path: str, body: object = None, *, authorised: bool = True, **headers: str) -> Answer:
        """One request on a connection of its own. Header names are written with underscores: `If_Match=...`."""
        connection = (
            http.client.HTTPConnection(LOOPBACK, self.admin_port, timeout=HANG_S)
            if self.trusted is None
            else http.client.HTTPSConnection(LOOPBACK, self.admin_port, timeout=HANG_S, context=self.trusted)
        )
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if authorised:
            sent["Authorization"] = f"Bearer {self.token}"
        content = None
        if body is not None:
            content = json.dumps(body)
            sent.setdefault("Content-Type", "application/json")
        try:
            connection.request(method, path, body=content, headers=sent)
            response = connection.getresponse()
            return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, response.read().decode())
        finally:
            connection.close()

    def answers(self, path: str) -> bool:
        try:
            return self.request("GET", path, authorised=False).status == 200
        except (OSError, http.client.HTTPException):
            return False

    def get(self, path: str) -> Any:
        answer = self.request("GET", path)
        assert answer.status == 200, answer
        return answer.json

    def put(self, path: str, body: object) -> Answer:
        """Change something as a careful operator does: read, then write under the version that was read."""
        seen = self.request("GET", path)
        assert seen.status == 200, seen
        answer = self.request("PUT", path, body, If_Match=seen.etag)
        assert 200 <= answer.status < 300, answer
        return answer

    def port(self, listener: str) -> int:
        """The port a listener really has (the configuration may say 0)."""
        bind = next(str(one["bind"]) for one in self.get("/v1/listeners")["items"] if one["name"] == listener)
        return int(bind.rpartition(":")[2])

    def amqp_url(self, listener: str = "rabbit") -> str:
        return f"amqp://guest:guest@{LOOPBACK}:{self.port(listener)}/%2F"

    def samples(self) -> list[Sample]:
        """Every sample of /metrics, as the reference implementation's parser reads it, and as the table of metrics says."""
        answer = self.request("GET", "/metrics")
        assert answer.status == 200, answer
        return [sample for family in families(answer.text) for sample in family.samples]

    def messages_by_fate(self, protocol: str, topic: str, operation: str = "produce") -> dict[str, float]:
        """What became of a topic's messages, from one scrape: received, forwarded, refused, dropped, abandoned, waiting."""
        names = {f"sluice_messages_{fate}_total": fate for fate in ("received", "forwarded", "refused", "dropped", "abandoned")}
        names["sluice_messages_waiting"] = "waiting"
        fates = dict.fromkeys(names.values(), 0.0)
        for sample in self.samples():
            wanted = {"topic": topic, "protocol": protocol, "operation": operation}
            if sample.name in names and wanted.items() <= sample.labels.items():
                fates[names[sample.name]] += sample.value
        return fates

    # ---- its command line --------------------------------------------------------------------------------------------

    def cli(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run `sluice WORDS` against this gateway; `check` demands exit code 0.

        In this process, which saves most of what a verb costs (0.3 CPU-s): that the command works as a program, test_first_steps asks.
        """
        environment = {
            "SLUICE_ADMIN": self.admin,
            "SLUICE_TOKEN_FILE": str(self.directory / "state" / "admin.token"),
            "NO_COLOR": "1",
        }
        done = run_here(words, environment, self.directory)
        assert not check or done.returncode == 0, f"sluice {' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    def __repr__(self) -> str:
        return f"<Gateway {self._process} {self.admin}>"


def amqp_listener(upstream: str, **more: object) -> dict[str, object]:
    """A listener for RabbitMQ on a free port."""
    return {"name": "rabbit", "protocol": "amqp", "bind": f"{LOOPBACK}:0", "upstream": upstream, **more}


def limit_path(protocol: str, *words: str) -> str:
    """`/v1/limits/...` of a topic: one word for RocketMQ; vhost, exchange and routing key for AMQP."""
    return f"/v1/limits/{protocol}/" + "/".join(quote(word, safe="") for word in words)


StartGateway = Callable[..., Gateway]  # the fixture `start_gateway`: listeners, rules, settings by name
