"""Columns: what the messages of one read ask, as numbers: how many and how much of each key, and each of them in a row.

The naive way makes a request of every message that is not like the one before it. With some dozen topics in turn and bodies that differ
that is an object for each message, which every station looks at. Here the messages are rows of numbers, and there is one `KeySum` for each
key among them. The judge looks at the sums (`limiter.decisions.columns`): where all of them fit, every message does, in whatever order they
came, and nobody needs to know which was which. Where some do not, each row has its fate (`limiter.decisions.rows`), and the messages that
one bucket refuses are one `Refusal`. Only where that cannot be said of rows, the request is cut (`Request.cut`) into those it is made of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.vecs import append, vec
from mypy_extensions import i64

from limiter.keys import KeySum

if TYPE_CHECKING:
    from limiter.buckets.bucket import Bucket
    from limiter.keys import Key

FIRST_ROWS: Final = 16  # rows that there is room for at first; it doubles
MAX_IN_ROW: Final = 0xFFFF  # messages alike in one row, and keys: more than a turn brings


class Refusal:
    """Messages of one key that `bucket` refuses, all for the same time."""

    __slots__ = ("bucket", "count", "number", "of_key", "rule", "size", "wait_ns")

    def __init__(self, of_key: KeySum, bucket: Bucket, wait_ns: int, number: i64) -> None:
        self.of_key = of_key
        self.bucket = bucket
        self.rule = bucket.rule
        self.wait_ns = wait_ns
        self.number = number  # its place among the refusals of its columns
        self.count: i64 = 0  # messages
        self.size: i64 = 0  # bytes of them all

    def __repr__(self) -> str:
        return f"<Refusal {self.count} messages, {self.size} bytes of {self.of_key.key.text} by {self.bucket}>"


NO_REFUSALS: Final[list[Refusal]] = []  # of all columns that nothing was refused of; never added to


class Columns:
    """Messages in order: rows of messages alike, and the sums of their keys in the order of their first messages."""

    __slots__ = ("fates", "judged", "judged_at", "refusals", "rows", "sums")

    def __init__(self) -> None:
        self.rows = vec[i64](capacity=FIRST_ROWS)  # bytes of each << 32 | messages << 16 | number of the key's sum
        self.sums: list[KeySum] = []
        self.judged: i64 = 0  # how many of the pieces the judge has come to, where they were cut and it failed
        # The verdict, where some are refused and others pass, or all are refused:
        self.fates = vec[i64]()  # of each row: number of its refusal << 16 | how many are refused, the last ones of it; 0: none
        self.refusals = NO_REFUSALS
        self.judged_at = 0  # monotonic ns

    def add(self, key: Key, count: i64, size: i64) -> None:
        """The next `count` messages, MAX_IN_ROW at most, are of `key`, of `size` bytes each."""
        sums = self.sums
        of_key = key.asked
        if of_key is None or of_key.number >= len(sums) or sums[of_key.number] is not of_key:  # or others' columns were not closed
            of_key = key.asked = KeySum(key, len(sums), size)
            sums.append(of_key)
        of_key.count += count
        of_key.size += count * size
        if size > of_key.largest:  # noqa: PLR1730  -- `max` stores where nothing changes
            of_key.largest = size
        self.rows = append(self.rows, size << 32 | count << 16 | of_key.number)

    def close(self) -> None:
        """That was all: the keys are free for others' columns."""
        for of_key in self.sums:
            of_key.key.asked = None

    def __repr__(self) -> str:
        return f"<Columns of {len(self.rows)} rows, {len(self.sums)} keys>"
