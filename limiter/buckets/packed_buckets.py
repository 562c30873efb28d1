"""Packed buckets: what is kept of buckets that are not at hand, 32 bytes each.

A bucket at hand costs most of a kilobyte: objects, strings, places in tables. A million of them, one for each made-up
name, would be the gateway's whole memory. But all that matters of an idle bucket is how full it will be at its next message.
That is a line: how full it was, when, and when it is full. So a packed bucket is a row of four integers in an array::

    hash of whose it is │ when `fills` were true │ messages and bytes, how full │ when it is full

* **Rows find their own end.** One whose time has come is worth nothing (a bucket made anew is full too), so its place is free. Nothing
  is ever cleared up, and rows are not counted.
* A row stands at one of `WINDOW` places that its hash names. When all are taken by buckets that are not full yet, it is refused: what
  cannot be packed stays at hand. So packing and finding look at `WINDOW` rows, however many there are; no table grows, nothing is
  ever moved.
* Memory is taken a page at a time, when first written to: a gateway that sees few topics pays nothing.
* The hash is keyed by `secret`. 64 bits: with a million rows, one name in 10^12 or so meets another's row by chance, and gets the
  emptier bucket of both; without the secret such names cannot be looked for.
* Fills are rounded down to 2^-24 of the burst, debts included (a level below 0 is a negative fill): no bucket gains by being packed.

All of it is lost when the process ends, but for `rows`, which `take_rows` takes back: times are relative there.
"""

from __future__ import annotations

import os
from array import array
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from limiter.algorithms.fills import UNIT, bytes_of, messages_of
from limiter.limits import NEVER

if TYPE_CHECKING:
    from limiter.rules.rule_set import Identity

COLUMNS: Final = 4
SECRET_BYTES: Final = 16
WINDOW: Final = 16  # rows; with three in four taken, one window in a hundred has no place; 16 rows are 8 cache lines; a guess
PAGE: Final = 4096  # rows; memory is taken for so many at once: 128 KiB
ROW_BYTES: Final = 32  # bytes of a saved row, as of one in the table


class PackedBuckets:
    """Rows for at most `room` buckets. Not thread safe: the judge's lock is."""

    __slots__ = ("_pages", "_this_run", "room", "secret", "written")

    def __init__(self, room: int) -> None:
        self.room = room
        self.secret = os.urandom(SECRET_BYTES)
        self.written = False  # whether there has ever been a row
        self._this_run = os.urandom(8).hex()  # for what does not outlive the process, though `secret` may
        self._pages: list[array[int]] = [array("q") for _ in range((room + PAGE - 1) // PAGE)]  # empty: not written to yet

    def hash_of(self, identity: Identity) -> int:
        """The hash of 63 bits by which a bucket is found; never 0."""
        words = "\0".join(identity)
        text = (f"{self._this_run} {words}" if identity[0] == "connection" else words).encode("utf-8", "surrogatepass")
        return (int.from_bytes(blake2b(text, digest_size=8, key=self.secret).digest(), "big") >> 1) or 1

    def put(self, key: int, at: int, fills: int, full_at: int, now: int) -> bool:
        """Pack a bucket whose hash is `key`; False where there is no place."""
        if self.room == 0:
            return False
        start = key % self.room
        free = -1
        for step in range(min(WINDOW, self.room)):
            place = (start + step) % self.room
            page = self._pages[place // PAGE]
            if len(page) == 0:
                if free < 0:
                    free = place
                continue
            row = place % PAGE * COLUMNS
            if page[row] == key and page[row + 3] > now:  # two names of one hash: the first to come back gets the emptier bucket
                if full_at > page[row + 3]:
                    self._write(place, key, at, fills, full_at)
                return True
            if free < 0 and (page[row] == 0 or page[row + 3] <= now):
                free = place
        if free < 0:
            return False
        self._write(free, key, at, fills, full_at)
        return True

    def take(self, key: int) -> tuple[int, int, int] | None:
        """Take a bucket off: when its fills were true, the fills, when it is (or was) full. None: it is not there."""
        if self.room == 0:
            return None
        found: tuple[int, int, int] | None = None
        start = key % self.room
        for step in range(min(WINDOW, self.room)):
            place = (start + step) % self.room
            page = self._pages[place // PAGE]
            if len(page) == 0:
                continue
            row = place % PAGE * COLUMNS
            if page[row] == key:
                page[row] = 0
                if found is None:  # further on there may be one from an earlier time, long full
                    found = (page[row + 1], page[row + 2], page[row + 3])
        return found

    def _write(self, place: int, key: int, at: int, fills: int, full_at: int) -> None:
        self.written = True
        number = place // PAGE
        if len(self._pages[number]) == 0:
            self._pages[number] = array("q", bytes(PAGE * COLUMNS * 8))
        page = self._pages[number]
        row = place % PAGE * COLUMNS
        page[row] = key
        page[row + 1] = at
        page[row + 2] = fills
        page[row + 3] = full_at

    def pages(self) -> int:
        """How many pages `rows` may be asked for."""
        return len(self._pages)

    def rows(self, number: int, now: int) -> array[int]:
        """The buckets of a page that are not full at `now`: hash, ns since `fills` were true, fills, ns until it is full."""
        found: array[int] = array("q")
        page = self._pages[number]
        for row in range(0, len(page), COLUMNS):
            if page[row] != 0 and page[row + 3] > now:
                found.extend((page[row], now - page[row + 1], page[row + 2], page[row + 3] - now))
        return found

    def take_rows(self, rows: array[int], now: int, away_ns: int) -> None:
        """Pack what `rows` gave `away_ns` before `now`, under the same secret. Rows that find no place, or cannot be, are left out."""
        base = now - away_ns
        for row in range(0, len(rows) - COLUMNS + 1, COLUMNS):
            key, age, fills, full_in = rows[row : row + COLUMNS]
            can_be = key > 0 and 0 <= age < NEVER // 2 and full_in < NEVER // 2 and messages_of(fills) <= UNIT and bytes_of(fills) <= UNIT
            if can_be and base + full_in > now:
                self.put(key, base - age, fills, base + full_in, now)

    def __repr__(self) -> str:
        return f"<PackedBuckets room={self.room} pages={sum(1 for page in self._pages if len(page) > 0)}/{len(self._pages)}>"
