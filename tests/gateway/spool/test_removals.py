"""What is given up of durable files stands in a file beside each, and is not read again."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from gateway.pipeline.parts import BODY, REQUEST, Part
from gateway.protocols.amqp.publishes_again import Messages
from gateway.spool.disk import LOCK
from gateway.spool.durable import head_of
from gateway.spool.left_behind import LeftStream, streams_of, take_left_behind
from gateway.spool.records import BATCH, RECORD, encode
from gateway.spool.removals import Range, Removed, by_file, decode_removals, encode_removal, place_of, removed_of
from support.amqp import frames as amqp

ORIGIN = {"listener": "rabbit", "vhost": "/", "user": "guest", "queue": "1.durable"}


def publish(number: int) -> bytes:
    return amqp.publish(1, "orders", number.to_bytes(8, "big"))


def part(*numbers: int) -> Part:
    return stored(REQUEST, b"".join(map(publish, numbers)), len(numbers))


def stored(kind: int, data: bytes, count: int = 0) -> Part:
    one = Part(kind, 1, data, 0, len(data), None, count, 1, 8)
    one.replays = True
    return one


def write(own: Path, parts: list[Part]) -> list[Range]:
    """A durable file of one batch; the bytes of each part."""
    own.mkdir(parents=True, exist_ok=True)
    (own / LOCK).touch()
    head = head_of(ORIGIN)
    (own / "1.durable").write_bytes(head + encode(parts))
    at = len(head) + BATCH.size
    found: list[Range] = []
    for each in parts:
        at += RECORD.size
        found.append((at, at + len(each.data)))
        at += len(each.data)
    return found


def numbers(stream: LeftStream) -> list[int]:
    """Of the messages that `gateway/replay/replayer.py` takes."""
    messages = Messages()
    found: list[int] = []
    while (batch := stream.read()) is not None:
        for record in batch[0]:
            if not record.replays:
                continue
            if record.kind == REQUEST:
                messages.begin()
            found += [int.from_bytes(each.body[:8], "big") for each in messages.add(record.data, "", record.at)]
    return found


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return tmp_path / "12-0123abcd"


@pytest.mark.parametrize("seed", range(30))
def test_what_is_left_of_a_stretch_is_what_no_range_has(seed: int) -> None:
    random = Random(seed)
    ranges = [(first, first + random.randrange(1, 12)) for first in random.sample(range(100), random.randrange(8))]
    removed = Removed(ranges)
    for _ in range(50):
        first = random.randrange(110)
        end = first + random.randrange(1, 30)
        left = removed.rest(first, end)
        wanted = [byte for byte in range(first, end) if not any(start <= byte < stop for start, stop in ranges)]
        assert [byte for start, stop in left for byte in range(start, stop)] == wanted


def test_places_tell_the_file_and_the_byte() -> None:
    places = [
        (place_of(1, 100), place_of(1, 200)),
        (place_of(70_000, 1 << 30), place_of(70_000, (1 << 30) + 5)),
        (place_of(1, 300), place_of(1, 301)),
    ]
    assert by_file(places) == {1: [(100, 200), (300, 301)], 70_000: [(1 << 30, (1 << 30) + 5)]}


@pytest.mark.parametrize("seed", range(30))
def test_a_torn_or_damaged_removal_removes_nothing_and_spoils_no_other(seed: int) -> None:
    random = Random(seed)
    several = [encode_removal([(number, number + 1), (number + 10, number + 12)]) for number in (100, 200, 300)]
    hit = random.randrange(3)
    whole = several[hit]
    if random.random() < 0.5:
        several[hit] = whole[: random.randrange(len(whole))]
    else:
        at = random.randrange(len(whole))
        several[hit] = whole[:at] + bytes([whole[at] ^ 1 << random.randrange(8)]) + whole[at + 1 :]
    found = decode_removals(b"".join(several))
    assert found == [
        each for number, first in enumerate((100, 200, 300)) if number != hit for each in ((first, first + 1), (first + 10, first + 12))
    ]


def test_removed_messages_are_not_read_again(own: Path) -> None:
    ranges = write(own, [part(0), part(1, 2, 3), part(4), part(5)])
    one = len(publish(0))
    first, end = ranges[1]
    (own / "1.removed").write_bytes(encode_removal([(first + one, end)]) + encode_removal([ranges[3]]))
    [stream] = streams_of(own, ["1.durable"])
    assert numbers(stream) == [0, 1, 4]
    stream.rewind()
    assert numbers(stream) == [0, 1, 4]
    stream.done("1.durable", ranges[0][1])
    stream.rewind()
    assert numbers(stream) == [1, 4], "a position and a removal"


def test_the_rest_of_a_removed_message_is_no_message(own: Path) -> None:
    """Its body has the bytes of a publish, and a read of the client ended just before them."""
    inner = publish(666)
    whole = amqp.publish(1, "orders", bytes(50) + inner + bytes(50))
    cut = whole.index(inner)
    ranges = write(own, [part(0), stored(REQUEST, whole[:cut], 1), stored(BODY, whole[cut:]), part(2)])
    assert numbers(streams_of(own, ["1.durable"])[0])[1:] == [0, 2]
    (own / "1.removed").write_bytes(encode_removal([ranges[1]]))
    assert numbers(streams_of(own, ["1.durable"])[0]) == [0, 2]


def test_the_rest_of_a_message_given_up_before_it_was_written_is_no_part_of_another(own: Path) -> None:
    """Its beginning is marked as not to be replayed, and its body's rest is not; the message before it was broken off."""
    frames = amqp.publish(1, "orders", bytes(8)).index(amqp.raw_frame(3, 1, bytes(8)))
    broken_off, whole = (amqp.publish(1, "orders", number.to_bytes(8, "big")) for number in (1, 2))
    given_up = stored(REQUEST, whole[:frames], 1)
    given_up.replays = False
    write(own, [stored(REQUEST, broken_off[:frames], 1), given_up, stored(BODY, whole[frames:]), part(3)])
    assert numbers(streams_of(own, ["1.durable"])[0]) == [3]


def test_removals_go_with_their_file(own: Path) -> None:
    write(own, [part(0)])
    (own / "1.removed").write_bytes(encode_removal([(0, 1)]))
    (own / "2.removed").write_bytes(encode_removal([(0, 1)]))  # the gateway was killed between two deletions
    [left] = take_left_behind(own.parent).left
    assert sorted(file.name for file in own.iterdir()) == ["1.durable", "1.removed", LOCK]
    left.streams[0].delete()
    left.close()
    assert list(own.parent.iterdir()) == []


def test_a_file_without_removals_has_none(own: Path) -> None:
    [bytes_] = write(own, [part(0)])
    assert removed_of(own, "1.durable").rest(*bytes_) == [bytes_]
