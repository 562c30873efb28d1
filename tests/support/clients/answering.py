"""A program that reads an order a line and answers each with a line of JSON, so that one start (a JVM, a Ruby, a Node) serves many tests.

An order is `name=value name=value ...`. A fault of the program itself comes back as `{"broken": its trace}`.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import tempfile
import threading
from typing import TYPE_CHECKING, Any

from support.processes import HANG_S

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


class HungError(AssertionError):
    """The program has no answer."""


class Answering:
    """One such program, started at the first order and again after it was lost. `start_with` gives its command and environment."""

    def __init__(self, name: str, home: Path, start_with: Callable[[], tuple[list[str], Mapping[str, str]]]) -> None:
        self.name = name
        self.home = home
        self._start_with = start_with
        self._popen: subprocess.Popen[str] | None = None
        self._scratch: Any = None
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread()
        self._complaints = ""  # of the program before this one

    def _start(self) -> subprocess.Popen[str]:
        command, environment = self._start_with()
        self.home.mkdir(parents=True, exist_ok=True)
        self._scratch = tempfile.TemporaryFile("w+")  # noqa: SIM115  -- closed with the program; a pipe could fill and stall it
        popen = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._scratch, text=True,
            env=os.environ | dict(environment), cwd=self.home,
        )  # fmt: skip
        lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=read_lines, args=(popen.stdout, lines), daemon=True)
        self._reader.start()
        self._popen, self._lines = popen, lines
        return popen

    def ask(self, within: float = HANG_S, /, **order: object) -> dict[str, Any]:
        """Raises AssertionError, with what the program said, where it fails, ends or has no answer within that many seconds."""
        popen = self._popen
        if popen is None or popen.poll() is not None:
            self.close()
            popen = self._start()
        assert popen.stdin is not None
        words = {name: int(value) if isinstance(value, bool) else value for name, value in order.items()}
        line = " ".join(f"{name}={value}" for name, value in words.items())
        popen.stdin.write(line + "\n")
        popen.stdin.flush()
        try:
            answer = self._lines.get(timeout=within)
        except queue.Empty:
            self.close()
            raise HungError(f"{self.name} had no report within {within:g} s for: {line}\n{self._complaints}") from None
        if not answer:
            self.close()
            raise AssertionError(f"{self.name} ended with {popen.returncode} at: {line}\n{self._complaints}")
        report: dict[str, Any] = json.loads(answer)
        assert "broken" not in report, f"{self.name}: {line}\n{report['broken']}"
        return report

    def close(self) -> None:
        popen = self._popen
        if popen is None:
            return
        if popen.poll() is None and popen.stdin is not None:
            popen.stdin.close()
            try:
                popen.wait(2)
            except subprocess.TimeoutExpired:
                popen.kill()
                popen.wait(10)
        self._reader.join(5)
        if popen.stdout is not None:
            popen.stdout.close()
        self._scratch.seek(0)
        self._complaints = self._scratch.read()[-3000:]
        self._scratch.close()
        self._popen = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {'idle' if self._popen is None else self._popen.pid}>"


def read_lines(source: Any, lines: queue.Queue[str]) -> None:
    """Hand over every line; an empty one at the end."""
    for line in source:
        lines.put(line)
    lines.put("")
