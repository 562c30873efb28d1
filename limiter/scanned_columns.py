"""Columns that a scan fills: a function that goes along what was read, as long as it meets nothing unusual, and is also written in C.

It finds keys by their places among the recent ones (`limiter.recent_keys`), and leaves numbers here: a row for messages alike, and for each
key the sum of what its messages ask. Objects are made of these once a run, not once a message.

Two names may have one key (those of a group). Each has a sum of its own here: what is asked of a key is what all of its sums say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.vecs import extend, vec
from mypy_extensions import i64

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


class ScannedColumns:
    """Room for what scans find, used again and again: by one thread, and for one run at a time."""

    __slots__ = ("made", "rows", "sums")

    def __init__(self) -> None:
        self.sums = vec[i64]([0] * (SUMS + SUM_WORDS * MAX_KEYS))
        self.rows = vec[i64]([0] * MAX_ROWS)
        self.made: list[KeySum] = []  # those whose counts stand in `sums`

    def begin(self, recent: RecentKeys) -> None:
        """A run begins: none of the recent keys has a sum in it."""
        recent.turn += 1
        self.made.clear()

    def begin_scan(self, columns: Columns) -> vec[i64]:
        """The next scan of the run adds to `columns`; returns `sums`, which it writes to."""
        sums = self.sums
        sums[NEXT] = len(columns.sums)
        return sums

    def end_scan(self, columns: Columns, recent: RecentKeys) -> i64:
        """`columns` have its rows and its new keys; returns how many messages it has found. What they ask comes with `close`."""
        sums = self.sums
        number: i64 = len(columns.sums)
        while number < sums[NEXT]:
            at: i64 = SUMS + SUM_WORDS * number
            key = recent.keys[sums[at + PLACE]]
            assert key is not None
            of_key = KeySum(key, number, sums[at + FIRST])
            columns.sums.append(of_key)
            self.made.append(of_key)
            number += 1
        if len(columns.rows) == 0:
            columns.rows = self.rows[: sums[ROWS]]
        else:
            columns.rows = extend(columns.rows, self.rows[: sums[ROWS]])
        return sums[MESSAGES]

    def close(self) -> None:
        """The run's scans are over: the sums have what was found of them."""
        sums = self.sums
        for of_key in self.made:
            at: i64 = SUMS + SUM_WORDS * of_key.number
            of_key.count += sums[at + COUNT]
            of_key.size += sums[at + SIZE]
            of_key.largest = max(of_key.largest, sums[at + LARGEST])
        self.made.clear()

    def __repr__(self) -> str:
        return f"<ScannedColumns of {len(self.made)} keys>"
