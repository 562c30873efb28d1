"""The access log: names, fields, rolling, and what happens when the disk does not follow."""

from __future__ import annotations

import json
import os
import shutil
import stat
import threading
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.counting import access_log_lines
from gateway.counting.access_log import (
    HURRIED_SLICES,
    MAX_QUEUED_KEYS,
    MAX_QUEUED_UNKNOWN,
    AccessLog,
    DiskSpace,
    LogWriter,
    Rolling,
    disk_space,
)
from gateway.counting.access_log_lines import SLICE_LINES, Second
from gateway.counting.accounts import Accounts
from gateway.counting.known_names import KNOWN_AFTER
from gateway.counting.thinning import thin_out
from limiter.keys import Key, Origin, Tally
from limiter.rules.sender import Sender
from limiter.topics import amqp_topic, rocketmq_topic

ROLLING = Rolling(300, 1 << 20, 0)
PATIENCE_S = 600.0  # seconds; as long as a busy machine may take to write a flood down
NOON = 1_795_262_400  # 2026-11-21T12:00:00Z


def lines(directory: Path) -> list[dict[str, Any]]:
    files = sorted(directory.glob("dt=*/hr=*/*.jsonl"))
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def key(client: str = "10.0.0.7") -> Key:
    return Key(Origin("rocketmq", Sender("rocket", client, None), b""), rocketmq_topic(b"orders"), b"p1", "produce")


def tally(**counts: int) -> Tally:
    made = Tally()
    for name, value in counts.items():
        setattr(made, name, value)
    return made


def open_log(directory: Path, roll_every_s: int = 300, roll_bytes: int = 1 << 20) -> AccessLog:
    log = AccessLog(directory, "orders-sidecar", "6f1c", Rolling(roll_every_s, roll_bytes, 0))
    log.start()
    return log


def stop(log: AccessLog, second: int) -> None:
    """The end of a gateway within `second`."""
    log.close_second(second)
    log.stop(PATIENCE_S)


def test_files_are_for_owner_and_group_only(tmp_path: Path) -> None:
    """They name topics, users and addresses. Folders that are there already stay as they are."""
    (tmp_path / "there").mkdir(mode=0o755)
    before = os.umask(0)
    try:
        log = open_log(tmp_path / "there" / "new" / "access-log")
        stop(log, NOON)
    finally:
        os.umask(before)
    (file,) = (tmp_path / "there").rglob("*.jsonl")
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (file, *file.parents)]
    assert modes[:6] == [0o640, 0o750, 0o750, 0o750, 0o750, 0o755]


def test_a_second_becomes_one_line_per_key_and_a_heartbeat(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.revision = 42
    orders = key()
    log.running.add(orders, tally(received=412, messages=400, bytes=90000, refused=12, refused_bytes=2710, peak_100ms=97))
    log.running.add(orders, tally(received=12, messages=12, bytes=3210, peak_100ms=12))
    stop(log, NOON)
    assert lines(tmp_path) == [
        {
            "v": 1, "ts": NOON, "gateway": "orders-sidecar", "boot": "6f1c", "seq": 0, "protocol": "rocketmq", "topic": "orders",
            "client": "10.0.0.7", "user": None, "group": "p1", "operation": "produce", "messages": 412, "bytes": 93210,
            "refused_messages": 12, "refused_bytes": 2710, "delayed_messages": 0, "dropped_messages": 0, "bypassed_messages": 0,
            "shadow_refused_messages": 0, "max_100ms_messages": 97, "revision": 42,
        },
        {"v": 1, "ts": NOON, "gateway": "orders-sidecar", "boot": "6f1c", "seq": 1, "heartbeat": True, "revision": 42},
    ]  # fmt: skip


def peaks(directory: Path) -> list[int]:
    return [line["max_100ms_messages"] for line in lines(directory) if "topic" in line]


def test_the_peak_is_an_upper_bound_where_a_line_stands_for_several_keys(tmp_path: Path) -> None:
    """As with a bucket per connection: one line, a key for each connection."""
    log = open_log(tmp_path)
    connections = [key() for _ in range(10)]
    for each in connections:
        log.running.add(each, tally(received=20, peak_100ms=20))
    log.close_second(NOON)
    for each in connections:  # folded twice within the second, once in the middle of the 100 ms
        log.running.add(each, tally(received=5, peak_100ms=5))
        log.running.add(each, tally(received=15, peak_100ms=9))
    log.close_second(NOON + 1)
    log.running.add(connections[0], tally(received=3, peak_100ms=8))  # its 100 ms began in the second before
    stop(log, NOON + 2)
    assert peaks(tmp_path) == [200, 90, 3]


def test_a_fold_in_the_middle_of_100_ms_hides_no_peak() -> None:
    accounts = Accounts()
    found: list[int] = []
    accounts.observers.append(lambda _, tally: found.append(tally.peak_100ms))
    orders = key()
    for messages, window in ((6, 70), (7, 70), (2, 71)):
        accounts.note(orders)
        orders.tally.receive(messages, window)
        accounts.fold(1)
    assert found == [6, 13, 2]


def test_clients_are_told_apart_and_amqp_topics_are_percent_encoded(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    amqp = Key(Origin("amqp", Sender("rabbit", "10.0.0.9", "shop"), b"/"), amqp_topic(b"/", b"orders", b"a.\xff"), None, "produce")
    for each in (key("10.0.0.1"), key("10.0.0.2"), amqp):
        log.running.add(each, tally(messages=1))
    stop(log, NOON)
    found = {(line["topic"], line["client"], line["user"]) for line in lines(tmp_path) if "topic" in line}
    assert found == {("orders", "10.0.0.1", None), ("orders", "10.0.0.2", None), ("%2F/orders/a.%FF", "10.0.0.9", "shop")}


def test_lines_are_made_on_the_writers_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And added up there: the event loop hands over what it was told, and no more."""
    makers: list[str] = []

    def text_of(*arguments: Any) -> str:
        makers.append(threading.current_thread().name)
        return access_log_lines.text_of(*arguments)

    monkeypatch.setattr("gateway.counting.access_log.text_of", text_of)
    log = AccessLog(tmp_path, "orders-sidecar", "6f1c", ROLLING)  # the writer is not started yet
    for second in range(3):
        log.running.add(key(), tally(messages=1))
        log.close_second(NOON + second)
    for waiting in log._writer._queue.queue:
        with pytest.raises(AssertionError):
            assert waiting.lines, "not added up"
    log.start()
    stop(log, NOON + 3)
    assert makers == ["access-log"] * 4
    assert [line["seq"] for line in lines(tmp_path)] == list(range(7))


def flood(log: AccessLog, keys: int) -> None:
    """So many topics and clients in the running second."""
    for number in range(keys):
        log.running.add(key(f"10.{number // 65536}.{number // 256 % 256}.{number % 256}"), tally(messages=1))


@pytest.mark.parametrize("free", [0, 1000], ids=["low disk", "room"])
def test_the_writer_rests_whether_or_not_what_it_has_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    rests: list[str] = []
    monkeypatch.setattr("gateway.counting.access_log.time", SimpleNamespace(sleep=lambda _: rests.append(threading.current_thread().name)))
    log = AccessLog(tmp_path, "orders-sidecar", "6f1c", Rolling(300, 1 << 20, 1000), lambda _: DiskSpace(free, 10_000))
    flood(log, 3 * SLICE_LINES)
    log.close_second(NOON)
    log.start()
    while log._writer._done < 3 * SLICE_LINES:
        pass
    stop(log, NOON + 1)
    assert rests == ["access-log"] * (5 if free else 2)  # between three slices when they are added up, and when they are made into text
    assert log.lost_lines == (0 if free else 3 * SLICE_LINES + 2)


def test_a_writer_that_is_behind_rests_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rests: list[float] = []
    monkeypatch.setattr("gateway.counting.access_log.time", SimpleNamespace(sleep=rests.append))
    log = AccessLog(tmp_path, "orders-sidecar", "6f1c", ROLLING)  # the writer is not started yet
    flood(log, 4 * HURRIED_SLICES * SLICE_LINES)
    log.close_second(NOON)
    log.close_second(NOON + 1)
    log.start()
    stop(log, NOON + 2)
    assert len(rests) == 2 * 4 - 1, "adding up ends between two slices, making text with one"
    assert log.lost_lines == 0


def test_a_second_that_waits_for_the_disk_does_not_change(tmp_path: Path) -> None:
    log = AccessLog(tmp_path, "orders-sidecar", "6f1c", ROLLING)  # the writer is not started yet
    for second in range(2):
        log.revision = second
        log.running.add(key(), tally(messages=second + 1))
        log.close_second(NOON + second)
    log.start()
    stop(log, NOON + 2)
    assert [(line["ts"] - NOON, line["messages"], line["revision"]) for line in lines(tmp_path) if "topic" in line] == [
        (0, 1, 0),
        (1, 2, 1),
    ]


def test_files_are_named_by_hour_and_rolled_by_age_size_and_hour(tmp_path: Path) -> None:
    log = open_log(tmp_path, roll_every_s=10)
    for second in (NOON, NOON + 9, NOON + 10, NOON + 3600):
        log.close_second(second)
    stop(log, NOON + 3601)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("*/*/*")) == [
        "dt=2026-11-21/hr=12/orders-sidecar-6f1c-000000.jsonl",
        "dt=2026-11-21/hr=12/orders-sidecar-6f1c-000001.jsonl",
        "dt=2026-11-21/hr=13/orders-sidecar-6f1c-000002.jsonl",
    ]


def test_a_full_file_is_rolled(tmp_path: Path) -> None:
    log = open_log(tmp_path, roll_bytes=150)
    for second in range(NOON, NOON + 4):
        log.close_second(second)
    stop(log, NOON + 4)
    assert len(list(tmp_path.glob("*/*/*.jsonl"))) == 3


def test_files_that_a_crash_left_open_are_closed_at_the_next_start_of_the_same_gateway(tmp_path: Path) -> None:
    folder = tmp_path / "dt=2026-11-21/hr=11"
    folder.mkdir(parents=True)
    (folder / "orders-sidecar-dead-000003.jsonl.open").write_text("{}\n")
    (folder / "orders-sidecar-dead-1000000.jsonl.open").write_text("{}\n")
    (folder / "orders-sidecar-2-beef-000000.jsonl.open").write_text("{}\n")  # another gateway, still writing
    stop(open_log(tmp_path), NOON)
    assert sorted(path.name for path in folder.iterdir()) == [
        "orders-sidecar-2-beef-000000.jsonl.open", "orders-sidecar-dead-000003.jsonl", "orders-sidecar-dead-1000000.jsonl",
    ]  # fmt: skip


def test_a_file_that_was_closed_by_others_costs_no_line(tmp_path: Path) -> None:
    """The clock jumps a day: for a moment the open file is of a day ago, as one that a crash has left, and the keeper gives it its name."""
    log = open_log(tmp_path)
    log.running.add(key(), tally(messages=1))
    log.close_second(NOON)
    wait_for_writer(log)
    (left,) = tmp_path.rglob("*.jsonl.open")
    left.rename(left.with_suffix(""))
    log.running.add(key(), tally(messages=2))
    stop(log, NOON + 86_400)
    assert [line["messages"] for line in lines(tmp_path) if "messages" in line] == [1, 2]
    assert log.lost_lines == log.failed_writes == 0


def test_a_full_queue_loses_lines_counts_them_and_leaves_a_gap_in_seq(tmp_path: Path) -> None:
    log = AccessLog(tmp_path, "orders-sidecar", "6f1c", ROLLING)  # the writer is not started: the disk hangs
    for second in range(NOON, NOON + 64):
        log.close_second(second)
    for keys in ([], [key()], [key("10.0.0.1"), key("10.0.0.2")]):
        for each in [*keys, *keys]:  # folded twice in the second
            log.running.add(each, tally(messages=1))
        log.close_second(NOON + 64)
    assert log.lost_lines == 1 + 2 + 3
    log.start()  # the disk is back
    writer = log._writer
    while not writer._queue.empty():
        pass
    log.running.add(key(), tally(messages=1))
    log.close_second(NOON + 100)
    stop(log, NOON + 101)
    numbers = [line["seq"] for line in lines(tmp_path)]
    assert numbers == [*range(64), 70, 71, 72]
    assert log.lost_lines == 6


@pytest.mark.slow
def test_queued_seconds_are_bounded_by_keys_too(tmp_path: Path) -> None:
    """Made-up topics cost their own lines, not memory. The writer is not started: it is far behind."""
    log = AccessLog(tmp_path, "orders-sidecar", "6f1c", ROLLING)
    invent(log, 0, MAX_QUEUED_UNKNOWN + 10)
    log.close_second(NOON)
    invent(log, 1, 0)
    log.close_second(NOON + 1)
    invent(log, 2, 7)
    log.close_second(NOON + 2)
    assert log._writer.waiting == MAX_QUEUED_UNKNOWN
    assert log.lost_lines == 10 + 7
    log.start()
    while log._writer.waiting:
        pass
    invent(log, 4, 5)
    log.close_second(NOON + 4)
    stop(log, NOON + 5)
    assert log.lost_lines == 17
    found = lines(tmp_path)
    seconds = Counter(line["ts"] - NOON for line in found)
    assert seconds == {0: MAX_QUEUED_UNKNOWN + 1, 1: 1, 2: 1, 4: 6, 5: 1}, "with the heartbeats"
    heartbeats = [line["seq"] for line in found if "heartbeat" in line]
    last = MAX_QUEUED_UNKNOWN + 10
    assert heartbeats == [last, last + 1, last + 1 + 7 + 1, last + 15, last + 16], "the gap stands before its second's heartbeat"


def invent(log: AccessLog, second: int, topics: int) -> None:
    """So many topics that nobody has ever named."""
    origin = Origin("rocketmq", Sender("rocket", "10.9.9.9", None), b"")
    for number in range(topics):
        log.running.add(Key(origin, rocketmq_topic(b"made-up-%d-%d" % (second, number)), None, "produce"), tally(messages=1))


STEADY = 50


def steady(log: AccessLog, clients: int = 2) -> None:
    """What goes on every second, with counts that tell whether a line is whole; each key is folded twice, as a scrape does."""
    for client in range(clients):
        origin = Origin("rocketmq", Sender("rocket", f"10.0.0.{client}", None), b"")  # a new one each second: clients come and go
        keys = [Key(origin, rocketmq_topic(b"steady-%d" % topic), b"p", "produce") for topic in range(STEADY)]
        for _ in range(2):
            for key in keys:
                log.running.add(key, tally(messages=10))


@pytest.mark.slow
@pytest.mark.parametrize("first", ["steady", "invented"])
def test_a_flood_of_invented_names_loses_its_own_lines_and_no_second_of_a_steady_topic(tmp_path: Path, first: str) -> None:
    """100,000 names a second beside 50 topics with two clients each, for three seconds, before a writer that hangs; in either order."""
    log = open_log(tmp_path, roll_bytes=1 << 30)
    for second in range(KNOWN_AFTER):
        steady(log)
        log.close_second(NOON + second)
    wait_for_writer(log)
    assert len(log._writer.known) == STEADY
    hanging = threading.Event()
    write = log._writer._write

    def hangs(second: Any) -> None:
        hanging.wait()
        write(second)

    log._writer._write = hangs  # type: ignore[method-assign]
    for second in range(KNOWN_AFTER, KNOWN_AFTER + 3):
        if first == "steady":
            steady(log)
        invent(log, second, 100_000)
        if first == "invented":
            steady(log)
        log.close_second(NOON + second)
    assert log._writer.waiting <= MAX_QUEUED_KEYS
    hanging.set()
    stop(log, NOON + KNOWN_AFTER + 3)
    found = lines(tmp_path)
    there = Counter((line["topic"], line["ts"] - NOON) for line in found if line.get("topic", "").startswith("steady"))
    assert there == {(f"steady-{topic}", second): 2 for topic in range(STEADY) for second in range(KNOWN_AFTER + 3)}
    assert {line["messages"] for line in found if line.get("topic", "").startswith("steady")} == {20}, "each line is whole"
    assert [line["ts"] - NOON for line in found if "heartbeat" in line] == list(range(KNOWN_AFTER + 4))
    kept = sum(line.get("topic", "").startswith("made-up") for line in found)
    assert 0 < kept <= MAX_QUEUED_UNKNOWN
    assert log.lost_lines == 300_000 - kept, "all that is lost is the flood's, and counted"
    numbers = [line["seq"] for line in found]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] + 1 - len(numbers) == log.lost_lines


@pytest.mark.slow
def test_known_topics_and_others_together_stay_within_the_bound(tmp_path: Path) -> None:
    """What known topics take is not there for others a second time."""
    log = open_log(tmp_path, roll_bytes=1 << 30)
    for second in range(KNOWN_AFTER):
        steady(log)
        log.close_second(NOON + second)
    wait_for_writer(log)
    clients = MAX_QUEUED_UNKNOWN // 2 // STEADY + 100  # two keys of each, as it is folded twice: more than half of the room
    closed = Second(NOON, 0, log.running)
    steady(log, clients)
    invent(log, 0, MAX_QUEUED_UNKNOWN)
    for _ in thin_out(closed, log._writer.known, MAX_QUEUED_KEYS, MAX_QUEUED_UNKNOWN):
        pass
    assert 2 * clients * STEADY > MAX_QUEUED_KEYS - MAX_QUEUED_UNKNOWN
    assert len(closed.gathering) == MAX_QUEUED_KEYS
    assert closed.dropped == 2 * clients * STEADY + MAX_QUEUED_UNKNOWN - MAX_QUEUED_KEYS
    stop(log, NOON + KNOWN_AFTER)


def test_a_second_that_is_being_thinned_out_at_a_stop_is_finished_before_the_last_one(tmp_path: Path) -> None:
    log = AccessLog(tmp_path, "orders-sidecar", "6f1c", ROLLING)
    invent(log, 0, MAX_QUEUED_UNKNOWN + 10)
    suspended = log.slices(NOON)
    next(suspended)
    log.close_second(NOON + 1)
    assert list(suspended) == [], "whoever began it finds it done"
    queued = [log._writer._queue.get_nowait() for _ in range(2)]
    assert [(each.ts - NOON, len(each.gathering)) for each in queued if each is not None] == [(0, MAX_QUEUED_UNKNOWN), (1, 0)]
    assert log.lost_lines == 10


def wait_for_writer(log: AccessLog) -> None:
    while log._writer.waiting or log._writer._queue.qsize():
        pass


def test_a_known_topic_whose_clients_or_groups_are_made_up_is_dropped_like_an_unknown_one(tmp_path: Path) -> None:
    log = open_log(tmp_path, roll_bytes=1 << 30)
    for second in range(KNOWN_AFTER):
        steady(log)
        log.close_second(NOON + second)
    wait_for_writer(log)
    steady(log)
    origin = Origin("rocketmq", Sender("rocket", "10.9.9.9", None), b"")
    for number in range(MAX_QUEUED_UNKNOWN + 1):
        log.running.add(Key(origin, rocketmq_topic(b"steady-7"), b"group-%d" % number, "produce"), tally(messages=1))
    log.close_second(NOON + KNOWN_AFTER)
    stop(log, NOON + KNOWN_AFTER + 1)
    there = {line["topic"] for line in lines(tmp_path) if line["ts"] == NOON + KNOWN_AFTER and "topic" in line}
    assert there == {f"steady-{topic}" for topic in range(STEADY)} - {"steady-7"}


def test_a_second_without_room_for_half_of_the_known_topics_is_lost_as_a_whole(tmp_path: Path) -> None:
    """Where the disk hangs a topic that is not there would seem idle; a second that is not there is known to be missing."""
    log = open_log(tmp_path, roll_bytes=1 << 30)
    for second in range(KNOWN_AFTER):
        steady(log)
        log.close_second(NOON + second)
    wait_for_writer(log)
    log._writer._offered += MAX_QUEUED_KEYS - STEADY  # of the four keys for each: a quarter
    steady(log)
    log.close_second(NOON + KNOWN_AFTER)
    log._writer._offered -= MAX_QUEUED_KEYS - STEADY
    assert log.lost_lines == 2 * STEADY + 1
    steady(log)
    stop(log, NOON + KNOWN_AFTER + 1)
    assert [line["ts"] - NOON for line in lines(tmp_path) if "heartbeat" in line] == [0, 1, 2, 4]


def test_a_failed_write_is_counted_reported_and_does_not_end_the_writer(tmp_path: Path) -> None:
    blocked = tmp_path / "log"
    blocked.write_text("a file where the directory should be")
    reports: list[str] = []
    log = AccessLog(blocked, "orders-sidecar", "6f1c", ROLLING)
    log.on_problem(reports.append)
    log.start()
    log.close_second(NOON)
    while not reports:
        pass
    blocked.unlink()
    stop(log, NOON + 1)
    assert log.failed_writes == 1
    assert "access_log: off" in reports[0]
    assert [line["ts"] for line in lines(blocked)] == [NOON + 1]


def test_a_disk_that_takes_no_write_is_left_without_empty_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quota of the disk that is full lets files be made, and was left one open file for each second; each failure counted twice."""
    real = os.fdopen

    def full(handle: int, mode: str) -> Any:
        os.close(handle)
        return real(os.open("/dev/full", os.O_WRONLY), mode)

    monkeypatch.setattr("gateway.counting.access_log.os.fdopen", full)
    log = open_log(tmp_path)
    for second in range(NOON, NOON + 3):
        log.close_second(second)
        while log.failed_writes <= second - NOON:
            pass
    monkeypatch.setattr("gateway.counting.access_log.os.fdopen", real)
    stop(log, NOON + 3)
    assert [line["ts"] for line in lines(tmp_path)] == [NOON + 3]
    assert log.failed_writes == 3
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 1


@pytest.mark.parametrize(("name", "safe"), [("orders-sidecar", "orders-sidecar"), ("a/b c", "a_b_c"), ("", "sluice")])
def test_the_gateway_name_is_safe_in_a_file_name(tmp_path: Path, name: str, safe: str) -> None:
    AccessLog(tmp_path, name, "b00t", ROLLING).stop(0.1)
    writer = AccessLog(tmp_path, name, "b00t", ROLLING)._writer
    assert isinstance(writer, LogWriter)
    assert writer.stem == f"{safe}-b00t"


class SmallDisk:
    """A disk that has `free` bytes, as the writer is told; waits to be asked."""

    def __init__(self, free: int) -> None:
        self.free = free
        self.asked = threading.Semaphore(0)

    def __call__(self, directory: Path) -> DiskSpace:
        assert directory.is_dir()
        free = self.free
        self.asked.release()
        return DiskSpace(free, 10_000)


def write_second(log: AccessLog, disk: SmallDisk, second: int) -> None:
    log.close_second(second)
    assert disk.asked.acquire(timeout=PATIENCE_S)


def test_nothing_is_written_below_the_low_watermark_of_the_disk(tmp_path: Path) -> None:
    disk = SmallDisk(1000)
    told: list[object] = []
    log = AccessLog(tmp_path, "orders-sidecar", "6f1c", Rolling(300, 1 << 20, 1000), disk)
    log.on_problem(told.append, told.append)
    log.start()
    write_second(log, disk, NOON)
    disk.free = 999
    for second in range(1, 6):
        log.running.add(key(), tally(received=1, messages=1))
        write_second(log, disk, NOON + second)
    while not told:
        pass
    assert [line["seq"] for line in lines(tmp_path)] == [0], "what was written has its final name"
    disk.free = 1000
    write_second(log, disk, NOON + 6)
    stop(log, NOON + 7)
    assert [line["seq"] for line in lines(tmp_path)] == [0, 11, 12], "the gap shows what is missing"
    assert (log.lost_lines, log.failed_writes, log.disk_low, log.free_bytes) == (10, 0, False, 1000)
    (problem, lost) = told
    assert "disk.low_watermark (1000 bytes)" in str(problem)
    assert "access_log: off" in str(problem)
    assert lost == 10, "told once when it begins, once when it is over"


def test_a_disk_that_was_never_looked_at_is_not_low(tmp_path: Path) -> None:
    log = AccessLog(tmp_path, "orders-sidecar", "6f1c", ROLLING)
    assert (log.disk_low, log.free_bytes, log.lost_lines) == (False, -1, 0)


def test_the_space_is_that_of_the_directorys_disk_as_df_has_it(tmp_path: Path) -> None:
    found = shutil.disk_usage(tmp_path)
    free, size = disk_space(tmp_path)
    assert free == pytest.approx(found.free, rel=0.05)
    assert size == pytest.approx(found.used + found.free, rel=0.05)


@pytest.mark.parametrize(
    ("mark", "share", "size", "free", "written"),
    [
        (200, 120, 10_000, 1_200, True),
        (200, 120, 10_000, 1_199, False),  # 88 % are used: RocketMQ's broker stops at 90 %
        (200, 120, 1_000, 200, True),
        (200, 120, 1_000, 199, False),  # of a small disk the size is more
        (200, 0, 10_000, 200, True),
    ],
)
def test_the_low_watermark_is_a_size_or_a_share_whichever_is_more(
    tmp_path: Path, mark: int, share: int, size: int, free: int, written: bool
) -> None:
    log = AccessLog(tmp_path, "orders-sidecar", "6f1c", Rolling(300, 1 << 20, mark, share), lambda _: DiskSpace(free, size))
    log.start()
    log.close_second(NOON)
    stop(log, NOON + 1)
    assert (log.disk_low, bool(lines(tmp_path))) == (not written, written)
