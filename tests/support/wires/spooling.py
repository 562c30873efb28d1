"""A spool beside `Wires`, whose disk does at once what it is told, when a test lets it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.spool.disk import READ, WRITE, SpoolDisk
from limiter.rules.rule import Rule
from support.wires.wires import Wires


@contextmanager
def spooling(directory: Path, *rules: Rule, size: int = 1 << 30, least: int = 2_000) -> Iterator[tuple[Wires, SpoolDisk]]:
    """Sessions, and a disk on which all but the first few messages wait: those that fill `least` bytes of memory."""
    with Wires(*rules) as wires:
        disk = SpoolDisk(directory / "spool", size, 1, threads=False, least=least, most=least)
        wires.shared.spool = disk
        wires.sweeper.take_spool(disk)
        yield wires, disk
        disk.close(5)


def elapse(wires: Wires, disk: SpoolDisk, seconds: float) -> None:
    """Let so much time pass, in which the disk does at once what it is told."""
    wires.elapse(seconds, lambda: work(disk))


def work(disk: SpoolDisk) -> None:
    while disk.work(WRITE) or disk.work(READ):
        pass
