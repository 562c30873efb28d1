"""What fuzz targets share: a name for what each action limits, inputs as scripts, streams cut in three ways, what a talk may keep."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from fuzz.blind import in_memory

from gateway.pipeline.actions.table import ACTIONS
from gateway.waiting.disk.waiting_disk import WaitingDisk
from support.wires.conversations import Talk, bytewise, randomly

LARGEST_HELD = 1 << 20  # bytes; Talk's budget
BYTEWISE = 512  # bytes of input that are also said one at a time; of longer ones that alone would be most of the time
AMPLIFIED = 100  # held memory above this many times the input is a security bug (Envoy's rule; `docs/design/reliability.md` 4)
SPOOLED_IN_MEMORY = 500  # bytes of a queue of the spool that a talk keeps in memory; all more waits in files


def letters_of(actions: Iterable[str]) -> dict[str, str]:
    """For each action its first letter that no action before it has: what it limits has that name. Of x nothing is limited."""
    found: dict[str, str] = {}
    for action in actions:
        found[action] = next(letter for letter in action if letter not in {"x", *found.values()})
    return found


LETTERS = letters_of(ACTIONS)


@cache
def spool_folder() -> Path:
    return own_folder()


def spool_disk() -> WaitingDisk:
    """A disk for one talk, which `check_memory` closes; all talks have the same folder."""
    return WaitingDisk(spool_folder(), 1 << 20, 1, threads=False, least=SPOOLED_IN_MEMORY, most=SPOOLED_IN_MEMORY)


class Script:
    """Reads an input as a script: each choice takes a byte, 0 when there are no more."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1] if self.at <= len(self.data) else 0

    def take(self, size: int) -> bytes:
        self.at += size
        return self.data[self.at - size : self.at]


def check_memory(talk: Talk, size: int) -> None:
    conversation = talk.conversation
    held = conversation.budget.held_bytes + conversation.budget.reply_bytes
    assert held <= LARGEST_HELD + AMPLIFIED * (size + 1000), f"{held} bytes held for {size} bytes said"
    conversation.abandon()
    assert (conversation.budget.held_bytes, conversation.budget.held_messages) == (0, 0)
    conversation.end()
    if talk.disk is not None:
        talk.work()
        assert (talk.disk.used, talk.disk.queues, talk.disk.waiting.topics) == (0, 0, {}), "something of the spool stays"
        talk.disk.close(0)


def cut(data: bytes, how: int) -> list[bytes]:
    """0: whole; 1: byte by byte, where that is not long; any other: in random pieces, always the same."""
    return [data] if how == 0 else bytewise(data) if how == 1 and len(data) <= BYTEWISE else randomly(data, how)


def check_reason(error: Exception) -> None:
    """Whoever is refused is told why."""
    assert str(error).strip(), f"{error!r} says nothing"


def own_folder() -> Path:
    """A new folder, removed when the process ends in good order.

    atheris leaves out `atexit`, and so does a fault: whoever starts a process that fuzzes names a folder of its own in TMPDIR.
    """
    folder = Path(tempfile.mkdtemp(prefix="sluice-fuzz-", dir=in_memory()))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
