"""Log lines: one per event, JSON or text, to stderr, never blocking the loop.

stdlib logging does the levels. A queue and a writer thread keep a full pipe from stopping the data plane (`docs/design/reliability.md`
F47): when the queue is full the line is dropped and counted, and once lines are read again one says how many. Of one event at most
MAX_LINES_PER_SECOND are written in a second; the next line of that event after it says how many were suppressed.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from io import UnsupportedOperation
from typing import Final, TextIO

MAX_QUEUED_LINES: Final = 1000  # lines; that wait for the writer thread: of stacks, several MiB; a guess
MAX_LINES_PER_SECOND: Final = 20  # lines; of one event: a flood of bad connections must not become a flood of lines; a guess

logger = logging.getLogger("sluice")


def moment(seconds: float) -> str:
    """Seconds since 1970 as log lines have it: RFC 3339, UTC, with milliseconds."""
    when = datetime.fromtimestamp(seconds, UTC)
    return f"{when:%Y-%m-%dT%H:%M:%S}.{when.microsecond // 1000:03d}Z"


class QueueHandler(logging.Handler):
    """Formats on the caller's thread, writes on its own."""

    def __init__(self, stream: TextIO, form: str, always: dict[str, object]) -> None:
        super().__init__()
        self.stream = stream
        self.take_form(form)
        self.always = always  # fields of every line
        self.dropped = 0
        self._lines: queue.Queue[str | None] = queue.Queue(MAX_QUEUED_LINES)
        self._limiter = LineLimiter(MAX_LINES_PER_SECOND)
        self._told = 0  # of those dropped
        self._torn = False  # the last line that was written ends in its middle
        self._thread = threading.Thread(target=self._write, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        fields = getattr(record, "fields", {})
        event = record.getMessage()
        suppressed = self._limiter.admit(int(record.created), event)
        if suppressed < 0:
            return
        if suppressed:
            fields = {**fields, "suppressed": suppressed}
        if record.exc_info and record.exc_info[1] is not None:
            fields = {**fields, "err": logging.Formatter().formatException(record.exc_info)}
        try:
            self._lines.put_nowait(self._format(record, event, fields))
        except queue.Full:
            self.dropped += 1

    def take_form(self, form: str) -> None:
        """Write json, text, or what suits who reads it (auto), from the next line on."""
        on_terminal = self.stream.isatty()
        if form == "auto":
            form = "text" if on_terminal else "json"
        self.for_people = on_terminal and form == "text"
        self.form = form

    def tell(self, lines: Iterable[str]) -> None:
        """Write lines that are no events, in their turn, where a person reads them."""
        if self.for_people:
            for line in lines:
                try:
                    self._lines.put_nowait(line)
                except queue.Full:
                    self.dropped += 1

    def _format(self, record: logging.LogRecord, event: str, fields: dict[str, object]) -> str:
        fields = {**self.always, **fields}
        ts = moment(record.created)
        level = record.levelname.lower()
        if self.form == "json":
            return json.dumps({"ts": ts, "level": level, "event": event, **fields}, default=str)
        # repr keeps control characters of attacker-chosen names from reaching the terminal
        stacks = fields.pop("stacks", "")  # of this process, many lines
        words = " ".join(f"{name}={value!r}" if isinstance(value, str) else f"{name}={value}" for name, value in fields.items())
        return f"{ts} {level:7} {event} {words}".rstrip() + (f"\n{stacks}" if stacks else "")

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                self._put_out(line)
                if self.dropped > self._told and self._lines.empty():
                    self._tell_dropped()
            except (OSError, ValueError):
                self.dropped += 1

    def _tell_dropped(self) -> None:
        """On the writer's thread, after the lines that had waited: how many that came meanwhile are not there."""
        dropped = self.dropped
        if self.level <= logging.WARNING:
            record = logging.makeLogRecord({"levelname": "WARNING"})
            remedy = "what reads stderr did not keep up: see who does"
            self._put_out(self._format(record, "log_lines_dropped", {"lines": dropped - self._told, "remedy": remedy}))
        self._told = dropped

    def _put_out(self, line: str) -> None:
        """Write a whole line. Past the stream's own layers, where it is a file: unbuffered (PYTHONUNBUFFERED) they forget the rest of a
        write that a signal cut short, and buffered they keep a lock meanwhile, for want of which a process that ends would be aborted.
        A line whose rest could not be written (a full disk) is ended before the next.
        """
        try:
            descriptor = self.stream.fileno()
        except UnsupportedOperation:
            self.stream.write(line + "\n")
            self.stream.flush()
            return
        begin = "\n" if self._torn else ""
        rest = memoryview(f"{begin}{line}\n".encode(errors="backslashreplace"))
        while rest:
            written = os.write(descriptor, rest)
            self._torn = written < len(rest)
            rest = rest[written:]

    def close(self) -> None:
        try:
            self._lines.put(None, timeout=1)
            self._thread.join(timeout=1)
        except queue.Full:
            self.dropped += 1
        super().close()


def start(level: str, form: str, **always: object) -> QueueHandler:
    """Send the product's log to stderr; returns the handler, to be closed at the end. `always`: fields of every line."""
    handler = QueueHandler(sys.stderr, form, always)
    logger.handlers[:] = [handler]
    logger.propagate = False
    set_level(handler, level)
    return handler


def tell(lines: Iterable[str]) -> None:
    """Say something to the person at the terminal that the log is written to; nothing where it goes elsewhere, or is JSON."""
    for handler in logger.handlers:
        if isinstance(handler, QueueHandler):
            handler.tell(lines)


def level_of(handler: QueueHandler) -> str:
    return logging.getLevelName(handler.level).lower()


def set_level(handler: QueueHandler, level: str) -> None:
    """Write lines of this level and above. Events of level info are made in any case: `common/recent_events.py` keeps them."""
    handler.setLevel(level.upper())
    logger.setLevel(min(handler.level, logging.INFO))


def event(level: int, name: str, **fields: object) -> None:
    """Log one event: a stable snake_case name and its fields; fields that are None are left out. Never give it a token or a header."""
    if logger.isEnabledFor(level):
        logger.log(level, name, extra={"fields": {key: value for key, value in fields.items() if value is not None}})


def failure(name: str, error: BaseException, **fields: object) -> None:
    """Log an exception with its traceback."""
    logger.error(name, exc_info=error, extra={"fields": fields})


class LineLimiter:
    """At most so many lines of each kind in a second; the others are counted."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._windows: dict[str, list[int]] = {}  # kind -> [second, lines in it, left out]

    def admit(self, second: int, kind: str = "") -> int:
        """How many lines of this kind were left out before this one; -1 to leave this one out too."""
        window = self._windows.setdefault(kind, [second, 0, 0])
        if window[0] != second:
            window[0], window[1] = second, 0
        window[1] += 1
        if window[1] > self._per_second:
            window[2] += 1
            return -1
        left_out, window[2] = window[2], 0
        return left_out


class LogThrottle:
    """Thins out log lines of one kind that may come in floods: the first at once, then at most one in `every_s`, with a count."""

    __slots__ = ("_every_s", "_logged_at", "count")

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self.count = 0  # since the last line
        self._logged_at = -every_s

    def count_until_due(self) -> int:
        """Count one more. Returns how many there were since the last line, this one included, or 0 while no line is due."""
        self.count += 1
        now = time.monotonic()
        if now - self._logged_at < self._every_s:
            return 0
        self._logged_at = now
        count, self.count = self.count, 0
        return count
