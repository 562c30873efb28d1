"""Scanned columns: what scans note, compiled by C written by hand, is what the Python of the same name notes, and becomes columns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from librt.vecs import vec
from mypy_extensions import i64

from limiter.columns import MAX_IN_ROW, Columns
from limiter.keys import Key, Origin
from limiter.recent_keys import RecentKeys
from limiter.rules.sender import Sender
from limiter.scanned_columns import BEFORE, MAX_KEYS, MESSAGES, NEXT, ROWS, SUM_WORDS, SUMS, ScannedColumns, join, note_message
from limiter.topics import amqp_topic
from support.python_twin import python_twin

PYTHON = python_twin("limiter/scanned_columns.py")
ORIGIN = Origin("amqp", Sender("here", "10.0.0.7", "shop"), b"/")


def key_of(name: bytes) -> Key:
    return Key(ORIGIN, amqp_topic(b"/", b"", name), None, "produce")


def found(columns: Columns) -> list[tuple[str, int, int, int, int]]:
    return [(each.key.text, each.count, each.size, each.first, each.largest) for each in columns.sums]


@given(
    st.lists(st.tuples(st.integers(0, 4), st.sampled_from([0, 1, 1, (1 << 31) - 1])), max_size=30),
    st.integers(0, 5), st.integers(0, 6), st.integers(0, 8), st.sampled_from([1, 7, 1 << 40]),
)  # fmt: skip
def test_messages_are_noted_as_python_does(sent: list[tuple[int, int]], next_number: int, keys: int, rows: int, turn: int) -> None:
    states = []
    for note in (note_message, PYTHON.note_message):
        sums = vec[i64]([next_number] + [0] * (SUMS - 1 + SUM_WORDS * keys))
        written = vec[i64]([0] * rows)
        numbers = vec[i64]([0, 7 << 16 | 1, 6 << 16, 1 << 56, 0])
        noted = [note(sums, written, numbers, turn, place, size) for place, size in sent]
        states.append((noted, list(sums), list(written), list(numbers)))
    assert states[0] == states[1]


def test_a_row_has_no_more_messages_than_it_has_room_for() -> None:
    for note in (note_message, PYTHON.note_message):
        sums, rows, numbers = vec[i64]([0] * 20), vec[i64]([0] * 3), vec[i64]([0])
        for _ in range(MAX_IN_ROW + 2):
            assert note(sums, rows, numbers, 1, 0, 5)
        assert (sums[NEXT], sums[MESSAGES], sums[ROWS]) == (1, MAX_IN_ROW + 2, 2)
        assert list(rows)[:2] == [5 << 32 | MAX_IN_ROW << 16, 5 << 32 | 2 << 16]


def test_each_run_has_sums_of_its_own_and_messages_one_by_one_join_those_of_scans() -> None:
    recent = RecentKeys()
    keys = {name: key_of(name) for name in (b"a", b"b", b"c")}
    for name in (b"a", b"b"):
        recent.note(name, keys[name])
    places = {name: recent.names.index(name) for name in (b"a", b"b")}
    scanned = ScannedColumns()
    for _ in range(3):
        columns = Columns()
        columns.add(keys[b"c"], 1, 9)
        for scan in ([(b"a", 3), (b"b", 4), (b"a", 5)], [(b"b", 7)]):
            sums = scanned.begin(columns)
            for name, size in scan:
                assert note_message(sums, scanned.rows, recent.numbers, scanned.turn, places[name], size)
            assert scanned.end(columns, recent) == len(scan)
            columns.add(keys[b"a"], 2, 1)
        scanned.close(columns)
        columns.close()
        c, a, b = (keys[name].text for name in (b"c", b"a", b"b"))
        assert found(columns) == [(c, 1, 9, 9, 9), (a, 6, 12, 3, 5), (b, 2, 11, 4, 7)]
        assert [row & 0xFFFF for row in columns.rows] == [0, 1, 2, 1, 1, 2, 1]
        assert all(key.asked is None for key in keys.values())


def test_what_a_run_that_broke_off_has_left_is_not_counted_for_the_next() -> None:
    recent = RecentKeys()
    recent.note(b"a", key_of(b"a"))
    place = recent.names.index(b"a")
    scanned = ScannedColumns()
    broken, columns = Columns(), Columns()
    for each in (broken, columns):
        assert note_message(scanned.begin(each), scanned.rows, recent.numbers, scanned.turn, place, 5)
        scanned.end(each, recent)
    scanned.close(broken)
    assert [each.count for each in broken.sums] == [0]
    scanned.close(columns)
    assert [each.count for each in columns.sums] == [1]


def test_more_keys_than_there_is_room_for_end_a_scan() -> None:
    recent = RecentKeys(4096)
    for number in range(2 * MAX_KEYS):
        recent.note(b"%d" % number, key_of(b"%d" % number))
    scanned = ScannedColumns()
    columns = Columns()
    sums = scanned.begin(columns)
    taken = [place for place in range(4096) if recent.keys[place] is not None]
    noted = [note_message(sums, scanned.rows, recent.numbers, scanned.turn, place, 1) for place in taken]
    assert noted == [True] * MAX_KEYS + [False] * (len(taken) - MAX_KEYS)
    assert scanned.end(columns, recent) == len(columns.sums) == MAX_KEYS


@pytest.mark.parametrize("before", [0, 1, BEFORE, BEFORE + 1, 100])
@pytest.mark.parametrize("count", [1, 3, 200])
def test_what_came_before_is_joined_with_what_is_found(before: int, count: int) -> None:
    found = vec[i64]([-1] * BEFORE + [*range(1000, 1000 + count), -1, -1])
    joined = join(vec[i64](range(before)), found, BEFORE + count)
    assert list(joined) == [*range(before), *range(1000, 1000 + count)]
