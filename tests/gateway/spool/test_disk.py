"""What the disk's side counts of topics, and when it says that it cannot be written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.clock import now_ns
from gateway.spool.disk import WRITE, Job, SpoolDisk
from support.processes import HANG_S


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SpoolDisk]:
    found = SpoolDisk(tmp_path / "spool", 1 << 20, 1 << 20, threads=False)
    yield found
    found.close(1.0)


def test_messages_are_counted_by_topic_and_in_all(disk: SpoolDisk) -> None:
    disk.waiting.count("amqp", "a", 3, 300)
    disk.waiting.count("amqp", "b", 1, 50)
    disk.waiting.count("amqp", "a", -1, -100)
    assert {text: (each.messages, each.bytes) for (_, text), each in disk.waiting.topics.items()} == {"a": (2, 200), "b": (1, 50)}
    assert disk.waiting.messages == 3
    disk.waiting.count("amqp", "b", -1, -50)
    assert (list(disk.waiting.topics), disk.waiting.messages) == ([("amqp", "a")], 2)


def test_a_topic_has_waited_since_its_first_message_that_found_none_of_it(disk: SpoolDisk) -> None:
    before = now_ns()
    disk.waiting.count("amqp", "a", 1, 10)
    since = disk.waiting.topics["amqp", "a"].since
    disk.waiting.count("amqp", "a", 1, 10)
    disk.waiting.count("amqp", "a", -1, -10)
    assert disk.waiting.topics["amqp", "a"].since == since >= before
    disk.waiting.count("amqp", "a", -1, -10)
    disk.waiting.count("amqp", "a", 1, 10)
    assert disk.waiting.topics["amqp", "a"].since >= since


def test_a_rule_has_room_up_to_its_own_bytes_and_all_rules_up_to_the_spool_s(disk: SpoolDisk) -> None:
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


def test_the_trouble_is_over_when_nobody_waits_for_the_write_that_failed(disk: SpoolDisk) -> None:
    """The client whose message could not be written had gone; until the next write, the spool would have been said to be broken."""
    disk.directory.write_text("a file where the directory should be")
    first, second = (Job(None, WRITE, "1", at) for at in (0, 10))
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
        closed = SpoolDisk(tmp_path / "spool", 1 << 20, 1 << 20)
        closed.close(HANG_S)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
