"""The terminal as a screen that is drawn again and again: `--watch` and `sluice top`. Plain ANSI, so it works over ssh.

Whatever ends the program (ctrl-c, SIGTERM, SIGHUP, an exception), the terminal is left as it was.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final

from cli.output import clean
from cli.tables import cell_width
from common.failures import FAILED

ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[?7l"  # the alternate screen, no cursor, and lines cut at its edge
LEAVE: Final = "\x1b[?7h\x1b[?25h\x1b[?1049l"
HOME: Final = "\x1b[H"
CLEAR_LINE: Final = "\x1b[K"
CLEAR_BELOW: Final = "\x1b[J"
ENDING: Final = (signal.SIGTERM, signal.SIGHUP)


class SignalledError(SystemExit):
    """SIGTERM or SIGHUP: leave by way of every `finally`, with the shell's code for it."""


def _leave(number: int, _: FrameType | None) -> None:
    raise SignalledError(128 + number)


class Screen:
    """Draws frames over one another without clearing in between, so nothing flickers."""

    def __init__(self, keys: int | None) -> None:
        self._keys = keys  # the descriptor that keys come from; None: none do
        self._resized = False
        self._typed = b""

    def draw(self, lines: list[str], *, cut: bool = False) -> None:
        """Show `lines`, as many as the terminal has rows; unless they are just `cut`, a last one says how many more there are.

        Behind a line as wide as the terminal nothing is cleared: the cursor still is on its last letter, which would go.
        """
        columns, rows = os.get_terminal_size(sys.stdout.fileno())
        if len(lines) > rows and cut:
            lines = lines[:rows]
        elif len(lines) > rows:
            lines = [*lines[: rows - 1], f"{len(lines) - rows + 1} lines more: a taller terminal or --limit"]
        shown = [
            (f"{line}\x1b[0m" if "\x1b" in line else line) + ("" if cell_width(clean(line)) >= columns else CLEAR_LINE) for line in lines
        ]
        sys.stdout.write(HOME + "\r\n".join(shown) + (CLEAR_BELOW if len(lines) < rows else ""))
        sys.stdout.flush()

    def wait(self, seconds: float) -> str:
        """Wait so long for a key. "" when the time is over, "resize" when the terminal has another size."""
        until = time.monotonic() + seconds
        while True:
            key = self._key()
            if key:
                return key
            if self._resized:
                self._resized = False
                return "resize"
            left = until - time.monotonic()
            if left <= 0:
                return ""
            if self._keys is None:
                time.sleep(min(left, 0.1))
            elif select.select([self._keys], [], [], min(left, 0.1))[0]:  # a signal may come just before: so not all of `left`
                data = os.read(self._keys, 1024)
                if not data:
                    raise SignalledError(FAILED)  # the terminal is gone
                self._typed += data

    def _key(self) -> str:
        """The next key typed: a character, or "up", "down", "left", "right", "escape", "enter", "backspace"; "" without one."""
        if not self._typed:
            return ""
        for sequence, name in SEQUENCES:
            if self._typed.startswith(sequence):
                self._typed = self._typed[len(sequence) :]
                return name
        text = self._typed.decode(errors="ignore")
        self._typed = self._typed[len(text[:1].encode()) or 1 :]
        return text[:1] if text[:1].isprintable() else ""

    def on_resize(self, _: int, __: FrameType | None) -> None:
        self._resized = True


SEQUENCES: Final = (
    (b"\x1b[A", "up"), (b"\x1b[B", "down"), (b"\x1b[C", "right"), (b"\x1b[D", "left"), (b"\x1bOA", "up"), (b"\x1bOB", "down"),
    (b"\x1b", "escape"), (b"\r", "enter"), (b"\n", "enter"), (b"\x7f", "backspace"), (b"\x08", "backspace"), (b"\x03", "interrupt"),
)  # fmt: skip


@contextmanager
def screen(*, keys: bool) -> Iterator[Screen]:
    """The terminal's other screen, until the end; with `keys` they are read as they are typed."""
    descriptor = sys.stdin.fileno() if keys and sys.stdin.isatty() else None
    made = Screen(descriptor)
    before: dict[int, Any] = {number: signal.signal(number, _leave) for number in ENDING}
    before[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, made.on_resize)
    attributes = None if descriptor is None else termios.tcgetattr(descriptor)
    try:
        if descriptor is not None:
            tty.setcbreak(descriptor)
        sys.stdout.write(ENTER)
        sys.stdout.flush()
        yield made
    finally:
        with suppress(OSError):  # the terminal may be gone
            sys.stdout.write(LEAVE)
            sys.stdout.flush()
        if descriptor is not None and attributes is not None:
            with suppress(termios.error):
                termios.tcsetattr(descriptor, termios.TCSADRAIN, attributes)
        for number, handler in before.items():
            signal.signal(number, handler)
