"""What the demos share: a gateway with its command line, promises that must hold, and how a story ends."""

from __future__ import annotations

import contextlib
import http.client
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

SLUICE = shlex.split(os.environ.get("SLUICE_COMMAND", "")) or [str(Path(sys.executable).with_name("sluice"))]  # as support.gateways


def say(text: str = "") -> None:
    print(text, flush=True)


def expect(what: str, *, held: bool) -> None:
    """A promise of the story; the demo fails where it does not hold."""
    if not held:
        raise RuntimeError(f"the demo expected: {what}")


class Gateway:
    """`sluice run` with its admin API on a free port, and the `sluice` command pointed at it."""

    def __init__(self, scratch: Path, listeners: list[dict[str, object]], rules: list[dict[str, object]]) -> None:
        scratch.mkdir(parents=True, exist_ok=True)
        self.log = scratch / "access-log"
        config = scratch / "sluice.yaml"
        config.write_text(json.dumps(_configuration(scratch, listeners, rules), indent=1))  # JSON is YAML too
        self.process = Process([*SLUICE, "run", "-c", config], log=scratch / "gateway.log")
        self.process.wait_until(lambda: "started" in self._events(), within=60, what="the gateway")
        self.admin = self._events()["admin_listening"]["bind"]
        token = scratch / "state" / "admin.token"
        self.environment = os.environ | {"SLUICE_ADMIN": f"http://{self.admin}", "SLUICE_TOKEN_FILE": str(token)}
        self._authorization = f"Bearer {token.read_text().strip()}"
        self.address = self._events()["listening"]["bind"]

    def _events(self) -> dict[str, dict[str, Any]]:
        """The gateway's log so far, the last line of each event."""
        return {entry["event"]: entry for entry in self.events()}

    def events(self) -> list[dict[str, Any]]:
        """The gateway's log so far."""
        return [json.loads(line) for line in self.process.output().splitlines()]

    def get(self, path: str) -> Any:
        """The answer of the admin API."""
        connection = http.client.HTTPConnection(self.admin, timeout=10)
        connection.request("GET", path, headers={"Authorization": self._authorization})
        with connection.getresponse() as answer:
            body = answer.read()
        if answer.status != HTTPStatus.OK:
            raise RuntimeError(f"GET {path}: {answer.status} {body[:500]!r}")
        return json.loads(body)

    def sluice(self, *words: str, show: bool = True, expect: tuple[int, ...] = (0,)) -> str:
        """Run a `sluice` command as a user would, and show it."""
        if show:
            say(f"\n  $ sluice {shlex.join(words)}")
        done = subprocess.run([*SLUICE, *words], capture_output=True, text=True, check=False, timeout=170, env=self.environment)
        if done.returncode not in expect:
            raise RuntimeError(f"sluice {' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        if show:
            say("\n".join("    " + line for line in (done.stdout + done.stderr).splitlines()))
        return done.stdout

    def stop(self) -> None:
        code = self.process.stop(grace=40)
        if code != 0:
            raise RuntimeError(f"the gateway ended with {code}:\n{self.process.output()[-2000:]}")


def _configuration(scratch: Path, listeners: list[dict[str, object]], rules: list[dict[str, object]]) -> dict[str, object]:
    return {
        "version": 1,
        "gateway": {"name": "demo", "state_directory": str(scratch / "state")},
        "listeners": listeners,
        "admin": {"bind": "127.0.0.1:0"},
        "access_log": {"directory": str(scratch / "access-log"), "roll_every": "1min", "roll_size": "128MiB"},
        "disk": {"low_watermark": "256MiB"},  # all of it is removed at the end, and takes less: a disk that is rather full is enough
        "log": {"level": "info", "format": "json"},
        "rules": rules,
    }


Tell = Callable[[Path, list[str]], None]


def stays() -> bool:
    """Whether the demo goes on at its end until a person ends it: `make demo STAY=1`."""
    return os.environ.get("STAY", "") not in {"", "0"}


def stay(gateway: Gateway, token: Path) -> None:
    """Say where the dashboard is, and wait until a person ends it."""
    say(f"\nThe dashboard: http://{gateway.admin}/")
    say(f"Sign in with this token: {token.read_text().strip()}")
    say("Traffic goes on, with a flood. Ctrl+C ends the demo.")
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            time.sleep(1)
    say("\nIt ends.")


def perform(target: str, tell: Tell, missing: tuple[type[Exception], ...]) -> int:
    """Tell a story in a scratch folder, then its summary. The exit code: 0, or 1 and what failed.

    `target` is what `make` calls it; the errors in `missing` say by themselves what has to be installed.
    """
    for ending in (signal.SIGTERM, signal.SIGHUP):  # a closed terminal, or `timeout`: what was started is stopped as after Ctrl+C
        signal.signal(ending, lambda number, _: sys.exit(128 + number))
    started = time.monotonic()
    summary: list[str] = []
    with tempfile.TemporaryDirectory(prefix="sluice-demo-") as folder:
        scratch = Path(folder)
        try:
            tell(scratch, summary)
        except missing as error:
            say(f"\nThe demo failed: {error}")
            return 1
        except Exception as error:
            traceback.print_exc()
            say(f"\nThe demo failed: {error}")
            for log in sorted(scratch.glob("**/gateway.log")):
                say(f"--- the end of {log.name}:")
                say("\n".join(log.read_text(errors="replace").splitlines()[-15:]))
            say(f"To mend it: `make clean {target}` sets everything up anew; the README says what has to be there.")
            return 1
    say(f"\nSummary ({time.monotonic() - started:.0f} s)")
    for line in summary:
        say(f"  * {line}")
    if target == "demo" and not stays() and sys.stdout.isatty():
        say("\nThe gateway has a dashboard, at its admin port: `make demo STAY=1` leaves all of this up and says its address.")
    return 0
