"""What the disk's side counts of topics, what its threads do in files, and when it says that it cannot be written."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.clock import now_ns
from gateway.pipeline.parts import REQUEST, Part
from gateway.waiting.disk.left_behind import clear_left_behind
from gateway.waiting.disk.records import encode
from gateway.waiting.disk.waiting_disk import DELETE, LOCK, OWN, READ, READ_TRIES, WRITE, DiskJob, WaitingDisk
from support.processes import HANG_S, wait_until


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[WaitingDisk]:
    found = WaitingDisk(tmp_path / "spool", 1 << 20, 1 << 20, threads=False)
    yield found
    found.close(1.0)


def test_messages_are_counted_by_topic_and_in_all(disk: WaitingDisk) -> None:
    disk.waiting.count("amqp", "a", 3, 300)
    disk.waiting.count("amqp", "b", 1, 50)
    disk.waiting.count("amqp", "a", -1, -100)
    assert {text: (each.messages, each.bytes) for (_, text), each in disk.waiting.topics.items()} == {"a": (2, 200), "b": (1, 50)}
    assert disk.waiting.messages == 3
    disk.waiting.count("amqp", "b", -1, -50)
    assert (list(disk.waiting.topics), disk.waiting.messages) == ([("amqp", "a")], 2)


def test_a_topic_has_waited_since_its_first_message_that_found_none_of_it(disk: WaitingDisk) -> None:
    before = now_ns()
    disk.waiting.count("amqp", "a", 1, 10)
    since = disk.waiting.topics["amqp", "a"].since
    disk.waiting.count("amqp", "a", 1, 10)
    disk.waiting.count("amqp", "a", -1, -10)
    assert disk.waiting.topics["amqp", "a"].since == since >= before
    disk.waiting.count("amqp", "a", -1, -10)
    disk.waiting.count("amqp", "a", 1, 10)
    assert disk.waiting.topics["amqp", "a"].since >= since


def test_a_rule_has_room_up_to_its_own_bytes_and_all_rules_up_to_the_spool_s(disk: WaitingDisk) -> None:
    disk.add("a", 300)
    disk.used = 400
    assert disk.room_for(100, "a", 400)
    assert not disk.room_for(101, "a", 400), "a has some already"
    assert disk.room_for(400, "b", 400), "and b nothing"
    assert not disk.room_for(401, "b", 400)
    assert disk.room_for((1 << 20) - 400, "a", 1 << 30)
    assert not disk.room_for((1 << 20) - 399, "a", 1 << 30), "the spool is full"
    disk.add("a", -300)
    assert disk.used_by == {}
    assert disk.room_for(400, "a", 400)


def test_the_trouble_is_over_when_nobody_waits_for_the_write_that_failed(disk: WaitingDisk) -> None:
    """The client whose message could not be written had gone; until the next write, the spool would have been said to be broken."""
    disk.directory.write_text("a file where the directory should be")
    first, second = (DiskJob(None, WRITE, "1", at) for at in (0, 10))
    disk.submit(first)
    disk.submit(second)
    disk.work(WRITE)
    assert disk.trouble.startswith(("Not a directory", "File exists"))
    first.cancelled = True
    disk.work(WRITE)
    assert disk.trouble, "the next write waits, and nothing says that it will succeed"
    second.cancelled = True
    disk.work(WRITE)
    assert disk.trouble == ""
    assert disk.collect() == [first, second]


def test_a_spool_that_is_closed_leaves_no_descriptor_open_and_no_file(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        closed = WaitingDisk(tmp_path / "spool", 1 << 20, 1 << 20)
        closed.close(HANG_S)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def tried(disk: WaitingDisk, kind: int, name: str, offset: int = 0, length: int = 0) -> DiskJob:
    """A job, tried once. What is written is one message of a thousand bytes."""
    parts = [Part(REQUEST, 1, bytes(1_000), 0, 1_000)] if kind == WRITE else []
    job = DiskJob(None, kind, name, offset, length, parts)
    disk.submit(job)
    assert disk.work(kind)
    return job


WRITTEN = len(encode([Part(REQUEST, 1, bytes(1_000), 0, 1_000)]))  # bytes


def test_what_a_queue_may_have_in_memory_is_its_part_of_a_third_within_what_a_batch_may_be(tmp_path: Path) -> None:
    disk = WaitingDisk(tmp_path, 1 << 20, 3_000, threads=False, least=10, most=400)
    found = []
    for disk.queues in (0, 1, 2, 4, 5, 100, 101):
        found.append(disk.share())
    assert found == [400, 400, 400, 250, 200, 10, 10]
    disk.close(1.0)


@pytest.mark.parametrize("mark", ["bytes", "share"])
def test_nothing_is_written_that_leaves_less_free_than_the_low_watermark(
    disk: WaitingDisk, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """The larger of the two holds. Of 4,000 blocks of 50 bytes, 100 thousandths are 20,000."""
    free = [20_000 + 50 * (WRITTEN // 50)]

    def statvfs(path: Path) -> os.statvfs_result:
        """Blocks of 50 bytes, read a mebibyte at a time; root alone may have more of them."""
        return os.statvfs_result((1 << 20, 50, 4_000, 1 << 40, free[0] // 50, 0, 0, 0, 0, 255))

    monkeypatch.setattr("gateway.waiting.disk.waiting_disk.os.statvfs", statvfs)
    disk.take_settings(1 << 20, 1 << 20, *((20_000, 99) if mark == "bytes" else (19_999, 100)))
    job = tried(disk, WRITE, "1")
    assert disk.trouble == f"less than disk.low_watermark (20000 bytes) free: {disk.directory}"
    assert (disk.collect(), disk.written) == ([], 0)
    free[0] += 50
    assert disk.work(WRITE)
    assert (disk.collect(), disk.written, job.length, disk.trouble) == ([job], WRITTEN, WRITTEN, "")
    assert not disk.work(WRITE), "it is not written again"


def test_a_write_that_failed_half_way_is_repeated_in_the_same_place(disk: WaitingDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk takes a hundred bytes at a time, and is full once."""
    calls: list[int] = []

    def pwrite(descriptor: int, data: memoryview, at: int) -> int:
        calls.append(at)
        if len(calls) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data[:100], at)

    write = os.pwrite
    monkeypatch.setattr("gateway.waiting.disk.waiting_disk.os.pwrite", pwrite)
    job = tried(disk, WRITE, "1", offset=7)
    assert disk.trouble == f"No space left on device: {disk.directory}"
    assert disk.work(WRITE)
    assert calls[:5] == [7, 107, 207, 7, 107]
    (file,) = disk.directory.glob("*/1")
    assert file.read_bytes() == bytes(7) + encode(job.parts)


def test_what_is_read_is_the_range_that_was_asked_for_as_far_as_there_is_one(disk: WaitingDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    first = tried(disk, WRITE, "1")
    tried(disk, WRITE, "1", offset=WRITTEN)
    whole = encode(first.parts) * 2
    read = os.pread
    monkeypatch.setattr("gateway.waiting.disk.waiting_disk.os.pread", lambda descriptor, count, at: read(descriptor, min(count, 300), at))
    assert tried(disk, READ, "1", 10, 1_500).data == whole[10:1_510]
    assert tried(disk, READ, "1", WRITTEN, 5_000).data == whole[WRITTEN:]
    assert disk.read == 1_500 + WRITTEN
    assert isinstance(tried(disk, READ, "2", 0, 1).error, FileNotFoundError)


@pytest.mark.parametrize(
    ("fault", "tries", "passes"),
    [
        (OSError(errno.EMFILE, "Too many open files"), 3 * READ_TRIES, True),
        (MemoryError(), 3 * READ_TRIES, True),
        (OSError(errno.EIO, "Input/output error"), READ_TRIES - 1, True),
        (OSError(errno.EIO, "Input/output error"), READ_TRIES, False),
    ],
    ids=["no descriptor", "no memory", "a disk that fails", "a disk that goes on failing"],
)
def test_a_read_that_fails_while_its_file_is_whole_is_done_again_behind_the_others(
    disk: WaitingDisk, monkeypatch: pytest.MonkeyPatch, fault: Exception, tries: int, passes: bool
) -> None:
    """Until November 2026 the file was taken for damaged at once, and all that waited in its queue was given up."""
    left = tries

    def pread(descriptor: int, count: int, at: int) -> bytes:
        nonlocal left
        if count == 100 and left:
            left -= 1
            raise fault
        return read(descriptor, count, at)

    read = os.pread
    written = encode(tried(disk, WRITE, "1").parts)
    disk.collect()
    monkeypatch.setattr("gateway.waiting.disk.waiting_disk.os.pread", pread)
    failing = tried(disk, READ, "1", length=100)
    other = tried(disk, READ, "1", length=50)
    for _ in range(tries):
        disk.work(READ)
    assert disk.collect() == [other, failing]
    assert (failing.data, failing.error) == ((written[:100], None) if passes else (b"", fault))


def open_in(folder: Path) -> int:
    """How many descriptors of this process lead there."""
    found = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # of another thread, closed meanwhile
            found += str(descriptor.readlink()).startswith(str(folder))
    return found


def test_no_job_leaves_a_descriptor_open_whether_or_not_it_failed(disk: WaitingDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    tried(disk, WRITE, "1")
    before = open_in(disk.directory)
    assert before == 1, "the lock"
    for kind in (WRITE, READ, DELETE, READ):
        tried(disk, kind, "1", length=100)
    monkeypatch.setattr("gateway.waiting.disk.waiting_disk.os.pwrite", refuse)
    monkeypatch.setattr("gateway.waiting.disk.waiting_disk.os.pread", refuse)
    tried(disk, READ, "1", length=100)
    tried(disk, WRITE, "2")
    assert disk.trouble.startswith("Input/output error")
    assert open_in(disk.directory) == before


def test_a_deletion_that_failed_keeps_its_bytes_counted_and_is_tried_again_after_the_next(disk: WaitingDisk) -> None:
    disk.used = 2_000
    tried(disk, WRITE, "1")
    (file,) = disk.directory.glob("*/1")
    file.unlink()
    file.mkdir()
    disk.collect()
    deleted = [tried(disk, DELETE, "1", length=500), tried(disk, DELETE, "gone", length=100)]
    assert deleted == disk.collect()
    assert isinstance(deleted[0].error, OSError)
    disk.finish_deletion(deleted[0])
    assert (disk.used, disk.work(DELETE)) == (2_000, False)
    file.rmdir()
    disk.finish_deletion(deleted[1])
    assert disk.used == 1_900, "a file that is gone is deleted"
    assert disk.work(DELETE)
    disk.finish_deletion(*disk.collect())
    assert (disk.used, disk.work(DELETE)) == (1_400, False)


def test_a_process_has_its_own_directory_that_nobody_else_may_look_into(tmp_path: Path) -> None:
    disk = WaitingDisk(tmp_path / "spool", 1 << 20, 1 << 20, threads=False)
    assert not disk.directory.exists(), "nothing was written"
    assert tried(disk, READ, "1").data == b""
    tried(disk, WRITE, "1")
    (own,) = disk.directory.iterdir()
    assert OWN.fullmatch(own.name)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (own, own / "1", own / LOCK)] == [0o700, 0o600, 0o600]
    assert clear_left_behind(disk.directory).files == 0, "it lives"
    (own / "notes.txt").touch()
    disk.close(1.0)
    assert [path.name for path in own.iterdir()] == ["notes.txt"]


def test_threads_that_cannot_be_started_are_tried_again_with_the_next_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = WaitingDisk(tmp_path / "spool", 1 << 20, 1 << 20)
    allowed = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name == "sluice-spool-write":
            raise RuntimeError("can't start new thread")
        allowed(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    jobs = [DiskJob(None, WRITE, "1", parts=[Part(REQUEST, 1, b"x", 0, 1)]), DiskJob(None, DELETE, "2")]
    disk.submit(jobs[0])
    assert disk.trouble == f"can't start new thread: {disk.directory}"
    monkeypatch.undo()
    disk.submit(jobs[1])
    done: list[DiskJob] = []

    def both() -> bool:
        done.extend(disk.collect())
        return len(done) == 2

    wait_until(both, within=HANG_S, what="both are done")
    assert sorted(done, key=lambda job: job.kind) == jobs
    assert disk.trouble == ""
    disk.close(HANG_S)
    assert not list((tmp_path / "spool").iterdir())


def test_a_disk_that_stays_full_is_tried_again_until_the_end_and_does_not_keep_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = WaitingDisk(tmp_path / "spool", 1 << 20, 1 << 20)
    tries: list[int] = []

    def pwrite(descriptor: int, data: memoryview, at: int) -> int:
        tries.append(at)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("gateway.waiting.disk.waiting_disk.os.pwrite", pwrite)
    disk.submit(DiskJob(None, WRITE, "1", parts=[Part(REQUEST, 1, b"x", 0, 1)]))
    wait_until(lambda: len(tries) >= 2, within=HANG_S, what="a second try")
    disk.close(HANG_S)
    assert not list((tmp_path / "spool").iterdir()), "its thread has ended, and its files are gone"
    assert len(tries) < 1_000, "there are pauses between two"


def test_a_disk_that_hangs_does_not_keep_the_end_and_its_files_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = WaitingDisk(tmp_path / "spool", 1 << 20, 1 << 20)
    begun, goes_on = threading.Event(), threading.Event()

    def pwrite(descriptor: int, data: memoryview, at: int) -> int:
        begun.set()
        goes_on.wait(HANG_S)
        return write(descriptor, data, at)

    write = os.pwrite
    monkeypatch.setattr("gateway.waiting.disk.waiting_disk.os.pwrite", pwrite)
    disk.submit(DiskJob(None, WRITE, "1", parts=[Part(REQUEST, 1, b"x", 0, 1)]))
    assert begun.wait(HANG_S)
    closing = threading.Thread(target=disk.close, args=(0.01,), daemon=True)
    closing.start()
    closing.join(HANG_S)
    assert not closing.is_alive()
    os.fstat(disk.fileno())
    assert list(disk.directory.glob("*/1"))
    goes_on.set()
    closing = threading.Thread(target=disk.close, args=(HANG_S,), daemon=True)
    closing.start()
    closing.join(HANG_S)
    assert not list(disk.directory.iterdir())
