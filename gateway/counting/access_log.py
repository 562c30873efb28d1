"""The access log: what passed and what did not, per topic, client, user, group and second, as JSON lines (`docs/design/contract.md` 6).

What `Accounts.fold` hands over is put on a queue once a second, and made into lines and written by a thread of its own: neither many lines
nor a slow disk cost latency. They cost lines, but not unbounded memory: names come from clients, and a client that makes up 80,000 a second
would fill a gigabyte in twelve seconds with what waits to be written (measured). So the queue is bounded by keys and by seconds.

* **By keys**: where a second has more than there is room for, whole topics of it are dropped, invented names first (`thinning.py`). Up to
  half of the room is for topics that are not known, all of it for known ones. The gap in `seq` stands before the second's heartbeat: it was
  observed, and whichever topics are there are complete.
* **By seconds**: where the disk hangs, and where there is no room for half of what the known topics have, whole seconds are lost: a topic
  that is not there would seem idle. The gap stands before the next second's lines.

What is lost is counted (`lost_lines`), by its keys, several of which may make one line.

Below `disk.low_watermark` of free space nothing is written: this log is what grows without an end on that disk, and it must not take the
last of it from the broker. The open file gets its final name, lines are counted as lost, and writing goes on by itself once there is room.
Other faults of the disk do the same. The beginning and the end of either are logged, once each.

`max_100ms_messages` is the largest number of messages offered within 100 ms, or more: where one line stands for several keys (a bucket
per connection), their peaks are added as if they had come at once. It never exceeds the messages offered in that second.

Files: `dt=YYYY-MM-DD/hr=HH/GATEWAY-BOOT-NNNNNN.jsonl`, named `.open` until closed; rolled by age, by size, and at every full hour (UTC),
so a file holds lines of one hour only. A file left `.open` by a crash is closed at the next start by the same gateway name.
"""

from __future__ import annotations

import errno
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Final, NamedTuple

from gateway.counting.access_log_lines import RunningSecond, Second, text_of
from gateway.counting.known_names import MAX_KNOWN, KnownNames
from gateway.counting.thinning import thin_out

FILE_MODE: Final = 0o640  # topics, users and client addresses are not for everybody on the machine; the umask may take more away
FOLDER_MODE: Final = 0o750
MAX_QUEUED_SECONDS: Final = 64  # of lines that may wait for the disk; a longer stall loses lines (a guess)
MAX_QUEUED_KEYS: Final = 100_000  # in all of these, 0.9 kB each, of topics that are known (a guess)
MAX_QUEUED_UNKNOWN: Final = MAX_QUEUED_KEYS - MAX_KNOWN  # the most that topics that are not known fill it to
HURRIED_SLICES: Final = 8  # between two rests of a writer that is behind: a millisecond or two, for which the event loop may have to wait


class Rolling(NamedTuple):
    """When a file is closed, and when none is written."""

    every_s: int
    size: int  # bytes
    low_watermark: int  # free bytes on the disk below which nothing is written,
    low_share: int = 0  # or thousandths of the disk, whichever is more
    tidy: bool = True  # files that earlier runs left open are closed at the start


class DiskSpace(NamedTuple):
    """Of a disk, in bytes, as df and RocketMQ count: what is kept for root belongs to nobody."""

    free: int  # what an ordinary user may still write
    size: int  # that, and what is used


def disk_space(directory: Path) -> DiskSpace:
    """Of the directory's disk."""
    found = os.statvfs(directory)
    return DiskSpace(found.f_bavail * found.f_frsize, (found.f_blocks - found.f_bfree + found.f_bavail) * found.f_frsize)


def safe_name(gateway: str) -> str:
    """The gateway's name as part of a file name."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", gateway)[:100] or "sluice"


class AccessLog:
    """Collects what happens in the running second and hands full seconds to the writer."""

    def __init__(self, directory: Path, gateway: str, boot: str, rolling: Rolling, space: Callable[[Path], DiskSpace] = disk_space) -> None:
        self.revision = 0  # of the limits in force
        self.running = RunningSecond()
        self._lost_in_queue = 0  # lines for which the queue was full
        self._closing: Generator[None, None, None] | None = None  # the second that is being queued in slices, or was last
        self._gap = 0  # of these, lines since the last second that was queued
        self._writer = LogWriter(directory, gateway, boot, rolling, space)

    @property
    def rolling(self) -> Rolling:
        """When files are closed, and when none is written."""
        return self._writer.rolling

    def roll(self, rolling: Rolling) -> None:
        """Close files by this from now on."""
        self._writer.rolling = rolling

    def start(self) -> None:
        self._writer.start()

    def close_second(self, second: int) -> None:
        """The second that began at `second` (epoch, UTC) is over: queue its lines and the heartbeat.

        Those of the second before go first, of which slices may be left: at a stop nobody else would do them in time.
        """
        if self._closing is not None:
            for _ in self._closing:
                pass
        for _ in self.slices(second):
            pass

    def slices(self, second: int) -> Generator[None, None, None]:
        """`close_second`, in slices where there is much to drop."""
        self._closing = self._slices(second)
        return self._closing

    def _slices(self, second: int) -> Generator[None, None, None]:
        closed = Second(second, self.revision, self.running.take())
        fits = True
        waiting = self._writer.waiting
        if len(closed.gathering) > MAX_QUEUED_UNKNOWN - waiting:
            fits = yield from thin_out(closed, self._writer.known, MAX_QUEUED_KEYS - waiting, MAX_QUEUED_UNKNOWN - waiting)
        closed.lost_before = self._gap
        if fits and self._writer.offer(closed):
            self._gap = 0
            self._lost_in_queue += closed.dropped
        else:
            lost = closed.lines_at_most() + closed.dropped
            self._lost_in_queue += lost
            self._gap += lost

    def stop(self, timeout_s: float) -> None:
        """Write the seconds that are over and close the file; on a thread, for it waits."""
        self._writer.stop(timeout_s)

    @property
    def lost_lines(self) -> int:
        """Lines that will never be in a file: the queue was full, the disk low, or a write failed."""
        return self._lost_in_queue + self._writer.failed_lines

    @property
    def failed_writes(self) -> int:
        return self._writer.failed_writes

    @property
    def disk_low(self) -> bool:
        return self._writer.low

    @property
    def free_bytes(self) -> int:
        """On its disk, at the last look; -1 before the first."""
        return self._writer.free_bytes

    def on_problem(self, report: Callable[[str], None], recovered: Callable[[int], None] = lambda _: None) -> None:
        """Call `report` with what is wrong when writing fails, and `recovered` with the number of lines lost once it goes on."""
        self._writer.report = report
        self._writer.recovered = recovered


def make_folders(folder: Path) -> None:
    """The folder and those above it, where they are not there yet."""
    if not folder.is_dir():
        make_folders(folder.parent)
        folder.mkdir(mode=FOLDER_MODE, exist_ok=True)


class LogWriter(threading.Thread):
    """The thread that owns the file."""

    def __init__(self, directory: Path, gateway: str, boot: str, rolling: Rolling, space: Callable[[Path], DiskSpace] = disk_space) -> None:
        super().__init__(name="access-log", daemon=True)
        self.directory = directory
        self.gateway = gateway
        self.boot = boot
        self.stem = f"{safe_name(gateway)}-{boot}"
        self.rolling = rolling
        self.failed_writes = 0
        self.failed_lines = 0
        self.low = False  # less than the low watermark is free
        self.free_bytes = -1
        self._space = space
        self._failing_since_lines = -1  # `failed_lines` when writing began to fail; -1: it does not fail
        self.recovered: Callable[[int], None] = lambda _: None
        self.report: Callable[[str], None] = lambda _: None
        self.known = KnownNames()
        self._queue: queue.Queue[Second | None] = queue.Queue(MAX_QUEUED_SECONDS)
        self._offered = 0  # keys put into the queue, counted by the loop
        self._done = 0  # keys that are written or lost, counted by this thread
        self._slices = 0
        self._file: IO[bytes] | None = None
        self._path: Path | None = None
        self._seq = 0  # of the next line
        self._number = 0
        self._opened_second = 0
        self._size = 0

    @property
    def waiting(self) -> int:
        """Keys that are queued, or being written."""
        return self._offered - self._done

    def offer(self, second: Second) -> bool:
        """Queue one second; False when there is no room for another one."""
        keys = len(second.gathering)
        self._offered += keys
        try:
            self._queue.put_nowait(second)
        except queue.Full:
            self._offered -= keys
            return False
        return True

    def stop(self, timeout_s: float) -> None:
        try:
            self._queue.put(None, timeout=timeout_s)
        except queue.Full:
            return
        if self.is_alive():
            self.join(timeout_s)

    def run(self) -> None:
        if self.rolling.tidy:
            self.close_leftovers()
        while (second := self._queue.get()) is not None:
            self._seq += second.lost_before
            second.add_up(self._rest, self.known)  # their number must be known if they are lost, too
            try:
                self._write(second)
            except OSError as error:
                self._count_lost(second.lines, error)
                continue
            finally:
                self._seq += second.numbers
                self._done += len(second.gathering)
            if self._failing_since_lines >= 0:
                self.recovered(self.failed_lines - self._failing_since_lines)
                self._failing_since_lines = -1
        self._close()

    def _rest(self, seconds: float) -> None:
        """Rest between two slices, for the event loop's sake; less often while further seconds wait, which would else be lost."""
        self._slices += 1
        if self._queue.empty() or self._slices % HURRIED_SLICES == 0:
            time.sleep(seconds)

    def _count_lost(self, lines: int, error: OSError) -> None:
        begins = self._failing_since_lines < 0
        if begins:
            self._failing_since_lines = self.failed_lines
        self.failed_lines += lines
        if self.low:
            self._finish_file()
        else:
            self.failed_writes += 1
            self._abandon()
        if begins:
            self.report(f"access log: {error}; lines are lost, and counted, until that is over; free space or set access_log: off")

    def _finish_file(self) -> None:
        """Give the open file its final name: that takes no room, and its readers need not wait until there is some."""
        try:
            self._close()
        except OSError:
            self.failed_writes += 1
            self._abandon()

    def _write(self, second: Second) -> None:
        make_folders(self.directory)
        self.free_bytes, size = self._space(self.directory)
        mark = max(self.rolling.low_watermark, size * self.rolling.low_share // 1000)
        self.low = self.free_bytes < mark
        if self.low:
            raise OSError(errno.ENOSPC, f"less than disk.low_watermark ({mark} bytes) free", str(self.directory))
        data = text_of(second, self.gateway, self.boot, self._seq, self._rest).encode()
        if self._file is None or self._must_roll(second.ts):
            self._close()
            self._open(second.ts)
        assert self._file is not None
        self._file.write(data)
        self._file.flush()
        self._size += len(data)

    def _must_roll(self, second: int) -> bool:
        age = second - self._opened_second
        return age >= self.rolling.every_s or self._size >= self.rolling.size or second // 3600 != self._opened_second // 3600

    def _open(self, second: int) -> None:
        when = datetime.fromtimestamp(second, UTC)
        folder = self.directory / f"dt={when:%Y-%m-%d}" / f"hr={when:%H}"
        make_folders(folder)
        self._path = folder / f"{self.stem}-{self._number:06d}.jsonl.open"
        self._number += 1
        self._file = os.fdopen(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, FILE_MODE), "ab")
        self._size = 0
        self._opened_second = second

    def _close(self) -> None:
        """Close and give the file its final name."""
        if self._file is None or self._path is None:
            return
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        with suppress(FileNotFoundError):  # the clock has jumped, so the keeper took it for left by a crash, and has renamed it
            self._path.rename(self._path.with_suffix(""))
        self._file = None
        self._path = None

    def _abandon(self) -> None:
        """After a failed write: leave the file as it is (its last line may be torn) and begin a new one next time. A file without a whole
        line goes: a disk that takes no write for a day would have one for each second."""
        if self._file is not None and self._path is not None:
            with suppress(OSError):
                self._file.close()
            if self._size == 0:
                with suppress(OSError):
                    self._path.unlink()
        self._file = None
        self._path = None

    def close_leftovers(self) -> None:
        """Files an earlier run of this gateway left open: give them their final names."""
        gateway = self.stem.rpartition("-")[0]
        ours = re.compile(re.escape(gateway) + r"-[0-9a-z]+-\d{6,}\.jsonl\.open")  # not those of "orders-2" when we are "orders"
        for path in self.directory.glob("dt=*/hr=*/*.jsonl.open"):
            if ours.fullmatch(path.name) and not path.name.startswith(self.stem):
                try:
                    path.rename(path.with_suffix(""))
                except OSError as error:
                    self.report(f"access log: cannot close {path.name}: {error}")
