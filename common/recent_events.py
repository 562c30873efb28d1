"""The log's last events, kept in memory for `GET /v1/events` and `/v1/stream`.

A handler of the product's logger takes every event of level info and above where it is logged, whatever `log.level` writes down. Of one
event at most MAX_PER_SECOND are taken in a second (the next one says how many were not), and at most MAX_EVENTS are kept of each process.
When there are more, the oldest of the kind that has most goes: a flood of one kind does not push the others out. Of EPISODES all are taken:
whoever reads them would take a limit for over, or not, by an event that was left out.

Events are numbered from 1, for good within one run of the process; with the run's `boot` in front the number is an id (`6f1c03aa-17`).
Workers have a ring each and hand over what is new in it once a second (`take_new`); their parent's ring numbers it anew (`add`).
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Final

from common.log import LineLimiter, logger, moment

MAX_EVENTS: Final = 2000  # events; kept of each process, some 1 MB; a guess
MAX_PROCESSES: Final = 8  # for which there is room, some 8 MB; a guess
MAX_PER_SECOND: Final = 20  # events; of one kind, as the log writes them
EPISODES: Final = ("limit_reached", "limit_recovered")  # few: one a minute of each of 1000 limits (`gateway/telemetry/limit_events.py`)
MAX_TEXT: Final = 1000  # characters; of one field; a guess
MAX_LIST: Final = 50  # items; of one field (what a reload changed); a guess

JSONObject = dict[str, object]


class RecentEvents(logging.Handler):
    """The ring. Any thread may add to it and read it."""

    def __init__(self, boot: str, processes: int = 1) -> None:
        """`processes`: whose events are added."""
        super().__init__(logging.INFO)
        self._processes = min(processes, MAX_PROCESSES)
        self.boot = boot
        self.last = 0  # the number of the latest event
        self.forgotten = 0  # the highest number that is not kept any more
        self._kept: dict[int, JSONObject] = {}
        self._by_kind: dict[str, deque[int]] = {}
        self._limiter = LineLimiter(MAX_PER_SECOND)
        self._taken = 0  # the number up to which `take_new` has handed over

    def __enter__(self) -> RecentEvents:
        """Take the log's events from now on."""
        logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logger.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        kind = record.getMessage()
        left_out = 0 if kind in EPISODES else self._limiter.admit(int(record.created), kind)
        if left_out < 0:
            return
        fields = {name: bound(value) for name, value in getattr(record, "fields", {}).items() if value is not None}
        if left_out:
            fields["suppressed"] = left_out
        if record.exc_info and record.exc_info[0] is not None:
            fields["err"] = f"{record.exc_info[0].__name__}; the log has the traceback"
        self.add({"ts": moment(record.created), "level": record.levelname.lower(), "event": kind, **fields})

    def add(self, event: JSONObject) -> None:
        """Number an event (`ts`, `level`, `event` and its fields) and keep it."""
        with self.locked():
            self.last += 1
            self._kept[self.last] = {"id": f"{self.boot}-{self.last}", **event}
            self._by_kind.setdefault(str(event["event"]), deque()).append(self.last)
            if len(self._kept) > MAX_EVENTS * self._processes:
                oldest = max(self._by_kind.values(), key=len).popleft()
                del self._kept[oldest]
                self.forgotten = max(self.forgotten, oldest)

    def after(self, number: int) -> list[JSONObject]:
        """The events kept whose number is above `number`, the oldest first. Those are not all where `forgotten` is above it, too."""
        found = []
        with self.locked():
            for key in reversed(self._kept):
                if key <= number:
                    break
                found.append(self._kept[key])
        return found[::-1]

    def take_new(self) -> list[JSONObject]:
        """What was added since the last call, without ids."""
        new = self.after(self._taken)
        self._taken = self.last
        return [{name: value for name, value in event.items() if name != "id"} for event in new]

    def locked(self) -> logging._Lock:  # type: ignore[name-defined]
        assert self.lock is not None
        return self.lock

    def __repr__(self) -> str:
        return f"<RecentEvents {len(self._kept)} kept, the last is {self.last}>"


def bound(value: object) -> object:
    """A field as JSON can have it, of bounded size."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, dict):
        return {str(key): bound(inner) for key, inner in list(value.items())[:MAX_LIST]}
    if isinstance(value, list | tuple):
        shown = [bound(item) for item in value[:MAX_LIST]]
        return shown if len(value) <= MAX_LIST else [*shown, f"and {len(value) - MAX_LIST} more"]
    text = str(value).encode(errors="replace").decode()  # a broker's words may have half of a surrogate pair, which no JSON has
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}..."
