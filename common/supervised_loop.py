"""Endless loops of tasks, in which a fault ends one round only."""

from __future__ import annotations

from types import TracebackType
from typing import Final

from common import log

FAULT_EVERY_S: Final = 10.0  # seconds; between two log lines of a loop that fails in every round; a guess


class SupervisedLoop:
    """A task's endless loop: `with` it around each round, so that a fault ends that round only.

    A fault is logged with its traceback, at most once in FAULT_EVERY_S, with the number of rounds that failed since the last line.
    """

    def __init__(self, task: str, event: str = "housekeeping_failed") -> None:
        self.task = task
        self.event = event
        self._throttle = log.LogThrottle(FAULT_EVERY_S)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        if not isinstance(error, Exception):  # None, or cancelled
            return False
        self.fail(error)
        return True

    def fail(self, error: Exception) -> None:
        rounds = self._throttle.count_until_due()
        if rounds:
            log.failure(self.event, error, task=self.task, rounds=rounds)

    def __repr__(self) -> str:
        return f"<SupervisedLoop {self.task} failed={self._throttle.count}>"
