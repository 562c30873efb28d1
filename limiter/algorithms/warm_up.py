"""Warm-up: after idleness a third of the limit, rising to all of it while it is used.

A broker or a consumer that has slept (caches cold, connections closed, code not compiled yet) falls over under a load that it carries
easily once it is warm. The naive way is a rate that follows a clock: "since t0 so many seconds, so now so much". It must know when use
began and when it ended, and what a trickle is, and the wait it tells must foresee the rate's own rise.

Guava's SmoothWarmingUp found the better end: do not change the rate, change the **price**, and let one number say how rested the thing is.
Here too. It is a token bucket (`token_bucket`: level, burst, debt for oversized requests, whole numbers in the same unit) beside which
stands `rest`: how long it has been idle, at most `over`.

    rest     rises with the clock while the bucket is full, and falls by one interval with each message
    price    of a message, in intervals: 1 while rest is below over/2, from there rising in a line to 3 at over

                3 |                       /      A saturated key pays 3 intervals for the first message, less for each that follows
                  |                   /          and 1 after rate * over/2 messages, for which it has paid over exactly: its rate has
                1 |______________ /              risen from a third of the limit to the limit in that time (to a half of it after
                  0            over/2    over    5/8 of the time). Left alone it is cold again over/2 to over later.

* Price and rest are settled when a message passes; waiting changes neither. So the wait is true: the level alone must rise.
* The price of n messages is P(rest) - P(rest - n intervals) for one fixed P (the area under the line above, rounded down). What
  telescopes is additive: n at once cost exactly what n singly do, and giving back undoes taking.
* In every window T: admitted <= burst + rate * T, as of a bucket, for no price is below 1. Of a rested key:
  n + E(n) <= burst + rate * T, where E(n) is what the first n pay above 1 each: w - max(0, w - n)^2 / w, with w = rate * over/2.
  From a cold start endless demand loses over/2 of the rate, once.
* The burst, too, is dear when rested: default one second of the limit, which passes a third as many.
* A key that uses half of the limit or more, however evenly, is warm in the end; one that uses a quarter or less never is.

Unlike Guava it has a burst, refuses requests rather than lending them the future, and counts in integers. Messages and bytes warm up apart.
A bucket begins cold. Over a restart one number is kept: how long until it would be wholly rested; which is read the careful way.
"""

from __future__ import annotations

from typing import Final

from limiter.algorithms.base import JITTER_NS, Algorithm
from limiter.algorithms.dimensions import Dimension, Dimensions, capacity_of, rate_of
from limiter.algorithms.fills import UNIT
from limiter.algorithms.token_bucket import change_level
from limiter.limits import NEVER, SECOND, Limit

COLDEST: Final = 3  # intervals; the price of a message after a long rest
DEFAULT_OVER_NS: Final = 10 * SECOND  # as Sentinel's warmUpPeriodSec


def warm_up(limit: Limit, now: int) -> Algorithm:
    """Warms messages and bytes up; begins cold and full."""
    return Dimensions(limit, now, Warming)


class Warming(Dimension):
    """One rate that warms up: a level as `Tokens` has it, and rest, both in units of 1/`amount` ns; a token is `per_ns` of them."""

    __slots__ = ("_amount", "_capacity", "_full", "_last", "_level", "_per_ns", "_rest", "_rested")

    def __init__(self, limit: Limit, counts: str, now: int) -> None:
        super().__init__(counts)
        self._last = now  # when _level and _rest were true
        self._set_rate(limit)
        self._level = self._full
        self._rest = self._rested

    def _set_rate(self, limit: Limit) -> None:
        rate = rate_of(limit, self.counts)
        assert rate is not None, "a limit without this rate has no such dimension"
        self._amount = rate.amount
        self._per_ns = rate.per_ns
        self._capacity = capacity_of(limit, self.counts)
        self._full = self._capacity * rate.per_ns
        self._rested = (limit.warm_up_ns or DEFAULT_OVER_NS) * rate.amount  # the most rest there is

    def _pass_time(self, now: int) -> None:
        """A small step back of the clock is ignored; after a large one time counts from there, and nothing is granted."""
        elapsed = now - self._last
        if elapsed > 0:
            self._level, self._rest = self._at(now)
            self._last = now
        elif elapsed < -JITTER_NS:
            self._last = now

    def _at(self, now: int) -> tuple[int, int]:
        """Level and rest at `now`, if no request comes until then. It rests only while the level is full; below 0 there is no rest."""
        gain = max(0, now - self._last) * self._amount
        missing = self._full - self._level
        if gain <= missing:
            return self._level + gain, max(0, self._rest)
        return self._full, min(self._rested, max(0, self._rest) + gain - missing)

    def _paid(self, rest: int) -> int:
        """P: what all messages up to this rest pay together."""
        cold = rest - self._rested // 2
        return rest if cold <= 0 else rest + cold * cold // (self._rested // 2)

    def _price(self, tokens: int) -> int:
        rest = self._rest
        units = tokens * self._per_ns
        return units if rest <= self._rested // 2 else self._paid(rest) - self._paid(rest - units)

    def available(self, count: int, cost: int, now: int) -> int:
        self._pass_time(now)
        level = self._level
        if self._full == 0:
            return 0
        if self._price(count * cost) <= level:
            return count
        if self._price(cost) > level:
            return 1 if level == self._full else 0  # one that costs more than a full bucket leaves a debt
        least, most = 1, count  # that `least` pass is known, and that `most` do not
        while most - least > 1:
            middle = (least + most) // 2
            if self._price(middle * cost) <= level:
                least = middle
            else:
                most = middle
        return least

    def take(self, count: int, cost: int) -> None:
        tokens = count * cost
        self._level -= self._price(tokens)
        self._rest -= tokens * self._per_ns

    def settle(self, cost: int, debt_ns: int, now: int) -> None:
        self._pass_time(now)
        level = self._level
        if cost > 0:
            self.take(1, cost)
            self._level = max(self._level, min(level, -debt_ns * self._amount))
        else:
            rest = min(self._rested, self._rest - cost * self._per_ns)
            self._level = min(self._full, level + self._paid(rest) - self._paid(self._rest))
            self._rest = rest

    def wait_ns(self, cost: int, now: int) -> int:
        self._pass_time(now)
        return NEVER if self._full == 0 else self._until(min(self._full, self._price(cost)), now)

    def full_in_ns(self, now: int) -> int:
        self._pass_time(now)
        return NEVER if self._full == 0 else self._until(self._full, now)

    def _until(self, need: int, now: int) -> int:
        if need <= self._level:
            return 0
        return -((self._level - need) // self._amount) + self._last - now

    def is_full(self, now: int) -> bool:
        """Full and wholly rested: who forgets a warm one would take its warmth."""
        return self._at(now) == (self._full, self._rested)

    def fill(self, now: int) -> float:
        return 0.0 if self._full == 0 else max(0, self._at(now)[0]) / self._full

    def set_fill(self, fill: float, now: int) -> None:
        """As rested as it is full: what is in use is not cold."""
        fill = min(1.0, max(0.0, fill))
        self._level = int(self._full * fill)
        self._rest = int(self._rested * fill)
        self._last = now

    def full_after_ns(self, now: int) -> int:
        """NEVER, so that it stays at hand, while it is in debt: one number cannot tell a debt and the rest beside it."""
        level, rest = self._at(now)
        missing = self._full - level + self._rested - rest
        if missing <= 0:
            return 0
        return NEVER if self._amount == 0 or level < 0 else -(-missing // self._amount)

    def fill_units(self, now: int) -> int:
        """UNIT: as new; 0: in full use, the bucket empty; below 0 a debt alone, whose rest is lost."""
        if self._full == 0:
            return UNIT
        level, rest = self._at(now)
        return (level + (rest if level >= 0 else 0)) * UNIT // (self._full + self._rested)

    def set_fill_units(self, units: int, now: int) -> None:
        """What is missing is missing from the level first, then from rest: never more at once than there was, nor less rest."""
        whole = self._full + self._rested
        missing = whole - whole * min(units, UNIT) // UNIT
        from_rest = min(max(0, missing - self._full), self._rested)  # a debt: more is missing than level and rest together
        self._level = self._full - (missing - from_rest)
        self._rest = self._rested - from_rest
        self._last = now

    def change(self, limit: Limit, now: int) -> None:
        """Level and rest keep their proportion, debts as a bucket's. From a rate of 0 there is none to keep: begins empty and cold."""
        self._pass_time(now)
        full, rested, amount, per_ns = self._full, self._rested, self._amount, self._per_ns
        self._set_rate(limit)
        self._level = change_level(self._level, full, amount, per_ns, self._amount, self._per_ns, self._full)
        self._rest = self._rest * self._rested // rested if rested > 0 else self._rested

    def __repr__(self) -> str:
        level, rest = self._level // self._per_ns, self._rest // self._per_ns
        return f"<Warming {level}/{self._capacity} rest={rest}/{self._rested // self._per_ns} +{self._amount} per {self._per_ns} ns>"
