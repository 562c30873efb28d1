"""Says in the log when the spool cannot be written any more, and when it can again: once each, however often a write is tried."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from gateway import log
from gateway.spool import UNWRITABLE

if TYPE_CHECKING:
    from gateway.spool.disk import SpoolDisk

OVER: Final = "nothing is to be done: it is written again"


class SpoolWatch:
    """Looks at one process's spool on each tick."""

    def __init__(self, disk: SpoolDisk) -> None:
        self._disk = disk
        self._told = ""  # the trouble that the log has

    def look(self) -> None:
        trouble = self._disk.trouble
        if bool(trouble) == bool(self._told):
            return
        if trouble:
            log.event(logging.ERROR, "spool_trouble", err=trouble, remedy=UNWRITABLE)
        else:
            log.event(logging.INFO, "spool_trouble", err=f"over: {self._told}", remedy=OVER)
        self._told = trouble

    def __repr__(self) -> str:
        return f"<SpoolWatch {self._told}>"
