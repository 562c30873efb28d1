"""Programs under a pseudo-terminal, as a person at a shell has them: what they show, and what is typed at them."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from support.processes import HANG_S

READ_BYTES = 65536  # bytes; one read of the terminal
ROWS = 40


class Terminal:
    """One program whose stdin, stdout and stderr are a terminal. A context manager; leaving it ends the program."""

    def __init__(
        self,
        argv: Sequence[str | Path],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        columns: int = 80,
        rows: int = 40,
    ) -> None:
        self.argv = [str(word) for word in argv]
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
        self.settings_before = self.settings()  # the program's start may be over before anybody asks
        self.popen = subprocess.Popen(
            self.argv, stdin=slave, stdout=slave, stderr=slave, cwd=cwd, start_new_session=True,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "", **(env or {})},
        )  # fmt: skip
        os.close(slave)
        self.text = ""  # all that was shown so far, with "\n" as line ends

    def read_until(self, wanted: str, *, after: int = 0) -> str:
        """Read until `wanted` is shown behind position `after`; returns all of the text. Raises AssertionError where the program hangs."""
        deadline = time.monotonic() + HANG_S
        while wanted not in self.text[after:]:
            if not self._read(max(0.0, deadline - time.monotonic())):
                raise AssertionError(f"{wanted!r} is not shown by {' '.join(self.argv)}:\n{self.text}")
        return self.text

    def type(self, text: str) -> None:
        """Type at the program."""
        os.write(self._master, text.encode())

    def resize(self, columns: int, rows: int = ROWS) -> None:
        """Another size, as a window that is dragged: the kernel sends SIGWINCH."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def settings(self) -> list[object]:
        """The terminal's attributes: whether it echoes, whether it waits for whole lines."""
        return termios.tcgetattr(self._master)[:4]

    def answer(self, question: str, line: str) -> None:
        """Wait for a question, and type a line."""
        self.read_until(question, after=getattr(self, "_answered", 0))
        self._answered = len(self.text)
        os.write(self._master, line.encode() + b"\n")

    def end(self) -> int:
        """Read until the program ends; its exit code."""
        deadline = time.monotonic() + HANG_S
        while self._read(max(0.0, deadline - time.monotonic())):
            pass
        return self.popen.wait(max(0.1, deadline - time.monotonic()))

    def _read(self, patience: float) -> bool:
        """Read once; False at the end, and when nothing came in time."""
        if not select.select([self._master], [], [], patience)[0]:
            return False
        try:
            data = os.read(self._master, READ_BYTES)
        except OSError:  # EIO: nobody has the other side open any more
            return False
        self.text += data.decode(errors="replace").replace("\r\n", "\n")
        return bool(data)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGTERM)
            os.killpg(self.popen.pid, signal.SIGHUP)  # a shell at its prompt ignores the other
        try:
            self.popen.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self.popen.pid, signal.SIGKILL)
            self.popen.wait()
        os.close(self._master)
