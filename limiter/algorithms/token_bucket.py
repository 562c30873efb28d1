"""The token bucket, in integers.

The naive bucket counts tokens as a float and adds `elapsed * rate` at each look. It drifts (0.1 + 0.2), and a rate of 1/3 per second never
gives the third token on time. Guava's SmoothBursty turns it round and remembers when the next ticket is free; in whole microseconds
that rounds every interval, up to 50 % at 500,000/s.

Here the level is kept in a unit so small that everything is whole: with a rate of `amount` tokens per `per_ns`, one token is `per_ns`
units and one nanosecond brings `amount` units. Nothing is ever rounded, so what is admitted in a window T is at most burst + rate * T
exactly, and the wait until a cost fits is one division, rounded up: true to the nanosecond. Like Guava's, an idle bucket needs no timer.
Cost: one multiplication per look; integers of more than 62 bits (slower, still right) only after hours of silence.

A cost above the burst would never fit. It is admitted when the bucket is full, and leaves a debt (a level below 0) that is paid before
anything else passes: over time the rate holds, and a large batch is not refused for ever. A held one whose turn has come leaves one, too
(`limiter.decisions.single`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from limiter.algorithms.base import JITTER_NS, Algorithm
from limiter.algorithms.fills import MIN_FILL, UNIT, bytes_of, messages_of, pack
from limiter.limits import NEVER, Limit

if TYPE_CHECKING:
    from limiter.limits import Rate

UNBOUNDED: Final = 1 << 61  # tokens; more than is ever taken at once, and still a native integer


class Tokens:
    """One dimension of a bucket: messages, or bytes. A rate of 0 has no capacity and admits nothing, not even a cost of 0."""

    __slots__ = ("_amount", "_capacity", "_full", "_last", "_level", "_per_ns")

    def __init__(self, rate: Rate, capacity: int, now: int) -> None:
        """Begins full."""
        self._amount = rate.amount
        self._per_ns = rate.per_ns
        self._capacity = capacity
        self._full = capacity * rate.per_ns
        self._level = self._full
        self._last = now  # when _level was true

    def refill(self, now: int) -> None:
        """Bring the level up to `now`. A small step back is ignored; after a large one time counts from there, and nothing is granted."""
        elapsed = now - self._last
        if elapsed > 0:
            level = self._level + elapsed * self._amount
            self._level = level if level < self._full else self._full
            self._last = now
        elif elapsed < -JITTER_NS:
            self._last = now

    def available(self, count: int, cost: int, now: int) -> int:
        self.refill(now)
        level = self._level
        if count * cost * self._per_ns <= level and self._full > 0:
            return count
        if cost > self._capacity:
            return 1 if level == self._full and self._full > 0 else 0
        need = cost * self._per_ns
        if level < need or self._full == 0:
            return 0
        return level // need

    def room(self, kept_ns: int, now: int) -> int:
        """Whole tokens that can be taken while `kept_ns` of the rate stay in the bucket; below 0: not even a cost of 0 passes."""
        self.refill(now)
        if self._full == 0:
            return -1
        return (self._level - kept_ns * self._amount) // self._per_ns

    def fits(self, cost: int, now: int) -> bool:
        """Whether `cost` can be taken now, in any parts; not even 0 where there is a debt."""
        self.refill(now)
        return cost * self._per_ns <= self._level and self._full > 0

    def take(self, count: int, cost: int) -> None:
        self._level -= count * cost * self._per_ns

    def settle(self, cost: int, debt_ns: int, now: int) -> None:
        self.refill(now)
        level = self._level - cost * self._per_ns
        if cost > 0:
            level = max(level, min(self._level, -debt_ns * self._amount))
        self._level = min(level, self._full)

    def wait_ns(self, cost: int, now: int) -> int:
        """Until one of `cost` fits: exact, counted from `now`."""
        self.refill(now)
        if self._full == 0:
            return NEVER
        need = self._full if cost > self._capacity else cost * self._per_ns
        return self._until(need, now)

    def full_in_ns(self, now: int) -> int:
        self.refill(now)
        return NEVER if self._full == 0 else self._until(self._full, now)

    def _until(self, need: int, now: int) -> int:
        if need <= self._level:
            return 0
        return -((self._level - need) // self._amount) + self._last - now

    def available_above(self, count: int, cost: int, kept_ns: int, now: int) -> int:
        """As `available`, but `kept_ns` of the rate stay in the bucket, or all that one of `cost` leaves of a full one."""
        self.refill(now)
        need = cost * self._per_ns
        if self._full == 0 or cost > self._capacity:
            return 1 if self._level == self._full and self._full > 0 else 0
        over = self._level - min(kept_ns * self._amount, self._full - need)
        if count * cost * self._per_ns <= over:
            return count
        return over // need if over >= need else 0

    def wait_above(self, cost: int, kept_ns: int, now: int) -> int:
        """Until `available_above` lets one of `cost` pass."""
        self.refill(now)
        if self._full == 0:
            return NEVER
        need = cost * self._per_ns
        return self._until(min(self._full, need + kept_ns * self._amount), now)

    def held_ns(self, now: int) -> int:
        """In how much time what it holds comes in; below 0: a debt."""
        self.refill(now)
        return self._level // self._amount if self._amount > 0 else 0

    def capacity_ns(self) -> int:
        """In how much time an empty one is full."""
        return self._full // self._amount if self._amount > 0 else 0

    def cost_ns(self, cost: int) -> int:
        """In how much time a `cost` comes in, rounded down."""
        return cost * self._per_ns // self._amount if self._amount > 0 else 0

    def is_full(self, now: int) -> bool:
        """Does not `refill`: another rate may turn out to hold since before `now`."""
        return self._level + max(0, now - self._last) * self._amount >= self._full

    def fill(self, now: int) -> float:
        if self._full == 0:
            return 0.0
        level = min(self._full, self._level + max(0, now - self._last) * self._amount)
        return max(0, level) / self._full

    def set_fill(self, fill: float, now: int) -> None:
        self._level = int(self._full * min(1.0, max(0.0, fill)))
        self._last = now

    def full_after_ns(self, now: int) -> int:
        """As `is_full`, does not `refill`. A debt too deep to be packed never ends."""
        missing = self._full - self._level - max(0, now - self._last) * self._amount
        if missing <= 0:
            return 0
        return NEVER if self._amount == 0 or self._level * UNIT < MIN_FILL * self._full else -(-missing // self._amount)

    def fill_units(self, now: int) -> int:
        """The fill in units of 1 / UNIT, rounded down; a debt deeper than LEAST counts as that."""
        if self._full == 0:
            return UNIT
        return max(MIN_FILL, min(self._full, self._level + max(0, now - self._last) * self._amount) * UNIT // self._full)

    def set_fill_units(self, units: int, now: int) -> None:
        self._level = min(self._full, self._full * units // UNIT)
        self._last = now

    def follow(self, earlier: Tokens, now: int) -> None:
        """Be as `earlier`, of the same rate and capacity, is at `now`; that stays as it is."""
        self._level = min(self._full, earlier._level + max(0, now - earlier._last) * earlier._amount)
        self._last = now

    def change(self, rate: Rate, capacity: int, now: int) -> None:
        """Keep the fill in proportion; of a debt, the lesser of the same time and the same number.

        From a rate of 0 there is nothing to keep: begins empty, because a reload gives no free burst.
        """
        self.refill(now)
        old_full, amount, per_ns = self._full, self._amount, self._per_ns
        self._amount = rate.amount
        self._per_ns = rate.per_ns
        self._capacity = capacity
        self._full = capacity * rate.per_ns
        self._level = change_level(self._level, old_full, amount, per_ns, self._amount, self._per_ns, self._full)

    def __repr__(self) -> str:
        return f"<Tokens {self._level // self._per_ns}/{self._capacity} +{self._amount} per {self._per_ns} ns>"


def change_level(level: int, full: int, amount: int, per_ns: int, new_amount: int, new_per_ns: int, new_full: int) -> int:
    """What `level` of `full`, in units of `amount` per `per_ns`, is at another rate."""
    if full == 0 or new_full == 0:
        return 0
    if level >= 0:
        return level * new_full // full
    return max(level * new_per_ns // per_ns, level * new_amount // amount)


class TokenBucket(Algorithm):
    """A bucket of messages and bytes, either of which may be unlimited. Begins full."""

    __slots__ = ("_bytes", "_messages", "limit")

    def __init__(self, limit: Limit, now: int) -> None:
        self.limit = limit
        self._messages = None if limit.messages is None else Tokens(limit.messages, limit.messages_capacity(), now)
        self._bytes = None if limit.bytes is None else Tokens(limit.bytes, limit.bytes_capacity(), now)

    def available(self, count: int, messages: int, size: int, now: int) -> int:
        tokens = self._messages
        if tokens is not None:
            count = tokens.available(count, messages, now)
            if count == 0:
                return 0
        tokens = self._bytes
        if tokens is not None:
            count = tokens.available(count, size, now)
        return count

    def take(self, count: int, messages: int, size: int) -> None:
        tokens = self._messages
        if tokens is not None:
            tokens.take(count, messages)
        tokens = self._bytes
        if tokens is not None:
            tokens.take(count, size)

    def fits(self, messages: int, size: int, now: int) -> bool:
        """Whether so many messages and bytes can be taken now, in any parts: `room` has them."""
        tokens = self._messages
        if tokens is not None and not tokens.fits(messages, now):
            return False
        tokens = self._bytes
        return tokens is None or tokens.fits(size, now)

    def room(self, kept_ns: int, now: int) -> tuple[int, int]:
        """The messages and bytes that would pass now in any parts, while `kept_ns` of the rate stay; what costs more may pass as well.

        Below 0: not even a cost of 0 passes. An unlimited dimension has room for UNBOUNDED.
        """
        return (
            UNBOUNDED if self._messages is None else self._messages.room(kept_ns, now),
            UNBOUNDED if self._bytes is None else self._bytes.room(kept_ns, now),
        )

    def settle(self, messages: int, size: int, debt_ns: int, now: int) -> None:
        if self._messages is not None:
            self._messages.settle(messages, debt_ns, now)
        if self._bytes is not None:
            self._bytes.settle(size, debt_ns, now)

    def wait_ns(self, messages: int, size: int, now: int) -> int:
        wait = 0
        if self._messages is not None:
            wait = self._messages.wait_ns(messages, now)
        if self._bytes is not None:
            wait = max(wait, self._bytes.wait_ns(size, now))
        return wait

    # ---- for a bucket that is shared ---------------------------------------------------------------------------------

    def available_above(self, count: int, messages: int, size: int, kept_ns: int, now: int) -> int:
        if self._messages is not None:
            count = self._messages.available_above(count, messages, kept_ns, now)
        if self._bytes is not None and count > 0:
            count = self._bytes.available_above(count, size, kept_ns, now)
        return count

    def wait_above(self, messages: int, size: int, kept_ns: int, now: int) -> int:
        wait = 0
        if self._messages is not None:
            wait = self._messages.wait_above(messages, kept_ns, now)
        if self._bytes is not None:
            wait = max(wait, self._bytes.wait_above(size, kept_ns, now))
        return wait

    def held_ns(self, now: int) -> int:
        if self._messages is None:
            return 0 if self._bytes is None else self._bytes.held_ns(now)
        held = self._messages.held_ns(now)
        return held if self._bytes is None else min(held, self._bytes.held_ns(now))

    def capacity_ns(self) -> int:
        if self._messages is None:
            return 0 if self._bytes is None else self._bytes.capacity_ns()
        capacity = self._messages.capacity_ns()
        return capacity if self._bytes is None else min(capacity, self._bytes.capacity_ns())

    def cost_ns(self, messages: int, size: int) -> int:
        cost = 1 if self._messages is None else max(1, self._messages.cost_ns(messages))
        return cost if self._bytes is None else max(cost, self._bytes.cost_ns(size))

    def full_in_ns(self, messages: int, size: int, now: int) -> int:
        """The first instant at which a dimension that refuses runs over."""
        full_in = NEVER
        if self._messages is not None and self._messages.wait_ns(messages, now) > 0:
            full_in = self._messages.full_in_ns(now)
        if self._bytes is not None and self._bytes.wait_ns(size, now) > 0:
            full_in = min(full_in, self._bytes.full_in_ns(now))
        return full_in

    def is_full(self, now: int) -> bool:
        if self._messages is not None and not self._messages.is_full(now):
            return False
        return self._bytes is None or self._bytes.is_full(now)

    def fill(self, now: int) -> float:
        fill = 1.0
        if self._messages is not None:
            fill = self._messages.fill(now)
        if self._bytes is not None:
            fill = min(fill, self._bytes.fill(now))
        return fill

    def set_fill(self, fill: float, now: int) -> None:
        if self._messages is not None:
            self._messages.set_fill(fill, now)
        if self._bytes is not None:
            self._bytes.set_fill(fill, now)

    def full_after_ns(self, now: int) -> int:
        after = 0 if self._messages is None else self._messages.full_after_ns(now)
        return after if self._bytes is None else max(after, self._bytes.full_after_ns(now))

    def fills(self, now: int) -> int:
        messages = UNIT if self._messages is None else self._messages.fill_units(now)
        return pack(messages, UNIT if self._bytes is None else self._bytes.fill_units(now))

    def set_fills(self, fills: int, now: int) -> None:
        if self._messages is not None:
            self._messages.set_fill_units(messages_of(fills), now)
        if self._bytes is not None:
            self._bytes.set_fill_units(bytes_of(fills), now)

    def follow(self, earlier: Algorithm, now: int) -> None:
        """One of its own kind with its debts, as if that had been changed to this limit."""
        if isinstance(earlier, TokenBucket):
            limit = self.limit
            TokenBucket.change(self, earlier.limit, now)
            if self._messages is not None and earlier._messages is not None:
                self._messages.follow(earlier._messages, now)
            if self._bytes is not None and earlier._bytes is not None:
                self._bytes.follow(earlier._bytes, now)
            TokenBucket.change(self, limit, now)
        else:
            self.set_fill(earlier.fill(now), now)

    def change(self, limit: Limit, now: int) -> None:
        self.limit = limit
        self._messages = change_rate(self._messages, limit.messages, limit.messages_capacity(), now)
        self._bytes = change_rate(self._bytes, limit.bytes, limit.bytes_capacity(), now)

    def __repr__(self) -> str:
        return f"<TokenBucket messages={self._messages} bytes={self._bytes}>"


def change_rate(tokens: Tokens | None, rate: Rate | None, capacity: int, now: int) -> Tokens | None:
    """The dimension under another rate. A dimension without a limit until now begins full: nothing was counted."""
    if rate is None:
        return None
    if tokens is None:
        return Tokens(rate, capacity, now)
    tokens.change(rate, capacity, now)
    return tokens
