"""A queue of the spool over a real disk: order, accounts, room, faults of the disk, and what is left behind."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from gateway.pipeline.held_budget import HeldBudget
from gateway.pipeline.parts import BODY, REQUEST, Part
from gateway.waiting.disk.left_behind import clear_left_behind
from gateway.waiting.disk.queue import PagedQueue
from gateway.waiting.disk.queue_files import SEGMENT_BYTES
from gateway.waiting.disk.waiting_disk import MAX_BATCH_BYTES, MIN_BATCH_BYTES, WaitingDisk
from limiter.judge import Judge
from limiter.keys import Key
from limiter.limits import NEVER, Limit, Rate
from limiter.rules.rule_set import Match, Rule, RuleSet
from limiter.topics import amqp_topic
from support.processes import HANG_S, wait_until

JUDGE = Judge(RuleSet(()))
ORIGIN = JUDGE.origin("amqp", "here", "10.0.0.7", "shop", b"/", 1)
KEY = JUDGE.key(ORIGIN, b"orders", amqp_topic(b"/", b"", b"orders"))
ENDLESS = 1 << 60  # bytes; no disk has so many free


def key_of(data: bytes) -> Key:
    return KEY


def cost_of(part: Part) -> int:
    return part.end - part.start + 400


def message(number: int, size: int = 100) -> Part:
    data = number.to_bytes(8, "big") + bytes(size - 8)
    return Part(REQUEST, 1, data, 0, len(data), KEY, 1, 1, size)


def number_of(part: Part) -> int:
    return int.from_bytes(part.data[:8], "big")


class Bench:
    """A disk, a queue, and the loop's part."""

    def __init__(self, directory: Path, *, size: int = 1 << 30, memory: int = 1, most: int = MAX_BATCH_BYTES) -> None:
        self.disk = WaitingDisk(directory, size, memory, most=most)
        self.budget = HeldBudget()
        self.ready = 0
        self.queue = PagedQueue(self.disk, self.budget, 1, 1, key_of, cost_of, self._on_ready)

    def _on_ready(self) -> None:
        self.ready += 1

    def add(self, part: Part) -> None:
        self.budget.held_bytes += cost_of(part)
        self.queue.add(part)

    def turn(self, within: float = 0.0) -> None:
        """What the loop does when the spool's descriptor is readable, if it is so within this time."""
        select.select([self.disk.fileno()], [], [], within)
        for job in self.disk.collect():
            self.queue.finish_job(job)
        for _ in range(len(self.disk.out_of_room)):
            waiting = self.disk.out_of_room.popleft()
            assert waiting is self.queue
            self.queue.resume_writing()

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        def met() -> bool:
            self.turn(0.01)
            return condition()

        wait_until(met, within=30, what=what)

    def take(self, count: int) -> list[int]:
        """The numbers of at least the next `count` messages."""
        taken: list[int] = []
        while len(taken) < count:
            parts = self.queue.take()
            if not parts:
                assert not self.queue.damage, self.queue.damage
                self.wait(lambda: bool(self.queue.read_ahead), "the next batch is read")
                continue
            for part in parts:
                self.budget.held_bytes -= cost_of(part)
                self.disk.waiting.end(part)
            taken += [number_of(part) for part in parts]
        return taken

    def files(self) -> list[Path]:
        return [path for path in self.disk.directory.rglob("*") if path.is_file() and path.name != "lock"]

    def holds_nothing(self) -> bool:
        budget, paging = self.budget, self.disk.paging
        memory = (budget.held_bytes, budget.paging_bytes, paging.tails, paging.writing, paging.read_ahead)
        return (memory, budget.paged_bytes, budget.paged_queues, self.disk.waiting.topics) == ((0, 0, 0, 0, 0), 0, 0, {})


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "spool")
    yield bench
    bench.disk.close(5)


def test_a_short_burst_never_touches_the_disk(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "spool", memory=32 << 20)
    for number in range(100):
        bench.add(message(number))
    assert bench.take(100) == list(range(100))
    assert bench.holds_nothing()
    assert not (tmp_path / "spool").exists()
    bench.disk.close(0)


@pytest.mark.parametrize(("size", "within"), [(0, False), (1, True)])
def test_what_ends_within_a_frame_is_not_written_before_the_rest_of_it_has_come(bench: Bench, size: int, within: bool) -> None:
    """`size` of what continues a body: what its frame still lacks."""
    bench.add(message(0))
    bench.add(Part(BODY, 1, b"x", 0, 1, KEY, 0, 0, size))
    bench.queue.write_tail()
    assert (bench.queue.within_frame, bool(bench.queue.tail)) == (within, within)


def test_a_long_one_comes_back_in_order_and_leaves_no_file(bench: Bench) -> None:
    for number in range(50_000):
        bench.add(message(number))
        if number % 100 == 0:
            bench.turn()
    bench.wait(lambda: not bench.queue.writing, "all is written")
    assert bench.budget.held_bytes < 2 * MIN_BATCH_BYTES
    assert bench.budget.paged_bytes > 50_000 * 100 - MIN_BATCH_BYTES
    assert bench.disk.waiting.topics[KEY.origin.protocol, KEY.text].messages == 50_000
    assert bench.take(50_000) == list(range(50_000))
    assert bench.holds_nothing()
    bench.wait(lambda: bench.disk.used == 0, "the files are deleted")
    assert bench.files() == []


@pytest.mark.slow
def test_a_message_on_disk_takes_less_than_32_bytes_of_memory(tmp_path: Path) -> None:
    """What is in memory takes its own bytes, up to a share of `memory.target`; beside that there is a batch for some hundred messages."""
    bench = Bench(tmp_path / "spool", memory=32 << 20)
    count = 50_000

    def add(number: int) -> None:
        bench.add(message(number, 1_000))
        if number % 100 == 0:
            bench.turn()

    for number in range(2_000):  # its share is full, and files are open
        add(number)
    tracemalloc.start()
    try:
        for number in range(2_000, 2_000 + count):
            add(number)
        bench.wait(lambda: not bench.queue.writing, "all is written")
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    per_message = (used - bench.queue.tail_cost) / count
    assert per_message < 32, f"{per_message:.1f} bytes"
    assert bench.budget.paged_bytes > count * 1_000
    bench.queue.forget()
    bench.disk.close(5)


def test_coming_and_going_mixed_at_random(bench: Bench) -> None:
    random = Random(7)
    put = 0
    got: list[int] = []
    for _ in range(3_000):
        if random.random() < 0.6:
            for _ in range(random.randint(1, 30)):
                bench.add(message(put, random.randint(8, 2_000)))
                put += 1
        elif put > len(got):
            got += bench.take(1)
        bench.turn()
    got += bench.take(put - len(got)) if put > len(got) else []
    assert got == list(range(put))
    assert bench.holds_nothing()
    bench.wait(lambda: bench.disk.used == 0, "the files are deleted")


def test_files_are_deleted_as_they_are_read_through(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "spool", memory=32 << 20)
    count = 5 * SEGMENT_BYTES // 100_000
    for number in range(count):
        bench.add(message(number, 100_000))
        bench.turn()
    bench.wait(lambda: not bench.queue.writing, "all is written")
    assert len(bench.files()) == 5
    taken = bench.take(count // 2)
    bench.wait(lambda: len(bench.files()) <= 3, "what was read through is deleted")
    bench.take(count - len(taken))
    bench.wait(lambda: bench.files() == [], "the rest is")
    bench.disk.close(5)


def test_what_is_given_up_is_counted_and_deleted(bench: Bench) -> None:
    for number in range(10_000):
        bench.add(message(number))
        if number == 5_000:
            bench.wait(lambda: not bench.queue.writing, "a part of it is written")
    [given_up] = bench.queue.forget()
    assert (given_up.key, given_up.count, given_up.end) == (KEY, 10_000, 0)
    assert bench.queue.empty()
    assert bench.holds_nothing()
    bench.wait(lambda: bench.disk.used == 0, "the files are deleted")
    bench.add(message(1))
    assert bench.take(1) == [1], "the queue goes on"


def test_a_queue_that_is_given_up_takes_its_own_part_of_a_topic_along(bench: Bench) -> None:
    """Two connections publish to one topic, and one of them ends."""
    other = PagedQueue(bench.disk, HeldBudget(), 2, 1, key_of, cost_of, lambda: None)
    for number in range(3):
        bench.add(message(number, 100))
    one = message(0, 1_000)
    other.add(one)
    bench.queue.forget()
    left = bench.disk.waiting.topics[KEY.origin.protocol, KEY.text]
    assert (left.messages, left.bytes) == (1, 1_000)
    other.forget()
    assert bench.disk.waiting.topics == {}


def test_a_full_disk_loses_nothing_and_says_so(bench: Bench) -> None:
    bench.disk.low_watermark = ENDLESS
    for number in range(1_000):
        bench.add(message(number))
    bench.wait(lambda: bench.disk.trouble != "", "the trouble is said")
    assert "disk.low_watermark" in bench.disk.trouble
    assert bench.budget.held_bytes == 1_000 * 500, "it stays in memory, and counts for its connection"
    bench.disk.low_watermark = 0
    bench.wait(lambda: not bench.queue.writing, "it is written when there is room")
    assert bench.disk.trouble == ""
    assert bench.take(1_000) == list(range(1_000))


def test_what_is_not_written_yet_can_be_taken_although_the_disk_is_full(bench: Bench) -> None:
    bench.disk.low_watermark = ENDLESS
    for number in range(1_000):
        bench.add(message(number))
    assert bench.take(1_000) == list(range(1_000))
    assert bench.holds_nothing()
    bench.wait(lambda: bench.disk.used == 0, "nothing is kept for it")


def test_no_more_than_its_size_is_written(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "spool", size=100_000)
    for number in range(2_000):
        bench.add(message(number))
        bench.turn()
    assert bench.disk.used <= 100_000
    assert sum(path.stat().st_size for path in bench.files()) <= 100_000
    assert bench.budget.held_bytes > 100_000, "the rest is in memory, and counts for its connection"
    assert bench.take(2_000) == list(range(2_000))
    assert bench.holds_nothing()
    bench.disk.close(5)


@pytest.mark.parametrize("fault", ["flipped", "torn", "gone"])
def test_a_damaged_file_ends_the_queue_with_a_reason(bench: Bench, fault: str) -> None:
    for number in range(1_000):
        bench.add(message(number))
    bench.wait(lambda: not bench.queue.writing, "it is written")
    [file] = bench.files()
    if fault == "flipped":
        with file.open("r+b") as opened:
            opened.seek(500)
            byte = opened.read(1)
            opened.seek(500)
            opened.write(bytes([byte[0] ^ 4]))
    elif fault == "torn":
        os.truncate(file, 500)
    else:
        file.unlink()
    assert bench.queue.take() == []
    bench.wait(lambda: bench.queue.damage != "", "the damage is found")
    expected = {"flipped": "its checksum does not fit", "torn": "a batch of ", "gone": "No such file"}[fault]
    assert expected in bench.queue.damage
    assert bench.disk.lost_batches == 1
    assert bench.queue.take() == []
    [given_up] = bench.queue.forget()
    assert given_up.count == 1_000
    bench.wait(lambda: bench.disk.used == 0, "nothing is kept of it")
    assert (bench.disk.queues, bench.disk.waiting.messages, bench.disk.waiting.topics) == (0, 0, {})


def test_a_directory_that_somebody_has_deleted_is_made_again(bench: Bench, tmp_path: Path) -> None:
    for number in range(100):
        bench.add(message(number))
    bench.wait(lambda: not bench.queue.writing, "it is written")
    bench.queue.forget()
    bench.wait(lambda: bench.disk.used == 0, "the files are deleted")
    shutil.rmtree(tmp_path / "spool")
    for number in range(100):
        bench.add(message(number))
    bench.wait(lambda: not bench.queue.writing and bench.disk.trouble == "", "it is written again")
    assert bench.take(100) == list(range(100))


def test_a_rule_with_a_size_writes_no_more_than_that_and_goes_on_as_it_is_read(bench: Bench) -> None:
    size = 1 << 20
    bench.queue.take_rule(Rule("r", Match(), limit=Limit(messages=Rate(1)), action="spool", spool_size=size))
    count = 2 * size // 1000
    for number in range(count):
        bench.add(message(number, 1000))
    bench.wait(lambda: bench.queue.waits_for_room and not bench.queue.writing, "its part is full")
    assert size - 2 * MIN_BATCH_BYTES < bench.disk.used_by["r"] <= size
    assert bench.take(count) == list(range(count))
    assert bench.holds_nothing()


@pytest.mark.parametrize(("size", "part"), [(1 << 30, 256 << 20), (2 << 20, 1 << 20)])
def test_several_workers_have_equal_parts_of_what_a_rule_may_write(tmp_path: Path, size: int, part: int) -> None:
    """Each had all of it until November 2026."""
    disk = WaitingDisk(tmp_path / "spool", 1 << 40, 1, threads=False, workers=4)
    queue = PagedQueue(disk, HeldBudget(), 1, 1, key_of, cost_of, lambda: None)
    queue.take_rule(Rule("r", Match(), limit=Limit(messages=Rate(1)), action="spool", spool_size=size))
    assert disk.room_for(part, queue.rule, queue.rule_bytes)
    assert not disk.room_for(part + 1, queue.rule, queue.rule_bytes)
    disk.close(0)


def test_what_waits_is_told_in_memory_and_on_disk(bench: Bench) -> None:
    """Also what is read ahead, and what is out of the queue and has not gone on."""
    for number in range(1_000):
        bench.add(message(number))
    bench.wait(lambda: not bench.queue.writing, "it is written")
    waiting = bench.disk.waiting.topics[KEY.origin.protocol, KEY.text]
    in_memory = len(bench.queue.tail)
    assert (waiting.messages, waiting.disk_messages) == (1_000, 1_000 - in_memory)
    assert (waiting.bytes, waiting.disk_bytes) == (100_000, 100 * (1_000 - in_memory))
    assert bench.queue.take() == []
    bench.wait(lambda: bool(bench.queue.read_ahead), "the first batch is read")
    parts = bench.queue.take()
    assert (waiting.messages, waiting.disk_messages) == (1_000, 1_000 - in_memory - len(parts)), "they are held before the queue"
    for part in parts:
        bench.disk.waiting.end(part)
    assert waiting.messages == bench.disk.waiting.messages == 1_000 - len(parts)
    bench.queue.forget()
    assert (bench.disk.waiting.messages, bench.disk.waiting.disk_messages, bench.disk.waiting.topics) == (0, 0, {})


def test_counts_are_right_when_a_topic_has_another_key_by_now(bench: Bench) -> None:
    """As after a reload that groups topics by the first words of their routing keys."""
    for number in range(100):
        bench.add(message(number))
    bench.wait(lambda: not bench.queue.writing, "it is written")
    other = JUDGE.key(ORIGIN, b"other", amqp_topic(b"/", b"", b"other"))
    bench.queue.key_of = lambda data: other
    assert bench.take(100) == list(range(100))
    assert bench.holds_nothing()


@pytest.mark.parametrize("where", ["in memory", "on its way", "on disk"])
def test_what_has_passed_by_other_rules_is_judged_again(bench: Bench, where: str) -> None:
    bench.disk.low_watermark = ENDLESS if where == "on its way" else 0
    most = 3 if where == "in memory" else 30
    for number in range(most):
        part = message(number)
        part.paid, part.passed = True, 1
        bench.add(part)
    if where == "on disk":
        bench.wait(lambda: len(bench.queue.stored) > 0 and not bench.queue.writing, "it is written")
    bench.queue.forget_verdicts()
    found: list[Part] = []
    while len(found) < most:
        more = bench.queue.take()
        found += more
        if not more:
            bench.wait(lambda: bool(bench.queue.read_ahead), "the next batch is read")
    assert [(part.paid, part.passed, part.again, part.deadline) for part in found] == [(False, 0, True, NEVER)] * most


def test_nothing_else_is_deleted_that_looks_alike(tmp_path: Path) -> None:
    foreign = tmp_path / "dpkg"
    foreign.mkdir()
    (foreign / "lock").touch()
    ours = tmp_path / "123-0123abcd"
    ours.mkdir()
    for name in ("lock", "1", "notes.txt"):
        (ours / name).touch()
    found = clear_left_behind(tmp_path)
    assert (found.files, found.size, found.kept) == (1, 0, [])
    assert (foreign / "lock").exists()
    assert [path.name for path in ours.iterdir()] == ["notes.txt"]


def test_what_a_killed_process_has_left_is_deleted_and_nothing_of_a_living_one(bench: Bench, tmp_path: Path) -> None:
    for number in range(1_000):
        bench.add(message(number))
    bench.wait(lambda: not bench.queue.writing, "it is written")
    program = f"""
import os, signal
from pathlib import Path
from tests.gateway.waiting.disk.test_queue import Bench, message
bench = Bench(Path({str(tmp_path / "spool")!r}))
for number in range(1000):
    bench.add(message(number))
bench.wait(lambda: not bench.queue.writing, "it is written")
os.kill(os.getpid(), signal.SIGKILL)
"""
    root = Path(__file__).parents[3]
    subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": f"{root}:{root / 'tests'}"}, check=False, timeout=HANG_S
    )  # fmt: skip
    assert len(bench.files()) == 2
    found = clear_left_behind(tmp_path / "spool")
    assert (found.files, found.size > 100_000, found.faults) == (1, True, {})
    assert clear_left_behind(tmp_path / "spool").files == 0
    assert bench.take(1_000) == list(range(1_000))


def test_a_queue_that_finds_no_room_again_waits_for_it_again(bench: Bench) -> None:
    for _ in range(2):
        bench.disk.max_bytes = 0
        bench.add(message(0, MIN_BATCH_BYTES))
        assert bench.queue.waits_for_room
        assert list(bench.disk.out_of_room) == [bench.queue]
        bench.disk.max_bytes = 1 << 30
        bench.wait(lambda: not bench.queue.tail_cost and not bench.queue.writing, "there is room, and it is written")
    assert bench.take(2) == [0, 0]


def test_what_was_read_ahead_of_a_queue_that_is_given_up_comes_no_more(bench: Bench) -> None:
    for number in range(10_000):
        bench.add(message(number))
    bench.wait(lambda: not bench.queue.writing, "all is written but for the end")
    assert bench.queue.take() == [], "it is asked for"
    bench.wait(lambda: bool(bench.queue.read_ahead), "the first batch is read")
    bench.queue.forget()
    assert bench.queue.take() == []
