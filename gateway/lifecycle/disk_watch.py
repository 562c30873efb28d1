"""What the log says of the spool: what processes that are gone have left there, when it cannot be written any more, and when it can again.

Each is said once, however often a write is tried.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from common import log
from gateway.waiting.disk import UNWRITABLE
from gateway.waiting.disk.left_behind import clear_left_behind

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.waiting.disk.waiting_disk import WaitingDisk

OVER: Final = "nothing is to be done: it is written again"
UNREADABLE: Final = "give the gateway's user the folder and all in it (chown)"
UNRELEASED: Final = (
    "a build that was never released wrote it, and this one leaves it alone: let that build forward its messages, or delete the folder"
)


async def delete_left_behind(directory: Path, *, tells: bool = True) -> None:
    """Delete what processes that are gone have left in the spool. `tells`: at the start, also say what is not deleted."""
    found = await trio.to_thread.run_sync(clear_left_behind, directory, abandon_on_cancel=True)  # where the disk hangs, a stop goes on
    if found.files:
        log.event(logging.WARNING, "spool_left_behind", files=found.files, bytes=found.size)
    if not tells:
        return
    for folder, why in found.faults.items():
        log.event(logging.WARNING, "spool_unreadable", folder=str(folder), err=why, remedy=UNREADABLE)
    if found.kept:
        folders = ", ".join(str(folder) for folder in found.kept)
        log.event(logging.WARNING, "spool_not_ours", folders=folders, remedy=UNRELEASED)


class DiskWatch:
    """Looks at one process's spool on each tick."""

    def __init__(self, disk: WaitingDisk) -> None:
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
        return f"<DiskWatch {self._told}>"
