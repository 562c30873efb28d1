"""Durable files: what is whole is read in order, what is damaged is set apart, and each directory is taken once."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from random import Random

import pytest
import trio
from trio.testing import MockClock

from gateway.pipeline.parts import REQUEST, Part
from gateway.protocols.amqp.publishes_again import Messages
from gateway.replay.replayer import Replay, Replayer
from gateway.spool.disk import LOCK, SpoolDisk, mark
from gateway.spool.durable import CLOCK, HEAD_BYTES, POSITION_AT, head_of, is_durable, read_head
from gateway.spool.left_behind import Damage, LeftStream, streams_of, take_left_behind
from gateway.spool.records import DamagedError, encode
from limiter.limits import NEVER, Limit, Rate
from limiter.rules.rule import Rule
from support.amqp import frames as amqp
from support.rocketmq.frames import batch_body, send

ORIGIN = {"listener": "rabbit", "vhost": "/", "user": "guest", "queue": "1.durable"}


def part(number: int, size: int = 100, count: int = 1) -> Part:
    data = b"".join(amqp.publish(1, "orders", (number + each).to_bytes(8, "big") + bytes(size - 8)) for each in range(count))
    one = Part(REQUEST, 1, data, 0, len(data), None, count, 1, size)
    one.replays = True
    return one


def write(own: Path, name: str, batches: list[bytes], origin: dict[str, str] = ORIGIN) -> list[int]:
    """Write a file of the spool; where each batch begins."""
    own.mkdir(parents=True, exist_ok=True)
    (own / LOCK).touch()
    data = head_of(origin)
    starts = []
    for batch in batches:
        starts.append(len(data))
        data += batch
    (own / name).write_bytes(data)
    return starts


def read(stream: LeftStream) -> tuple[list[int], list[Damage]]:
    """Numbers of the messages, and what is damaged."""
    messages = Messages()
    numbers: list[int] = []
    damages: list[Damage] = []
    while (batch := stream.read()) is not None:
        records, damaged = batch
        damages += damaged
        name = stream.names[stream.reading]
        for record in records:
            messages.begin()
            numbers += [int.from_bytes(message.body[:8], "big") for message in messages.add(record.data, name, record.at)]
    return numbers, damages


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return tmp_path / "12-0123abcd"


def test_files_of_a_queue_are_one_stream_in_the_order_of_their_numbers(own: Path) -> None:
    write(own, "10.durable", [encode([part(2)])])
    write(own, "1.durable", [encode([part(0)]), encode([part(1)])])
    write(own, "2.durable", [encode([part(7)])], {**ORIGIN, "queue": "2.durable"})
    [left] = take_left_behind(own.parent).left
    assert [(stream.names, read(stream)[0]) for stream in left.streams] == [(["1.durable", "10.durable"], [0, 1, 2]), (["2.durable"], [7])]
    assert left.streams[0].origin == ORIGIN


def test_what_is_of_use_for_a_time_says_until_when_in_the_time_of_day(own: Path) -> None:
    """A rule that delays has a deadline, too, and that is another matter; an older gateway's file does not know what its clock showed."""
    old, held, endless = part(0), part(1), part(2)
    old.deadline = 5_000
    held.deadline = 5_000
    held.rule = Rule("delay", limit=Limit(messages=Rate(1)), action="delay")
    endless.deadline = NEVER
    batch = encode([old, held, endless])
    write(own, "1.durable", [batch], {**ORIGIN, "clock": "1000000"})
    write(own, "2.durable", [batch])
    [left] = take_left_behind(own.parent).left
    [stream] = left.streams
    assert stream.origin == ORIGIN
    found: list[int] = []
    while (read_now := stream.read()) is not None:
        found += [record.expires for record in read_now[0]]
    assert found == [1_005_000, 0, 0, 0, 0, 0]
    left.close()


def test_a_directory_is_taken_once_and_goes_with_its_last_stream(own: Path) -> None:
    write(own, "1.durable", [encode([part(0)])])
    (own / "2").write_bytes(b"of a client that knows of it")
    found = take_left_behind(own.parent)
    assert (found.files, found.size) == (1, 28)
    assert take_left_behind(own.parent).left == [], "taken twice"
    [left] = found.left
    assert left.streams[0].delete() > 100
    left.close()
    assert list(own.parent.iterdir()) == []


def test_what_was_marked_off_is_not_read_again_down_to_a_message_within_a_record(own: Path) -> None:
    write(own, "1.durable", [encode([part(0)]), encode([part(1), part(2, count=3)]), encode([part(5)])])
    [stream] = streams_of(own, ["1.durable"])
    messages = Messages()
    ends: dict[int, int] = {}
    while (batch := stream.read()) is not None:
        for record in batch[0]:
            for message in messages.add(record.data, "1.durable", record.at):
                ends[int.from_bytes(message.body[:8], "big")] = message.end
    for number, end in ends.items():
        mark(own / "1.durable", end)
        [again] = streams_of(own, ["1.durable"])
        assert read(again)[0] == list(range(number + 1, 6))


def test_done_deletes_the_files_before_and_marks_the_last(own: Path) -> None:
    write(own, "1.durable", [encode([part(0)])])
    [start, _] = write(own, "2.durable", [encode([part(1)]), encode([part(2)])])
    [stream] = streams_of(own, ["1.durable", "2.durable"])
    size = (own / "1.durable").stat().st_size
    second = start + len(encode([part(1)]))
    assert stream.done("2.durable", second) == size
    assert sorted(file.name for file in own.iterdir() if is_durable(file.name)) == ["2.durable"]
    stream.rewind()
    assert read(stream)[0] == [2]


def test_a_torn_end_is_told_from_damage_and_all_before_it_is_read(own: Path) -> None:
    batches = [encode([part(number)]) for number in range(4)]
    starts = write(own, "1.durable", batches)
    whole = (own / "1.durable").read_bytes()
    for size in range(starts[3], len(whole)):
        (own / "1.durable").write_bytes(whole[:size])
        numbers, damages = read(streams_of(own, ["1.durable"])[0])
        assert numbers == [0, 1, 2]
        assert [(each.offset, len(each.data), each.torn) for each in damages] == (
            [(starts[3], size - starts[3], True)] if size > starts[3] else []
        )


@pytest.mark.parametrize("seed", range(20))
def test_a_flipped_bit_costs_its_batch_alone_and_its_bytes_are_kept(own: Path, seed: int) -> None:
    batches = [encode([part(number)]) for number in range(10)]
    starts = write(own, "1.durable", batches)
    data = bytearray((own / "1.durable").read_bytes())
    random = Random(seed)
    hit = random.randrange(10)
    place = starts[hit] + random.randrange(len(batches[hit]))
    data[place] ^= 1 << random.randrange(8)
    (own / "1.durable").write_bytes(data)
    numbers, [damage] = read(streams_of(own, ["1.durable"])[0])
    assert numbers == [number for number in range(10) if number != hit]
    assert damage.data == data[starts[hit] : starts[hit] + len(batches[hit])]
    assert damage.torn == (hit == 9)
    assert damage.why


@pytest.mark.parametrize("place", range(0, HEAD_BYTES + 10, 3))
def test_a_flipped_bit_in_the_head_loses_no_message(own: Path, place: int) -> None:
    """Its position is not believed then; where nobody knows whose messages they are, the stream has no origin."""
    write(own, "1.durable", [encode([part(number)]) for number in range(3)])
    data = bytearray((own / "1.durable").read_bytes())
    data[place] ^= 1
    (own / "1.durable").write_bytes(data)
    [stream] = streams_of(own, ["1.durable"])
    assert stream.origin == (ORIGIN if POSITION_AT <= place < POSITION_AT + 12 else {})
    assert read(stream)[0] == [0, 1, 2]


def test_an_empty_file_is_an_empty_stream(own: Path) -> None:
    own.mkdir(parents=True)
    (own / "1.durable").touch()
    [left] = take_left_behind(own.parent).left
    assert read(left.streams[0]) == ([], [])


def test_a_foreign_file_is_told(tmp_path: Path) -> None:
    file = tmp_path / "1.durable"
    file.write_bytes(bytes(200))
    descriptor = os.open(file, os.O_RDONLY)
    try:
        with pytest.raises(DamagedError, match="does not begin as a file of the spool"):
            read_head(descriptor)
    finally:
        os.close(descriptor)


def test_a_directory_that_cannot_be_taken_is_told_with_the_reason_and_others_are_taken(own: Path) -> None:
    write(own, "1.durable", [encode([part(0)])])
    barred = own.parent / "13-0123abcd"
    (barred / LOCK).mkdir(parents=True)
    held = own.parent / "14-0123abcd"
    write(held, "1.durable", [encode([part(1)])])
    with (held / LOCK).open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = take_left_behind(own.parent)
    assert [left.directory for left in found.left] == [own], "the lock of a process that lives is no fault"
    assert list(found.faults) == [barred]
    assert "Is a directory" in found.faults[barred]
    (own.parent / "file").touch()
    assert "Not a directory" in str(take_left_behind(own.parent / "file").faults)
    assert take_left_behind(own.parent / "nothing").faults == {}


async def test_what_cannot_be_taken_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    barred = tmp_path / "spool" / "13-0123abcd"
    (barred / LOCK).mkdir(parents=True)
    told: list[dict[str, object]] = []
    monkeypatch.setattr("gateway.replay.replayer.log.event", lambda level, name, **fields: told.append({"name": name, **fields}))
    disk = SpoolDisk(tmp_path / "spool", 1 << 20, 1 << 20)
    replayer = Replayer(disk, {}, {}, lambda listener, arrival: None)
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            await replayer._look(nursery)
    (line,) = told
    assert (line["name"], line["folder"]) == ("spool_unreadable", str(barred))
    disk.close(1)


def write_sends(own: Path, *sends: bytes, deadline: int = 0) -> None:
    """A file of RocketMQ's sends."""
    parts = []
    for data in sends:
        parts.append(Part(REQUEST, 0, data, 0, len(data), None, 1, 1, len(data)))
        parts[-1].replays = True
        parts[-1].deadline = deadline
    write(own, "1.durable", [encode(parts)], {"listener": "broker-a", "protocol": "rocketmq", "topic": "orders", CLOCK: "1000"})


def damage_head(own: Path) -> None:
    """Nobody knows any more whose messages these are."""
    with (own / "1.durable").open("r+b") as file:
        file.seek(HEAD_BYTES + 1)
        file.write(b"\0")


async def test_sends_whose_file_begins_damaged_are_set_aside_and_not_taken_for_publishes(own: Path) -> None:
    write_sends(own, *[send("orders", b"text %d" % number, opaque=number, one_way=True) for number in range(3)])
    damage_head(own)
    disk = SpoolDisk(own.parent, 1 << 20, 1 << 20)
    replayer = Replayer(disk, {}, {}, lambda listener, arrival: None)
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            await replayer._look(nursery)
    assert disk.replay.set_aside == 3
    [kept] = (own.parent / "set-aside").glob("*.jsonl")
    told = [json.loads(line) for line in kept.read_text().splitlines()]
    assert [(each["topic"], each["body"]) for each in told] == [("orders", f"text {number}") for number in range(3)]
    disk.close(1)


async def test_what_the_disk_does_not_take_when_it_is_set_aside_stays_and_is_tried_again(own: Path, autojump_clock: MockClock) -> None:
    """A folder stands where its file is to be. What is damaged is kept once, however often it is read."""
    write_sends(own, *[send("orders", b"text %d" % number, opaque=number, one_way=True) for number in range(3)])
    damage_head(own)
    disk = SpoolDisk(own.parent, 1 << 20, 1 << 20)
    barrier = own.parent / "set-aside" / f"{disk.name()}.jsonl"
    barrier.mkdir(parents=True)
    replayer = Replayer(disk, {}, {}, lambda listener, arrival: None)
    async with trio.open_nursery() as nursery:
        await replayer._look(nursery)
        with trio.fail_after(600):
            while not disk.replay.troubles:
                await trio.sleep(0.1)
            await trio.sleep(60)  # it is tried again
        assert "cannot be set aside: [Errno" in disk.replay.troubles[0]
        assert (own / "1.durable").exists()
        assert disk.replay.set_aside == 0
        barrier.rmdir()
    assert [json.loads(line)["body"] for line in barrier.read_text().splitlines()] == ["text 0", "text 1", "text 2"]
    [damaged] = barrier.parent.glob("*.damaged")
    assert (disk.replay.damages, damaged.read_bytes().count(b"SLUICED1")) == (1, 1)
    assert (disk.replay.set_aside, disk.replay.troubles, own.exists()) == (3, [], False)
    disk.close(1)


async def test_of_sends_that_are_too_old_each_message_of_a_batch_is_counted_once(own: Path) -> None:
    batches = [send("orders", batch_body(b"one", b"two", b"three"), code=320, batch=True, binary=binary) for binary in (False, True)]
    write_sends(own, *batches, send("orders", b"text", one_way=True), deadline=5)
    disk = SpoolDisk(own.parent, 1 << 20, 1 << 20)
    replayer = Replayer(disk, {}, {}, lambda listener, arrival: None)
    (stream,) = streams_of(own, ["1.durable"])
    replay = Replay(stream, disk.release)
    for _ in range(2):
        assert await replayer._next(replay) is None
        assert disk.replay.expired == 7
        await replayer._rewind(replay)
    disk.close(1)
