"""Fill levels over a restart: a bucket that was empty stays empty, so restarting the gateway gives nobody a fresh burst
(`docs/design/limiter.md` 2.5).

Kept in the state directory, written about once a second, when a bucket runs dry (with one process: some 50 ms later at most), and at the
end; read at the start. The file is a cache, not a record: it is replaced as a whole without fsync, and about a second old at most after
SIGKILL. A file that cannot be read is ignored, with a warning.

There may be a million buckets that are not full, so the file has rows of 32 bytes (`limiter.buckets.packed_buckets`), written page by page.
Before them stands a line of JSON: when they were true, and the secret of the hash that names their buckets. After them stand four bytes of
CRC over the rows.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
import zlib
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from common import log
from gateway.clock import now_ns
from limiter.buckets.packed_buckets import ROW_BYTES, SECRET_BYTES

if TYPE_CHECKING:
    from limiter.judge import Judge

FILE: Final = "fills"
CRC_BYTES: Final = 4
MAX_TIME: Final = 2**53  # seconds since 1970; above any clock's, and exact as a float


def parse(data: bytes) -> tuple[float, bytes, array[int]]:
    """When (seconds since 1970) the rows were true, the secret, and the rows. Raises ValueError for any other content."""
    line, _, rest = data.partition(b"\n")
    try:
        whole = json.loads(line)
    except RecursionError:
        raise ValueError("not a file of fill levels") from None
    if not isinstance(whole, dict) or not isinstance(whole.get("at"), (int, float)) or not isinstance(whole.get("secret"), str):
        raise ValueError("not a file of fill levels")
    if whole.get("order") != sys.byteorder:
        raise ValueError("of a machine with the other byte order")
    secret = bytes.fromhex(whole["secret"])
    if len(secret) != SECRET_BYTES or not 0 <= whole["at"] <= MAX_TIME:
        raise ValueError("not a file of fill levels")
    body, crc = rest[:-CRC_BYTES], rest[-CRC_BYTES:]
    if len(body) % ROW_BYTES or zlib.crc32(body).to_bytes(CRC_BYTES, "big") != crc:
        raise ValueError("cut short, or changed")
    return float(whole["at"]), secret, array("q", body)


class FillLevelsFile:
    """The file of fill levels. `wall_clock` gives seconds since 1970: monotonic time does not survive a restart."""

    def __init__(self, state_directory: Path, judge: Judge, wall_clock: Callable[[], float] = time.time) -> None:
        self._path = state_directory / FILE
        self._judge = judge
        self._wall_clock = wall_clock
        self._empty = False  # the file has no rows now: then it need not be written again
        self.frozen = False  # what was saved last is to stay: the rules were lifted, and fill levels mean nothing any more
        self.failed_writes = 0
        self.wanted = trio.Event()  # a bucket has run dry since the last write began
        self._saving = threading.Lock()

    def restore(self) -> None:
        """Give the judge the fill levels of before the restart."""
        try:
            at, secret, rows = parse(self._path.read_bytes())
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            log.event(logging.WARNING, "fill_levels_unreadable", err=str(error), remedy="buckets start full; the file is written anew")
            return
        away_ns = max(0, int((self._wall_clock() - at) * 1e9))
        self._judge.restore(secret, rows, now_ns(), away_ns)

    def want(self) -> None:
        """A bucket has run dry, which is to be written soon. On the loop's thread."""
        self.wanted.set()

    def save(self) -> None:
        """Write the present fill levels. Called on a thread; a failure is counted, never raised."""
        with self._saving:
            self._save()

    def freeze(self) -> None:
        """What is saved now is to stay."""
        with self._saving:
            self._save()
            self.frozen = True

    def thaw(self) -> None:
        """They are this process's to write again. Waits for a `freeze` that is under way."""
        with self._saving:
            self.frozen = False

    def _save(self) -> None:
        if self.frozen:
            return
        beside = self._path.with_suffix(".new")
        try:
            count = self._write(beside)
            if count or not self._empty:
                os.replace(beside, self._path)  # noqa: PTH105  -- atomic, by its own name
        except OSError:
            self.failed_writes += 1
        else:
            self._empty = not count

    def _write(self, path: Path) -> int:
        """How many rows were written to `path`."""
        judge = self._judge
        count = crc = 0
        with path.open("wb") as file:
            head = {"at": self._wall_clock(), "secret": judge.secret.hex(), "order": sys.byteorder}
            file.write(json.dumps(head).encode() + b"\n")
            for rows in judge.fills(now_ns()):
                rows.tofile(file)
                crc = zlib.crc32(rows, crc)
                count += len(rows)
            file.write(crc.to_bytes(CRC_BYTES, "big"))
        return count
