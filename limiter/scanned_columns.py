"""Columns that a scan fills: a function that goes along what was read, as long as it meets nothing unusual, and is also written in C.

It finds keys by their places among the recent ones (`limiter.recent_keys`), and leaves numbers here: a row for messages alike, and for each
key the sum of what its messages ask. Objects are made of these once a run, not once a message.

A key may have two sums: where two names have it (those of a group), and where its first message was added by itself. What is asked of a
key is what all of its sums say.

What is found is noted by `note_message`, which each scan calls; all other things of it are its protocol's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.vecs import append, vec
from mypy_extensions import i64

from limiter.columns import MAX_IN_ROW
from limiter.keys import KeySum

if TYPE_CHECKING:
    from limiter.columns import Columns
    from limiter.recent_keys import RecentKeys

NEXT: Final = 0  # in `sums`: the number of the next key that is met for the first time
MESSAGES: Final = 1  # how many messages the scan has found
ROWS: Final = 2  # and how many rows they are
SUMS: Final = 3  # here the sum of number 0 begins
PLACE: Final = 0  # in a sum: of the key among the recent ones
COUNT: Final = 1  # messages
SIZE: Final = 2  # bytes of them all
FIRST: Final = 3  # bytes of the first one
LARGEST: Final = 4  # bytes of the largest one
SUM_WORDS: Final = 5

MAX_KEYS: Final = 1024  # that one run's scans tell apart: all of 128 KiB where messages have 128 B; more are added one by one
MAX_ROWS: Final = 2048  # of one scan; the next goes on
BEFORE: Final = 16  # what came before a scan that is joined with it at once, and not one by one


class ScannedColumns:
    """Room for what scans find, used again and again: by one thread, and for the columns of one run at a time."""

    __slots__ = ("columns", "made", "rows", "sums", "turn")

    def __init__(self) -> None:
        self.sums = vec[i64]([0] * (SUMS + SUM_WORDS * MAX_KEYS))
        self.rows = vec[i64]([-1] * (BEFORE + MAX_ROWS))  # what is found begins behind BEFORE
        self.turn: i64 = 0  # number of the run
        self.columns: Columns | None = None  # the run's
        self.made: list[KeySum] = []  # those whose counts stand in `sums`

    def begin(self, columns: Columns) -> vec[i64]:
        """The next scan adds to `columns`; returns `sums`, which it writes to."""
        if columns is not self.columns:
            self.turn += 1
            self.columns = columns
            self.made.clear()
        sums = self.sums
        sums[NEXT] = len(columns.sums)
        sums[MESSAGES] = 0
        sums[ROWS] = BEFORE
        rows = self.rows
        rows[BEFORE - 1] = -1  # no row, that a message could be added to
        return sums

    def end(self, columns: Columns, recent: RecentKeys) -> i64:
        """`columns` have its rows and its new keys; returns how many messages it has found. What they ask comes with `close`."""
        sums = self.sums
        number: i64 = len(columns.sums)
        while number < sums[NEXT]:
            at: i64 = SUMS + SUM_WORDS * number
            key = recent.keys[sums[at + PLACE]]
            assert key is not None
            of_key = key.asked = KeySum(key, number, sums[at + FIRST])
            columns.sums.append(of_key)
            self.made.append(of_key)
            number += 1
        columns.rows = join(columns.rows, self.rows, sums[ROWS])
        return sums[MESSAGES]

    def close(self, columns: Columns) -> None:
        """The scans for `columns`, if there were any, are over: the sums have what was found of them."""
        if columns is not self.columns:
            return
        sums = self.sums
        for of_key in self.made:
            at: i64 = SUMS + SUM_WORDS * of_key.number
            of_key.count += sums[at + COUNT]
            of_key.size += sums[at + SIZE]
            of_key.largest = max(of_key.largest, sums[at + LARGEST])
        self.made.clear()
        self.columns = None

    def __repr__(self) -> str:
        return f"<ScannedColumns of {len(self.made)} keys>"


def join(before: vec[i64], found: vec[i64], end: i64) -> vec[i64]:
    """`before`, and what `found` has behind BEFORE, up to `end`. Changes `found` before that."""
    count: i64 = len(before)
    if count > BEFORE:
        at: i64 = BEFORE
        while at < end:
            before = append(before, found[at])
            at += 1
        return before
    at = 0
    while at < count:
        found[BEFORE - count + at] = before[at]
        at += 1
    return found[BEFORE - count : end]


SCANNED: Final = ScannedColumns()  # messages are cut by the loop's thread alone


# ---- also in C (`scanned_columns.c`) --------------------------------------------------------------------------------


def note_message(sums: vec[i64], rows: vec[i64], numbers: vec[i64], turn: i64, place: i64, size: i64) -> bool:
    """The next message is of the key at `place` among the recent ones, whose `numbers` these are; False: there is no room for it.

    It has `size` bytes, less than 2 GiB.
    """
    number: i64 = numbers[place] & 0xFFFF
    is_new = numbers[place] >> 16 != turn
    if is_new:
        number = sums[NEXT]
    at: i64 = SUMS + SUM_WORDS * number
    if at + SUM_WORDS > len(sums) or number > 0xFFFF:
        return False
    count: i64 = sums[ROWS]
    row: i64 = rows[count - 1] if count > 0 else -1
    if row >= 0 and row >> 32 == size and row & 0xFFFF == number and row >> 16 & 0xFFFF < MAX_IN_ROW:
        rows[count - 1] = row + (1 << 16)
    elif count == len(rows):
        return False
    else:
        rows[count] = size << 32 | 1 << 16 | number
        sums[ROWS] = count + 1
    if is_new:
        numbers[place] = turn << 16 | number
        sums[NEXT] += 1
        sums[at + PLACE] = place
        sums[at + COUNT] = 0
        sums[at + SIZE] = 0
        sums[at + FIRST] = size
        sums[at + LARGEST] = size
    sums[at + COUNT] += 1
    sums[at + SIZE] += size
    sums[at + LARGEST] = max(sums[at + LARGEST], size)
    sums[MESSAGES] += 1
    return True
