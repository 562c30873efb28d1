"""Packed buckets: rows that find their own end, and from which no name gains."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limiter.algorithms.fills import MIN_FILL, UNIT, bytes_of, fills_at, messages_of, pack
from limiter.buckets.packed_buckets import PAGE, WINDOW, PackedBuckets

fills = st.integers(MIN_FILL, UNIT)


@given(fills, fills)
def test_two_fills_are_one_integer_of_an_array(messages: int, size: int) -> None:
    packed = array("q", [pack(messages, size)])[0]
    assert (messages_of(packed), bytes_of(packed)) == (messages, size)


def test_a_bucket_that_is_put_is_taken_once() -> None:
    packed = PackedBuckets(1000)
    assert packed.take(7) is None
    assert packed.put(7, 10, pack(0, UNIT), 50, 10)
    assert packed.take(8) is None
    assert packed.take(7) == (10, pack(0, UNIT), 50)
    assert packed.take(7) is None


def test_a_place_is_free_when_its_bucket_is_full_and_not_before() -> None:
    packed = PackedBuckets(2)
    assert [packed.put(key, 0, 0, 50, 0) for key in (1, 2, 3)] == [True, True, False]
    assert not packed.put(3, 49, 0, 90, 49)
    assert packed.put(3, 50, 0, 90, 50)
    assert packed.put(4, 50, 0, 90, 50)
    assert not packed.put(5, 50, 0, 90, 50)
    assert [packed.take(key) is None for key in (1, 2, 3, 4)] == [True, True, False, False]


def test_of_two_buckets_with_one_hash_the_emptier_is_kept() -> None:
    packed = PackedBuckets(8)
    packed.put(1, 0, pack(10, 10), 80, 0)
    packed.put(1, 5, pack(99, 99), 40, 5)
    assert packed.take(1) == (0, pack(10, 10), 80)
    packed.put(1, 0, pack(99, 99), 40, 0)
    packed.put(1, 5, pack(10, 10), 80, 5)
    assert packed.take(1) == (5, pack(10, 10), 80)
    assert packed.take(1) is None


def test_memory_is_taken_when_it_is_written_to() -> None:
    packed = PackedBuckets(10 * PAGE)
    assert not packed.written
    assert repr(packed) == f"<PackedBuckets room={10 * PAGE} pages=0/10>"
    packed.put(3 * PAGE, 0, 0, 1, 0)
    assert repr(packed) == f"<PackedBuckets room={10 * PAGE} pages=1/10>"


def test_putting_and_taking_look_at_one_window_however_many_rows_there_are() -> None:
    """A row outside of its window would not be found: all that are packed are in theirs, and it is full where one was refused."""
    packed = PackedBuckets(5000)
    keys = [packed.hash_of(("topic", "", "rocketmq", f"t{number}")) for number in range(5000)]
    taken = [key for key in keys if packed.put(key, 0, 0, 50, 0)]
    assert len(taken) > 4200  # five in six find a place where there is room for just as many
    assert all(packed.take(key) is not None for key in taken)
    assert WINDOW == 16


def test_a_shelf_three_quarters_full_refuses_next_to_none() -> None:
    packed = PackedBuckets(8000)
    refused = sum(not packed.put(packed.hash_of(("topic", "", "", f"t{number}")), 0, 0, 50, 0) for number in range(6000))
    assert refused < 180


def test_a_shelf_without_room_takes_nothing() -> None:
    packed = PackedBuckets(0)
    assert not packed.put(1, 0, 0, 50, 0)
    assert packed.take(1) is None
    assert packed.pages() == 0


def test_rows_come_back_in_another_process_but_for_the_time_away() -> None:
    before, after = PackedBuckets(100), PackedBuckets(200)
    before.put(1, 1000, pack(5, 6), 1500, 1000)
    before.put(2, 1000, pack(7, 8), 1100, 1000)
    rows = before.rows(0, 1200)
    assert list(rows) == [1, 200, pack(5, 6), 300]  # the other is full
    after.take_rows(rows, 90, 100)  # 100 ns after 1200 there, it is 90 here
    assert after.take(1) == (-210, pack(5, 6), 290)


def test_a_bucket_that_was_full_meanwhile_does_not_come_back() -> None:
    packed = PackedBuckets(100)
    packed.take_rows(array("q", [1, 0, 0, 300]), 1000, 300)
    assert packed.take(1) is None
    assert not packed.written


@pytest.mark.parametrize(
    "row", [[0, 0, 0, 300], [-1, 0, 0, 300], [1, -1, 0, 300], [1, 2**62, 0, 300], [1, 0, 0, 2**62], [1, 0, pack(UNIT, UNIT) + 1, 300]]
)
def test_rows_that_cannot_be_are_left_out(row: list[int]) -> None:
    packed = PackedBuckets(100)
    packed.take_rows(array("q", row), 1000, 0)
    assert not packed.written


def test_identities_are_told_apart_by_the_secret_and_connections_by_the_process() -> None:
    one, other = PackedBuckets(10), PackedBuckets(10)
    other.secret = one.secret
    topic, connection = ("topic", "", "rocketmq", "a\udcffb"), ("connection", "", "", "17")
    assert one.hash_of(topic) == other.hash_of(topic) > 0
    assert one.hash_of(connection) == one.hash_of(connection) != other.hash_of(connection)
    assert PackedBuckets(10).hash_of(topic) != one.hash_of(topic)


@pytest.mark.parametrize(
    ("messages", "size", "to", "expected"), [(0, 0, 150, (UNIT // 2, UNIT // 2)), (-UNIT, UNIT, 125, (-UNIT // 2, UNIT))]
)
def test_fills_move_on_along_the_line(messages: int, size: int, to: int, expected: tuple[int, int]) -> None:
    moved = fills_at(pack(messages, size), 100, 200, to)
    assert (messages_of(moved), bytes_of(moved)) == expected
