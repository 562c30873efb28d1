"""What the demos share: a gateway with its command line, promises that must hold, waiting without a clock, and how a story ends."""

from __future__ import annotations

import http.client
import io
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))  # the brokers and clients of the tests play here too

from support.processes import Process  # noqa: E402  -- needs the path set above

STARTED = time.monotonic()
STANDSTILL_S = 300  # of a machine that has many times the work it can do, and a guess
SLUICE = shlex.split(os.environ.get("SLUICE_COMMAND", "")) or [str(Path(sys.executable).with_name("sluice"))]  # as support.gateways


def say(text: str = "") -> None:
    print(text, flush=True)


class PromiseError(Exception):
    """sluice did not do what it promises on any machine."""


class MachineError(Exception):
    """The machine could not show it, and sluice is not why."""


def expect(what: str, *, held: bool) -> None:
    """A promise of the story; the demo fails where it does not hold."""
    if not held:
        raise PromiseError(what)


def wait_while_it_moves(done: Callable[[], bool], progress: Callable[[], object], what: str) -> None:
    """Wait as long as a slow machine needs: MachineError, naming `what`, where `progress` has been the same for `STANDSTILL_S`."""
    seen, since = progress(), time.monotonic()
    while not done():
        time.sleep(0.1)
        if (now := progress()) != seen:
            seen, since = now, time.monotonic()
        elif time.monotonic() - since > STANDSTILL_S:
            raise MachineError(f"{what}: nothing has moved for {STANDSTILL_S} s, at {now}")


class Gateway:
    """`sluice run`, and the `sluice` command pointed at it. `command` is how that is called; the admin API is at `admin`."""

    def __init__(
        self,
        scratch: Path,
        listeners: list[dict[str, object]],
        rules: list[dict[str, object]],
        *,
        command: list[str] = SLUICE,
        admin: str = "127.0.0.1:0",
    ) -> None:
        scratch.mkdir(parents=True, exist_ok=True)
        self.command = command
        self.log = scratch / "access-log"
        config = scratch / "sluice.yaml"
        config.write_text(json.dumps(_configuration(scratch, listeners, rules, admin), indent=1))  # JSON is YAML too
        self.process = Process([*command, "run", "-c", config], log=scratch / "gateway.log")
        self.process.wait_until(lambda: "started" in self._events(), within=STANDSTILL_S, what="the gateway")
        self.admin = self._events()["admin_listening"]["bind"]
        token = scratch / "state" / "admin.token"
        self.environment = os.environ | {"SLUICE_ADMIN": f"http://{self.admin}", "SLUICE_TOKEN_FILE": str(token)}
        self.token = token.read_text().strip()
        self.address = self._events()["listening"]["bind"]

    @property
    def url(self) -> str:
        """For pika, which waits as long as the demo does."""
        return f"amqp://guest:guest@{self.address}/?heartbeat=0&socket_timeout={STANDSTILL_S}&stack_timeout={STANDSTILL_S}"

    def _events(self) -> dict[str, dict[str, Any]]:
        """The gateway's log so far, the last line of each event."""
        return {entry["event"]: entry for entry in self.events()}

    def events(self) -> list[dict[str, Any]]:
        """The gateway's log so far."""
        return json_lines(self.process.output())

    def get(self, path: str) -> Any:
        """The answer of the admin API."""
        connection = http.client.HTTPConnection(self.admin, timeout=STANDSTILL_S)
        connection.request("GET", path, headers={"Authorization": f"Bearer {self.token}"})
        with connection.getresponse() as answer:
            body = answer.read()
        if answer.status != HTTPStatus.OK:
            raise RuntimeError(f"GET {path}: {answer.status} {body[:500]!r}")
        return json.loads(body)

    def sluice(self, *words: str, show: bool = True, expect: tuple[int, ...] = (0,), before_shown: Callable[[], None] | None = None) -> str:
        """Run a `sluice` command as a user would, and show it. `before_shown` is called when it has ended; it is shown after that."""
        asked = f"\n  $ sluice {shlex.join(words)}"
        if show and before_shown is None:
            say(asked)
        command = [*self.command, "--timeout", f"{STANDSTILL_S}s", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=self.environment)
        if done.returncode not in expect:
            raise RuntimeError(f"sluice {' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        if before_shown is not None:
            before_shown()
            say(asked)
        if show:
            say("\n".join("    " + line for line in (done.stdout + done.stderr).splitlines()))
        return done.stdout

    def stop(self) -> None:
        code = self.process.stop(grace=STANDSTILL_S)
        if code != 0:
            raise RuntimeError(f"the gateway ended with {code}:\n{self.process.output()[-2000:]}")


def _configuration(scratch: Path, listeners: list[dict[str, object]], rules: list[dict[str, object]], admin: str) -> dict[str, object]:
    return {
        "version": 1,
        "gateway": {"name": "demo", "state_directory": str(scratch / "state"), "watchdog": "off"},
        "listeners": [{"handshake_timeout": f"{STANDSTILL_S}s", **listener} for listener in listeners],
        "limiter": {"on_rejection": "judge"},  # the demo counts to the message
        "admin": {"bind": admin},
        "access_log": {"directory": str(scratch / "access-log"), "roll_every": "1min", "roll_size": "128MiB"},
        "disk": {"low_watermark": "256MiB"},  # all of it is removed at the end, and takes less: a disk that is rather full is enough
        "log": {"level": "info", "format": "json"},
        "rules": rules,
    }


Tell = Callable[[Path, list[str]], None]


def json_lines(output: str) -> list[Any]:
    """The whole lines among what a program has written; beside them Python and libraries may warn of something."""
    return [json.loads(line) for line in output.split("\n")[:-1] if line.startswith("{")]


def stays() -> bool:
    """Whether the demo goes on at its end until a person ends it: `make demo STAY=1`."""
    return os.environ.get("STAY", "") not in {"", "0"}


def sum_up(summary: list[str]) -> None:
    """Say the summary so far, which is then empty."""
    say(f"\nSummary ({time.monotonic() - STARTED:.0f} s)")
    for line in summary:
        say(f"  * {line}")
    summary.clear()


def perform(tell: Tell, missing: tuple[type[Exception], ...]) -> int:
    """Tell a story in a scratch folder, then its summary. The exit code: 0, or 1 and what failed.

    The errors in `missing` say by themselves what has to be installed.
    """
    for ending in (signal.SIGTERM, signal.SIGHUP):  # a closed terminal, or `timeout`: what was started is stopped as after Ctrl+C
        signal.signal(ending, lambda number, _: sys.exit(128 + number))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal of another character set has no lines for the tables
    summary: list[str] = []
    with tempfile.TemporaryDirectory(prefix="sluice-demo-") as folder:
        scratch = Path(folder)
        try:
            tell(scratch, summary)
        except missing as error:
            say(f"\nThe demo failed: {error}")
            return 1
        except KeyboardInterrupt:
            say("\nEnded by Ctrl+C; all that it has started is stopped.")
            return 130
        except Exception as error:
            traceback.print_exc()
            for log in sorted(scratch.glob("**/gateway.log")):
                say(f"--- the end of {log.name}:")
                say("\n".join(log.read_text(errors="replace").splitlines()[-15:]))
            say(f"\nThe demo failed: {error}\n{_advice(error)}")
            return 1
    if summary:
        sum_up(summary)
    return 0


def _advice(error: Exception) -> str:
    if isinstance(error, PromiseError):
        return "This holds on any machine, however slow: it is a fault of sluice. Please report it, with all that stands above."
    if isinstance(error, MachineError):
        return "Where the machine is short of memory, disk or time (`uptime`, `free -m`, `df -h`), start the demo again when it has more."
    return "What has ended or failed stands above, with its last words. The demo can be started again: what is installed already stays."
