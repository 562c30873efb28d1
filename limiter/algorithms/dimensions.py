"""Messages and bytes apart, each by the same law: the frame of the algorithms whose law is more than a bucket's.

A law (`Dimension`) knows one rate. A limit has two, either of which may be left out; a request passes where both let it, and waits for the
one that takes longer. `token_bucket` has this frame of its own, unrolled, because it is what nearly every message passes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from limiter.algorithms.base import Algorithm
from limiter.algorithms.fills import MIN_FILL, UNIT, bytes_of, messages_of, pack
from limiter.limits import NEVER, Limit

if TYPE_CHECKING:
    from limiter.limits import Rate

MESSAGES: Final = "messages"
BYTES: Final = "bytes"


def rate_of(limit: Limit, counts: str) -> Rate | None:
    """The rate of what is counted: MESSAGES or BYTES."""
    return limit.bytes if counts == BYTES else limit.messages


def capacity_of(limit: Limit, counts: str) -> int:
    """The burst of what is counted, in whole tokens."""
    return limit.bytes_capacity() if counts == BYTES else limit.messages_capacity()


class Dimension:
    """One rate under one law. The methods are `Algorithm`'s, for a single cost; subclassed once per law."""

    __slots__ = ("counts",)

    def __init__(self, counts: str) -> None:
        self.counts = counts  # MESSAGES or BYTES

    def available(self, count: int, cost: int, now: int) -> int:
        raise NotImplementedError

    def take(self, count: int, cost: int) -> None:
        raise NotImplementedError

    def settle(self, cost: int, debt_ns: int, now: int) -> None:
        raise NotImplementedError

    def wait_ns(self, cost: int, now: int) -> int:
        raise NotImplementedError

    def full_in_ns(self, now: int) -> int:
        raise NotImplementedError

    def is_full(self, now: int) -> bool:
        raise NotImplementedError

    def fill(self, now: int) -> float:
        raise NotImplementedError

    def set_fill(self, fill: float, now: int) -> None:
        raise NotImplementedError

    def change(self, limit: Limit, now: int) -> None:
        raise NotImplementedError

    def full_after_ns(self, now: int) -> int:
        raise NotImplementedError

    def fill_units(self, now: int) -> int:
        """All that must be kept of it, as one number that rises in a line with time: `UNIT` as new, a debt below 0. Rounded down."""
        raise NotImplementedError

    def set_fill_units(self, units: int, now: int) -> None:
        raise NotImplementedError


class Dimensions(Algorithm):
    """One or two dimensions of the law that `make` makes, given the limit, what is counted and `now`."""

    __slots__ = ("_dimensions", "_make", "limit")

    def __init__(self, limit: Limit, now: int, make: Callable[[Limit, str, int], Dimension]) -> None:
        self.limit = limit
        self._make = make
        self._dimensions: list[Dimension] = [make(limit, counts, now) for counts in (MESSAGES, BYTES) if rate_of(limit, counts) is not None]

    def available(self, count: int, messages: int, size: int, now: int) -> int:
        for dimension in self._dimensions:
            if count > 0:
                count = dimension.available(count, size if dimension.counts == BYTES else messages, now)
        return count

    def take(self, count: int, messages: int, size: int) -> None:
        for dimension in self._dimensions:
            dimension.take(count, size if dimension.counts == BYTES else messages)

    def settle(self, messages: int, size: int, debt_ns: int, now: int) -> None:
        for dimension in self._dimensions:
            dimension.settle(size if dimension.counts == BYTES else messages, debt_ns, now)

    def wait_ns(self, messages: int, size: int, now: int) -> int:
        wait = 0
        for dimension in self._dimensions:
            wait = max(wait, dimension.wait_ns(size if dimension.counts == BYTES else messages, now))
        return wait

    def full_in_ns(self, messages: int, size: int, now: int) -> int:
        """The first instant at which a dimension that refuses runs over."""
        full_in = NEVER
        for dimension in self._dimensions:
            if dimension.wait_ns(size if dimension.counts == BYTES else messages, now) > 0:
                full_in = min(full_in, dimension.full_in_ns(now))
        return full_in

    def is_full(self, now: int) -> bool:
        return all(dimension.is_full(now) for dimension in self._dimensions)

    def fill(self, now: int) -> float:
        fill = 1.0
        for dimension in self._dimensions:
            fill = min(fill, dimension.fill(now))
        return fill

    def set_fill(self, fill: float, now: int) -> None:
        for dimension in self._dimensions:
            dimension.set_fill(fill, now)

    def full_after_ns(self, now: int) -> int:
        after = 0
        for dimension in self._dimensions:
            after = max(after, dimension.full_after_ns(now))
        return after

    def fills(self, now: int) -> int:
        messages = size = UNIT
        for dimension in self._dimensions:
            units = max(MIN_FILL, dimension.fill_units(now))
            if dimension.counts == BYTES:
                size = units
            else:
                messages = units
        return pack(messages, size)

    def set_fills(self, fills: int, now: int) -> None:
        for dimension in self._dimensions:
            dimension.set_fill_units(bytes_of(fills) if dimension.counts == BYTES else messages_of(fills), now)

    def follow(self, earlier: Algorithm, now: int) -> None:
        if isinstance(earlier, Dimensions) and earlier._make is self._make:
            limit = self.limit
            self.change(earlier.limit, now)
            for dimension, before in zip(self._dimensions, earlier._dimensions, strict=True):  # the same, of one limit
                dimension.set_fill_units(before.fill_units(now), now)
            self.change(limit, now)
        else:
            self.set_fill(earlier.fill(now), now)

    def change(self, limit: Limit, now: int) -> None:
        """What was unlimited until now begins as new: nothing was counted."""
        self.limit = limit
        changed: list[Dimension] = []
        for counts in (MESSAGES, BYTES):
            if rate_of(limit, counts) is None:
                continue
            known = [dimension for dimension in self._dimensions if dimension.counts == counts]
            if known:
                known[0].change(limit, now)
            changed.append(known[0] if known else self._make(limit, counts, now))
        self._dimensions = changed

    def __repr__(self) -> str:
        return f"<Dimensions {self._dimensions}>"
