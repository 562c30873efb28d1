"""One round over a gateway's access log: closes what a crash left open, compresses hours that are over, deletes what may go.

A process of its own, so that it can cost the gateway nothing: a thread would share the interpreter's lock, and one of low priority that
holds it while others have the processor would hold up the event loop (priority inversion). It runs under SCHED_IDLE (the kernel runs it
when nobody else wants to, and its reads and writes likewise) and rests three times as long as each chunk took: at most a quarter of a core.

What it did goes to stdout as one JSON object (`Report`). It may be killed at any moment: the next round goes on.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from common.log_files import durable
from common.log_files.compression import compress
from common.log_files.marks import Counted, Shipments
from common.log_files.names import HOUR_S, OPEN, PLAIN, TEMPORARY, LogFile, hour_text, look
from common.log_files.retention import Keep, carry_out, choose

REST: Final = 3.0  # times as long as the work before it took is rested: a quarter of one core at most (a guess)
SETTLE_S: Final = 120  # seconds; after an hour's end, until its files are compressed; the writer closes them within seconds (a guess)
STALE_S: Final = 7200  # seconds; an open file that nobody has written to for so long, of an hour that is over, was left by a crash:
# a writer adds a line each second and begins a file each hour (a guess)


@dataclass
class Report:
    """What a round did, and what there is after it. Bytes and seconds."""

    compressed_files: int = 0
    compressed_bytes: int = 0  # before
    closed: list[str] = field(default_factory=list)  # names of files that a crash had left open
    deleted_files: int = 0
    deleted_bytes: int = 0
    deleted_to: str = ""  # the youngest hour of which something was deleted
    held_files: int = 0  # would be deleted if they were shipped or counted
    held_bytes: int = 0
    waits_for: str = "age"
    bytes: int = 0  # of all files
    files: int = 0
    oldest: int = 0  # epoch seconds of the oldest hour; 0: there is none
    unshipped_files: int = -1  # closed, of hours that are over; -1: nothing was ever shipped from here
    faults: list[str] = field(default_factory=list)
    busy: bool = False  # another process had the directory; nothing was done


@dataclass(frozen=True)
class Order:
    """What to do, as the gateway says it."""

    directory: str
    codec: str  # zstd, gzip or off
    keep_s: int
    keep_size: int
    keep_until: str

    @property
    def keep(self) -> Keep:
        return Keep(self.keep_s, self.keep_size, self.keep_until)


class WorkPace:
    """Rests after each chunk of work."""

    def __init__(self, rest: float = REST) -> None:
        self._rest = rest
        self._began = time.monotonic()

    def __call__(self) -> None:
        time.sleep(self._rest * max(0.0, time.monotonic() - self._began))
        self._began = time.monotonic()


def keep_files(order: Order, now: float, pace: WorkPace) -> Report:
    """One round. A fault of one file is told, and the others have their turn. Raises OSError where the directory cannot be read."""
    report = Report()
    directory = Path(order.directory)
    if not directory.is_dir():  # nothing was written yet
        return report
    try:
        with durable.lock(directory):
            tidy(directory)
            files = look(directory).files  # looking takes most of a round's time where there is nothing to do
            close_stale(files, now, report)
            if order.codec != "off":
                compress_all(files, order.codec, now, pace, report)
            delete_old(directory, order.keep, now, report)
    except durable.BusyError:
        report.busy = True
    return report


def tidy(directory: Path) -> None:
    """Remove what killed processes left half-written; the lock is ours, so nobody writes it now."""
    for path in directory.glob("dt=*/hr=*/*.tmp"):
        if TEMPORARY.fullmatch(path.name):
            durable.remove(path)


def close_stale(files: list[LogFile], now: float, report: Report) -> None:
    """Give files that a crash left open their final names, whichever gateway they are of; their last line may be torn."""
    for file in files:
        if file.form == OPEN and file.hour + HOUR_S < now and file.modified + STALE_S < now:
            final = file.path.with_suffix("")
            try:
                if final.exists():
                    report.faults.append(f"{file.path}: {final.name} is there, too; compare the two and remove one")
                    continue
                durable.rename(file.path, final)
                report.closed.append(f"{file.folder}/{final.name}")
            except OSError as error:
                report.faults.append(f"cannot close {file.path}: {error.strerror}; it stays open")


def compress_all(files: list[LogFile], codec: str, now: float, pace: WorkPace, report: Report) -> None:
    for file in files:
        if file.form == PLAIN and file.hour + HOUR_S + SETTLE_S < now:
            try:
                compress(file, codec, pace)
            except OSError as error:
                report.faults.append(f"cannot compress {file.path}: {error.strerror or error}; it stays as it is")
                continue
            report.compressed_files += 1
            report.compressed_bytes += file.size


def delete_old(directory: Path, keep: Keep, now: float, report: Report) -> None:
    shipments = Shipments(directory)
    files = look(directory).files
    counted = Counted(directory)
    choice = choose(files, keep, now, shipments, counted)
    report.waits_for = choice.waits_for
    for hour in sorted({file.hour for file in choice.delete}):
        gone = [file for file in choice.delete if file.hour == hour]
        try:
            carry_out(directory, gone, shipments)
        except OSError as error:
            report.faults.append(f"cannot delete the files of {hour_text(hour)} in {directory}: {error.strerror or error}")
            continue
        report.deleted_files += len(gone)
        report.deleted_bytes += sum(file.size for file in gone)
        report.deleted_to = hour_text(hour)
    report.held_files = len(choice.held)
    report.held_bytes = sum(file.size for file in choice.held)
    counted.forget(min((file.hour for file in files), default=0))
    measure([file for file in files if file.path.exists()], now, shipments, report)


def measure(files: list[LogFile], now: float, shipments: Shipments, report: Report) -> None:
    report.files = len(files)
    report.bytes = sum(file.size for file in files)
    report.oldest = min((file.hour for file in files), default=0)
    if shipments.begun:
        report.unshipped_files = sum(file.form != OPEN and file.hour + HOUR_S < now and not shipments.has(file) for file in files)


def be_quiet() -> None:
    """Let everybody else have the processor and the disk first."""
    with contextlib.suppress(OSError):
        os.nice(19)
    with contextlib.suppress(OSError):  # a sandbox may refuse it; 19 holds then
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def read_report(text: str) -> Report:
    """The inverse of what `main` prints. Raises ValueError, TypeError."""
    found: dict[str, Any] = json.loads(text)
    return Report(**found)


def main(words: list[str]) -> int:
    """`words`: an `Order` as JSON."""
    be_quiet()
    order = Order(**json.loads(words[0]))
    try:
        report = keep_files(order, time.time(), WorkPace())
    except OSError as error:
        report = Report(faults=[f"{error}; let this user read and write {order.directory}"])
    print(json.dumps(asdict(report)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
