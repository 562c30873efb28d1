"""A spool beside `Wires`, whose disk does at once what it is told, when a test lets it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.waiting.disk.waiting_disk import READ, WRITE, WaitingDisk
from limiter.rules.rule import Rule
from support.wires.wires import Wires


@contextmanager
def spooling(directory: Path, *rules: Rule, size: int = 1 << 30, least: int = 2_000) -> Iterator[tuple[Wires, WaitingDisk]]:
    """Sessions, and a disk on which all but the first few messages wait: those that fill `least` bytes of memory."""
    with Wires(*rules) as wires:
        disk = WaitingDisk(directory / "spool", size, 1, threads=False, least=least, most=least)
        wires.shared.disk = disk
        wires.sweeper.take_disk(disk)
        yield wires, disk
        disk.close(5)


def elapse(wires: Wires, disk: WaitingDisk, seconds: float) -> None:
    """Let so much time pass, in which the disk does at once what it is told."""
    wires.elapse(seconds, lambda: work(disk))


def work(disk: WaitingDisk) -> None:
    while disk.work(WRITE) or disk.work(READ):
        pass
