"""A headless Chromium, spoken to over its DevTools protocol on two pipes: one page, its errors, and what it asked the network for."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

WAIT_S: Final = 240  # seconds; a start on a busy machine took 6 (2026-11)
FLAGS: Final = (  # no first-run work, no updater, nothing of its own to fetch; the sandbox needs rights that a container does not give
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)


class Browser:
    """One page. `errors`: console errors, exceptions and what the page's policy blocked. `requests`: the URLs it asked for, in order."""

    def __init__(self, reader: int, writer: int) -> None:
        self._reader, self._writer = reader, writer
        self._data = b""
        self._number = 0
        self._session: str | None = None
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.events: list[str] = []

    def ask(self, method: str, **params: Any) -> Any:
        """Send a command and wait for its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._writer, data) :]
        while True:
            found = self._receive()
            if found.get("id") == self._number:
                assert "error" not in found, f"{method}: {found['error']}"
                return found["result"]

    def _receive(self) -> dict[str, Any]:
        until = time.monotonic() + WAIT_S
        while b"\0" not in self._data:
            ready, _, _ = select.select([self._reader], [], [], max(0.0, until - time.monotonic()))
            assert ready, f"Chromium said nothing for {WAIT_S} s"
            read = os.read(self._reader, 1 << 20)
            assert read, "Chromium has gone"
            self._data += read
        line, _, self._data = self._data.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        self._note(found.get("method", ""), found.get("params", {}))
        return found

    def _note(self, event: str, params: dict[str, Any]) -> None:
        self.events.append(event)
        if event == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif event == "Runtime.exceptionThrown":
            self.errors.append(str(params["exceptionDetails"]))
        elif event == "Runtime.consoleAPICalled" and params["type"] in {"error", "warning"}:
            self.errors.append(str(params["args"]))
        elif event == "Log.entryAdded" and params["entry"]["level"] in {"error", "warning"}:
            self.errors.append(params["entry"]["text"])

    def attach(self) -> None:
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def open(self, file: Path, *, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        """Open a file in a window of this size; returns once it is loaded."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.errors.clear()
        self.requests.clear()
        self.events.clear()
        self.ask("Page.navigate", url=file.as_uri())
        while "Page.loadEventFired" not in self.events:
            self._receive()

    def value(self, script: str) -> Any:
        """What an expression of JavaScript gives; a promise is waited for."""
        found = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def picture(self, file: Path) -> None:
        """A PNG of what is in the window."""
        file.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"]))


def chromium_program() -> str:
    """Debian's Chromium without what draws windows for people: the same pages for half of the processor time."""
    program = shutil.which("chromium-headless-shell")
    assert program is not None, "no chromium-headless-shell: run `sh deploy/system-packages.sh chromium`"
    return program


@contextmanager
def chromium(home: Path) -> Iterator[Browser]:
    """A Chromium that keeps its profile in `home`."""
    program = chromium_program()
    theirs, writer = os.pipe()
    reader, answers = os.pipe()
    words = ["bash", "-c", f'exec "$@" 3<&{theirs} 4>&{answers}', "bash", program, *FLAGS, f"--user-data-dir={home / 'profile'}"]
    process = subprocess.Popen(
        words,
        pass_fds=(theirs, answers),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(home)},
    )
    os.close(theirs)
    os.close(answers)
    try:
        browser = Browser(reader, writer)
        browser.attach()
        yield browser
    finally:
        os.close(writer)  # Chromium ends when its pipe does
        os.close(reader)
        try:
            process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
