"""The level of the log as an operator has set it live, for a time or until the next start. Nothing of it is durable."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import trio

from admin.store.state import format_time
from admin.views.views import LogLevelNow
from common import log

if TYPE_CHECKING:
    from admin.ports import OperatedGateway

LEVELS: Final = ("debug", "info", "warning", "error", "critical")


class LiveLogLevel:
    """Sets the level, and returns to the configured one in time."""

    def __init__(self, gateway: OperatedGateway, wall_clock: Callable[[], float]) -> None:
        self._gateway = gateway
        self._wall_clock = wall_clock
        self._until: float | None = None  # seconds since 1970
        self._live = False
        self._changed = trio.Event()

    def set(self, level: str, seconds: float | None) -> None:
        """`level` holds from now on: for so many seconds, or until it is set again."""
        self._gateway.set_log_level(level)
        self._live = True
        self._until = None if seconds is None else self._wall_clock() + seconds
        self._changed.set()

    def reset(self) -> None:
        """The configured level holds again."""
        self._gateway.set_log_level(self._gateway.configured_log_level())
        self._live, self._until = False, None
        self._changed.set()

    def now(self) -> LogLevelNow:
        until = None if self._until is None else format_time(self._until)
        return LogLevelNow(self._gateway.log_level(), self._gateway.configured_log_level(), self._live, until)

    async def run(self) -> None:
        """Return to the configured level when its time has come."""
        while True:
            changed = self._changed = trio.Event()
            left = math.inf if self._until is None else max(0.0, self._until - self._wall_clock())
            with trio.move_on_after(left):
                await changed.wait()
            if self._is_over():
                self.reset()
                log.event(logging.WARNING, "log_level_returned", to=self._gateway.log_level())

    def _is_over(self) -> bool:
        return self._until is not None and self._wall_clock() >= self._until

    def __repr__(self) -> str:
        return f"<LiveLogLevel {self._gateway.log_level()}>"
