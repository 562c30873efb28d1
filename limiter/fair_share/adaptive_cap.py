"""The adaptive cap: one that listens to its broker, by additive increase and multiplicative decrease (AIMD).

A cap is a guess of what the broker can take, made on a good day. On a bad one (a slow disk, a rebuild, a neighbour) the broker sheds by
itself, and it does so without looking at topics: the first request in its queue is answered "busy". It is better to send it less, and to
choose what to leave out. So each of its signals makes the cap smaller by a part, and time makes it larger by an amount: AIMD, because that
is what finds a level that moves (as TCP does). The parts:

* **down** by `tighten` of what it is, at most once in `every`: signals of one overload come in crowds, and what is done about them takes
  time to show;
* **up** by `recover` of the full cap per second, from one `every` after the last signal on;
* never below `floor` of the full cap: the broker's word is not proof, and a topic must be able to go on.

The cap is never above what the rule says: to find a cap where none is given is not what this is for.

Integers: millionths of the cap for the state, thousandths for what is set (`permille`), so that 0.25 s of 1 % per second is something.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from limiter.limits import SECOND, Rate

if TYPE_CHECKING:
    from limiter.limits import Limit

FULL: Final = 1_000_000  # millionths


class AdaptiveCap:
    """How much of a cap holds now, and why."""

    __slots__ = ("_counted_at", "_limit", "_millionths", "_signal_at", "counts", "permille", "reason", "since")

    def __init__(self, limit: Limit) -> None:
        self._limit = limit
        self._millionths = FULL
        self._signal_at = 0  # when it was tightened last
        self._counted_at = 0  # up to when it has recovered
        self.permille = 1000  # of the cap that hold now
        self.reason = ""  # of the last tightening; "" while the cap is whole
        self.since = 0  # monotonic ns, when it ceased to be whole
        self.counts: dict[str, int] = {}  # times it was tightened, by reason

    def change(self, limit: Limit) -> None:
        """Another cap, or other numbers. A cap that adapts no longer is whole."""
        self._limit = limit
        if limit.adapt is None:
            self._set(FULL)
        else:
            self._set(max(self._millionths, limit.adapt.floor * 1000))

    def on_overload(self, reason: str, now: int) -> None:
        """The broker has too much to do."""
        adapt = self._limit.adapt
        if adapt is None:
            return
        if self._millionths < FULL and 0 <= now - self._signal_at < adapt.every_ns:
            return
        if self._millionths == FULL:
            self.since = now
        self._signal_at = now
        self._counted_at = now + adapt.every_ns
        self._set(max(self._millionths * (1000 - adapt.tighten) // 1000, adapt.floor * 1000))
        if self._millionths < FULL:
            self.reason = reason
            self.counts[reason] = self.counts.get(reason, 0) + 1

    def recover(self, now: int) -> None:
        """Recover by what time has brought."""
        adapt = self._limit.adapt
        if adapt is None or self._millionths == FULL:
            return
        elapsed = now - self._counted_at
        if elapsed < -adapt.every_ns:  # time was set back
            self._counted_at = now
        if elapsed <= 0:
            return
        gained = elapsed * adapt.recover * 1000 // SECOND
        if gained > 0:
            self._counted_at = now
            self._set(min(FULL, self._millionths + gained))

    def _set(self, millionths: int) -> None:
        self._millionths = millionths
        self.permille = millionths // 1000
        if millionths == FULL:
            self.reason = ""
            self.since = 0

    def scale_limit(self) -> Limit:
        """The limit that holds now."""
        limit = self._limit
        if self.permille == 1000:
            return limit
        return replace(
            limit,
            messages=self._part(limit.messages),
            bytes=self._part(limit.bytes),
            messages_burst=self._burst(limit.messages_burst),
            bytes_burst=self._burst(limit.bytes_burst),
        )

    def _part(self, rate: Rate | None) -> Rate | None:
        return None if rate is None else Rate(rate.amount * self.permille, rate.per_ns * 1000)

    def _burst(self, tokens: int | None) -> int | None:
        return None if tokens is None else max(1, tokens * self.permille // 1000)

    def __repr__(self) -> str:
        return f"<AdaptiveCap {self.permille / 10:g}%{f' since {self.reason}' if self.reason else ''}>"
