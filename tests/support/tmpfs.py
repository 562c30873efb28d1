"""Where a test run has its folders: in memory, where the machine has the room.

Most of what the tests write is written to be thrown away, brokers' logs of messages above all. On a disk that others use too a broker
stands still for ten seconds and more when the kernel writes its mapped files back (measured), and RabbitMQ confirms a persistent message
after an fsync. In memory both cost nothing. A whole run needs about 1 GiB. What a test needs a real disk for it says itself
(`test_incident.py`).
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

MEMORY: Final = Path("/dev/shm")
ROOM: Final = 4 << 30  # bytes that must be free there: four times what a run has needed (measured)
PREFIX: Final = "sluice-tests-"  # and the number of the process


def folder_for_a_run() -> Path | None:
    """A folder for this process that does not exist yet; None where there is no memory to have it in. Removes what ended runs have left."""
    if not os.access(MEMORY, os.W_OK):
        return None
    for left in MEMORY.glob(f"{PREFIX}*"):
        if not alive(int(left.name.removeprefix(PREFIX))):
            shutil.rmtree(left, ignore_errors=True)
    return MEMORY / f"{PREFIX}{os.getpid()}" if shutil.disk_usage(MEMORY).free >= ROOM else None


def alive(pid: int) -> bool:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, 0)
        return True
    return Path(f"/proc/{pid}").exists()  # somebody else's
