"""Fill levels over a restart: a bucket that was empty stays empty, so restarting the gateway gives nobody a fresh burst (`limiter.md` 2.5).

Kept in the state directory, written about once a second and at the end, read at the start. The file is a cache, not a record: it is
replaced as a whole without fsync, at most a second or so old after SIGKILL, and one that cannot be read is left aside with a warning.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway import log
from gateway.sweep import now_ns

if TYPE_CHECKING:
    from limiter.judge import Judge

FILE: Final = "fills.json"
Identity = tuple[str, str, str, str]


def parse(data: bytes) -> tuple[float, dict[Identity, float]]:
    """When (seconds since 1970) the fills were true, and the fills (0 to 1). Raises ValueError for anything else."""
    whole = json.loads(data)
    if not isinstance(whole, dict) or not isinstance(whole.get("at"), (int, float)) or not isinstance(whole.get("fills"), list):
        raise ValueError("not a file of fill levels")
    fills: dict[Identity, float] = {}
    for entry in whole["fills"]:
        if not isinstance(entry, list) or len(entry) != 5 or not all(isinstance(word, str) for word in entry[:4]):
            raise ValueError(f"{entry!r} is no fill level")
        if not isinstance(entry[4], (int, float)) or not math.isfinite(entry[4]) or entry[4] > 1:
            raise ValueError(f"{entry!r}: a fill is at most 1")
        fills[entry[0], entry[1], entry[2], entry[3]] = float(entry[4])
    return float(whole["at"]), fills


class Fills:
    """The file of fill levels. `wall_clock` gives seconds since 1970: monotonic time does not survive a restart."""

    def __init__(self, state_directory: Path, judge: Judge, wall_clock: Callable[[], float] = time.time) -> None:
        self._path = state_directory / FILE
        self._judge = judge
        self._wall_clock = wall_clock
        self._empty = False  # what the file says now: nothing; then it need not be written again
        self.frozen = False  # what was saved last is to stay: the rules were lifted, fills say nothing any more
        self.failed_writes = 0

    def restore(self) -> None:
        """Give the judge the fills of before the restart."""
        try:
            at, fills = parse(self._path.read_bytes())
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            log.event(logging.WARNING, "fill_levels_unreadable", err=str(error), remedy="buckets start full; the file is written anew")
            return
        away_ns = max(0, int((self._wall_clock() - at) * 1e9))
        self._judge.restore(fills, now_ns(), away_ns)

    def save(self) -> None:
        """Write the fills of now. Called on a thread; a failure is counted, never raised."""
        if self.frozen:
            return
        fills = self._judge.fills(now_ns())
        if not fills and self._empty:
            return
        data = json.dumps({"at": self._wall_clock(), "fills": [[*identity, round(fill, 6)] for identity, fill in fills.items()]})
        beside = self._path.with_suffix(".new")
        try:
            beside.write_text(data)
            os.replace(beside, self._path)  # noqa: PTH105  -- atomic, by its own name
        except OSError:
            self.failed_writes += 1
        else:
            self._empty = not fills
