"""The disk side of the spool: a directory, two threads, and what they have done.

The event loop never waits for the disk. It hands over jobs, each of which names its file and place, and takes them back when they are done
(`collect`), as it takes verdicts from the limiter: through an eventfd. One thread writes, in order; the other reads and deletes. So a slow
write never keeps a topic from draining, and draining is what makes room.

A job says where it writes, so a write that failed half way is repeated in the same place. While the disk is full or fails, the writer
repeats its job each RETRY_S and says why in `trouble`; nothing is lost meanwhile, because what is to be written stays in memory until it is
written. That memory counts for its connection, which is not read when it has too much: a slow disk is felt by the sender.

A read that fails though its file may be whole is done again as well, behind the others: for half a minute where the disk fails, and as long
as it takes where the machine has no descriptor or memory for it.

Each process has a subdirectory of its own, locked as long as it lives. What a process that is gone has left is deleted
(`left_behind.py`).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import threading
import time
from collections import deque
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from gateway.pipeline.parts import Part
from gateway.waiting.disk.paging import Paging
from gateway.waiting.disk.records import encode
from gateway.waiting.disk.waiting_messages import WaitingMessages
from limiter.rules.rule_checks import MIN_SPOOL_BYTES

MAX_BATCH_BYTES: Final = 262_144  # of memory; one read of a socket: a file is opened for each batch (a guess)
MIN_BATCH_BYTES: Final = 4_096  # with thousands of queues (a guess)
THREADS: Final = 2  # one writes, one reads and deletes
RETRY_S: Final = 0.5  # between two tries of a write or read that failed (a guess)
READ_TRIES: Final = 60  # of a read that the disk refuses, until its file is taken for damaged (a guess)
SHORTAGES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # of the process or machine: the file is whole
LOCK: Final = "lock"
OWN: Final = re.compile(r"\d+-[0-9a-f]{8}")  # a process's directory: its number, which comes again, and what does not

WRITE: Final = 0
READ: Final = 1
DELETE: Final = 2


class DiskJob:
    """One thing to be done in a file: `parts` are written at `offset`; `length` bytes are read from there; or it is deleted."""

    __slots__ = ("batch", "cancelled", "data", "error", "kind", "length", "name", "offset", "owner", "parts", "tries")

    def __init__(self, owner: object, kind: int, name: str, offset: int = 0, length: int = 0, parts: list[Part] | None = None) -> None:
        self.owner = owner
        self.kind = kind
        self.name = name  # of the file, in the directory
        self.offset = offset  # bytes
        self.length = length  # bytes; of a write: set when it is done
        self.parts: list[Part] = [] if parts is None else parts
        self.batch: object = None  # the owner's, of a write
        self.data = b""  # what was read
        self.error: Exception | None = None  # of a read or deletion that failed
        self.tries = 0  # of a read: how often it has failed
        self.cancelled = False  # nobody waits for it any more: it is left out where it has not begun

    def __repr__(self) -> str:
        return f"<DiskJob {('write', 'read', 'delete')[self.kind]} {self.name} at {self.offset}>"


class WaitingDisk:
    """The files of one process's spool. Bytes; every method but the threads' is called on the loop."""

    def __init__(
        self,
        directory: Path,
        max_bytes: int,
        memory: int,
        low_watermark: int = 0,
        low_share: int = 0,
        *,
        threads: bool = True,
        least: int = MIN_BATCH_BYTES,
        most: int = MAX_BATCH_BYTES,
        workers: int = 1,
    ) -> None:
        self.directory = directory
        self.workers = workers  # processes that have equal parts of what a rule may have on disk
        self.least = least  # bytes of memory that a batch may have, however many queues there are
        self.most = most  # and however few
        self.paging = Paging(memory, least)
        self._by_hand = not threads  # jobs are done by `work`, on the caller's thread
        self.take_settings(max_bytes, memory, low_watermark, low_share)
        self.used_by: dict[str, int] = {}  # bytes on disk, or on their way there, by the rule that spools them
        self.used = 0  # bytes of files written and not deleted, and of those about to be written
        self.queues = 0  # queues with something in them
        self.trouble = ""  # why nothing can be written just now
        self.lost_batches = 0  # read back damaged, since the start
        self.written = 0  # bytes, since the start
        self.read = 0
        self.waiting = WaitingMessages()
        self.expired = 0  # messages that were given up because they were too old, since the start
        self.out_of_room: deque[object] = deque()  # owners that found no room for what they would write
        self._done: deque[DiskJob] = deque()
        self._writes: SimpleQueue[DiskJob | None] = SimpleQueue()
        self._reads: SimpleQueue[DiskJob | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._untried: DiskJob | None = None  # without threads: a write that failed
        self._closed = threading.Event()
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._serial = 0
        self._lock_fd = -1
        self._own: Path | None = None
        self._name = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._undeleted: list[DiskJob] = []  # deletions that failed: tried again with the next one

    # ---- on the loop -----------------------------------------------------------------------------------------------

    def fileno(self) -> int:
        """Readable when jobs are done."""
        return self._fd

    def take_settings(self, max_bytes: int, memory: int, low_watermark: int, low_share: int) -> None:
        """They hold from the next batch on."""
        self.max_bytes = max_bytes
        self.memory = memory  # bytes that spooling channels may keep in memory, all together
        self.paging.take_target(memory)
        self.low_watermark = low_watermark  # free bytes below which nothing is written; or, if that is more,
        self.low_share = low_share  # thousandths of the disk

    def new_name(self) -> str:
        """A name no other file of this process has; a later one has a higher number."""
        self._serial += 1
        return str(self._serial)

    def part_of(self, rule_bytes: int) -> int:
        """What this process may have of what a rule may have on disk: at least a file."""
        return max(rule_bytes // self.workers, MIN_SPOOL_BYTES)

    def room_for(self, size: int, rule: str, rule_bytes: int) -> bool:
        """Whether `size` bytes more may be written for `rule`, which may have `rule_bytes` itself in this process."""
        return self.used + size <= self.max_bytes and self.used_by.get(rule, 0) + size <= rule_bytes

    def add(self, rule: str, size: int) -> None:
        """`rule` has so many bytes more on disk, or (below zero) fewer."""
        used = self.used_by.get(rule, 0) + size
        if used:
            self.used_by[rule] = used
        else:
            del self.used_by[rule]

    def share(self) -> int:
        """Bytes of memory that a queue may have of each: what leaves next, what is read ahead, what is to be written."""
        return max(min(self.memory // (3 * max(self.queues, 1)), self.most), self.least)

    def submit(self, job: DiskJob) -> None:
        """Hand a job to its thread."""
        if len(self._threads) < THREADS and not self._by_hand:
            self._start()
        (self._writes if job.kind == WRITE else self._reads).put(job)

    def collect(self) -> list[DiskJob]:
        """The jobs done since the last call, each thread's in order."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._fd)
        jobs: list[DiskJob] = []
        while self._done:
            jobs.append(self._done.popleft())
        return jobs

    def close(self, timeout: float) -> None:
        """End the threads, within `timeout` seconds. Delete what is left: its messages are given up or answered by now.

        A thread that hangs in the disk keeps its descriptors, and the files stay: the next start deletes them.
        """
        self._closed.set()
        self._writes.put(None)
        self._reads.put(None)
        until = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(until - time.monotonic())
        if any(thread.is_alive() for thread in self._threads):
            return
        if self._own is not None:
            with contextlib.suppress(OSError):
                delete_files(self._own)
        self._forget_own()
        os.close(self._fd)

    def _forget_own(self) -> None:
        """The process's directory is gone, or no longer needed; the next write makes it anew."""
        self._own = None
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def finish_deletion(self, job: DiskJob) -> None:
        """A deletion is done. One that failed keeps its bytes counted, and is tried again after the next."""
        if job.error is not None:
            self._undeleted.append(job)
            return
        self.used -= job.length
        if self._undeleted:
            again = self._undeleted.pop()
            again.error = None
            self.submit(again)

    def _start(self) -> None:
        """Start the threads. One that cannot be started (no more threads are allowed) is tried again with the next job."""
        started = {thread.name for thread in self._threads}
        for name, work in (("sluice-spool-write", self._write_all), ("sluice-spool-read", self._read_all)):
            if name in started:
                continue
            thread = threading.Thread(target=work, name=name, daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                self.trouble = f"{error}: {self.directory}"
            else:
                self._threads.append(thread)

    # ---- on the threads --------------------------------------------------------------------------------------------

    def _finish(self, job: DiskJob) -> None:
        self._done.append(job)
        with contextlib.suppress(BlockingIOError, OSError):
            os.eventfd_write(self._fd, 1)

    def work(self, kind: int) -> bool:
        """Without threads: try the next write, or do the next read or deletion; whether there was one."""
        if kind == WRITE:
            if self._untried is None and not self._writes.empty():
                self._untried = self._writes.get()
            job = self._untried
            if job is not None and self._try_write(job):
                self._untried = None
            return job is not None
        if self._reads.empty():
            return False
        job = self._reads.get()
        assert job is not None
        self._try_read(job)
        return True

    def _write_all(self) -> None:
        while (job := self._writes.get()) is not None:
            while not self._try_write(job) and not self._closed.wait(RETRY_S):
                pass

    def _try_write(self, job: DiskJob) -> bool:
        """Whether the write is done, or nobody waits for it any more."""
        if not job.cancelled:
            try:
                self._write(job, encode(job.parts))
            except FileNotFoundError:  # somebody has tidied up; what was written is lost, and found so when it is read
                self._forget_own()
                self.trouble = f"the spool's directory was deleted: {self.directory}"
                return False
            except OSError as error:
                self.trouble = f"{error.strerror or error}: {self.directory}"
                return False
            except Exception as fault:  # MemoryError, too: a thread that ends would end the spool
                self.trouble = f"{type(fault).__name__}: {self.directory}"
                return False
        if not job.cancelled or self._writes.empty():  # nobody waits for a write that may fail
            self.trouble = ""
        self._finish(job)
        return True

    def _own_directory(self) -> Path:
        """This process's, made and locked when something is written first. Raises OSError."""
        own = self._own
        if own is None:
            own = self.directory / self._name
            own.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(own / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(descriptor).st_ino != (own / LOCK).stat().st_ino:  # a process that starts has deleted it in between
                    raise FileNotFoundError(errno.ENOENT, "deleted meanwhile")
            except OSError:
                os.close(descriptor)
                raise
            self._lock_fd = descriptor
            self._own = own
        return own

    def _write(self, job: DiskJob, data: bytes) -> None:
        own = self._own_directory()
        found = os.statvfs(own)
        mark = max(self.low_watermark, found.f_blocks * found.f_frsize * self.low_share // 1000)
        if found.f_bavail * found.f_frsize - len(data) < mark:
            raise OSError(errno.ENOSPC, f"less than disk.low_watermark ({mark} bytes) free")
        descriptor = os.open(own / job.name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            view = memoryview(data)
            at = job.offset
            while view:
                count = os.pwrite(descriptor, view, at)
                view = view[count:]
                at += count
        finally:
            os.close(descriptor)
        job.length = len(data)
        self.written += len(data)

    def _read_all(self) -> None:
        while (job := self._reads.get()) is not None:
            if not self._try_read(job):
                self._closed.wait(RETRY_S)

    def _try_read(self, job: DiskJob) -> bool:
        """Whether the read or deletion is done. A read whose file may be whole is put behind the others, and done again."""
        try:
            self._read(job)
        except Exception as error:  # MemoryError, too
            job.tries += 1
            if job.kind == READ and may_pass(error, job.tries):
                self._reads.put(job)
                return False
            job.error = error
        self._finish(job)
        return True

    def _read(self, job: DiskJob) -> None:
        own = self._own
        if own is None:  # nothing was ever written
            return
        if job.kind == DELETE:
            with contextlib.suppress(FileNotFoundError):
                (own / job.name).unlink()
            return
        descriptor = os.open(own / job.name, os.O_RDONLY | os.O_CLOEXEC)
        try:
            pieces: list[bytes] = []
            left, at = job.length, job.offset
            while left > 0:
                piece = os.pread(descriptor, left, at)
                if not piece:
                    break
                pieces.append(piece)
                left -= len(piece)
                at += len(piece)
        finally:
            os.close(descriptor)
        job.data = b"".join(pieces)
        self.read += len(job.data)

    def __repr__(self) -> str:
        return f"<WaitingDisk {self.directory} used={self.used}/{self.max_bytes} {self.trouble}>"


def may_pass(error: Exception, tries: int) -> bool:
    """Whether a read that has failed so often, the last time so, may still succeed."""
    if not isinstance(error, OSError):
        return isinstance(error, MemoryError)
    return error.errno in SHORTAGES or (error.errno != errno.ENOENT and tries < READ_TRIES)


def delete_files(own: Path) -> None:
    """Delete a process's files, and its directory, as far as nothing else is in it. Raises OSError."""
    for file in own.iterdir():
        if file.name.isdecimal():
            file.unlink(missing_ok=True)
    (own / LOCK).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # somebody has put something else there
        own.rmdir()
