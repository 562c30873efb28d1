"""Pacing: messages pass evenly, one interval after the other, without a burst.

The naive way is to sleep an interval after each message. Then a late caller (a loop that was busy, a thread that was not woken) has
lost that time for ever: at 1,000/s and a wake-up that is 0.2 ms late the rate is 833/s. The next idea is a bucket that holds one
message; that loses the same, for it overflows between two looks.

ATM networks had the problem first. Their Generic Cell Rate Algorithm (ITU-T I.371, annex A) remembers the **theoretical arrival time**:
when the next cell is due if all came on time. A cell passes if it is due, or would be within the tolerance; then the next is due one
interval after this one *was due*, not after it came. So lateness is made up for, as far as the tolerance reaches, and the rate holds.
Here it is kept as what is **owed**: the time that has to go by until the next message is due, and below 0 how late it is by now, at most
`TOLERANCE_NS`. In units of 1/`amount` ns a message owes `per_ns` and a nanosecond repays `amount`: whole numbers, nothing rounded.

* A request passes if nothing is owed, whatever it costs, and then owes an interval for each message (or byte) of its own: a batch of 32
  passes at once and keeps the next one waiting for 32 intervals. Asking for the whole price beforehand would stop large ones for ever.
* In every window T: admitted <= rate * (T + TOLERANCE_NS) + the largest request. Below 100/s, where an interval is longer than the
  tolerance, that is one message at once; at 1,000/s eleven, after idleness or a stall, and from then on one each millisecond.
* The wait is true: nothing but time changes what is owed.

It is made for `action: delay`, which holds a message until it is due. With `reject` it refuses whatever arrives in a bunch, and most
traffic does. There is no breaker: for a second nothing, then a bunch, is the opposite of what this is for.
"""

from __future__ import annotations

from typing import Final

from limiter.algorithms.base import JITTER_NS, Algorithm
from limiter.algorithms.dimensions import BYTES, Dimension, Dimensions, rate_of
from limiter.algorithms.fills import MIN_FILL, UNIT
from limiter.limits import NEVER, Limit

TOLERANCE_NS: Final = 10_000_000  # ns; above a turn of the loop (8 ms at worst) and the 2 ms after which it asks again for what is held


def pacing(limit: Limit, now: int) -> Algorithm:
    """Paces messages and bytes; begins with nothing owed, as late as the tolerance allows."""
    return Dimensions(limit, now, Pace)


class Pace(Dimension):
    """What one rate owes. A rate of 0 admits nothing, not even a cost of 0. Knows no burst."""

    __slots__ = ("_amount", "_last", "_late", "_owed", "_per_ns")

    def __init__(self, limit: Limit, counts: str, now: int) -> None:
        super().__init__(counts)
        self._last = now  # when _owed was true
        self._set_rate(limit)
        self._owed = -self._late

    def _set_rate(self, limit: Limit) -> None:
        rate = rate_of(limit, self.counts)
        assert rate is not None, "a limit without this rate has no such dimension"
        self._amount = rate.amount
        self._per_ns = rate.per_ns
        self._late = TOLERANCE_NS * rate.amount  # the most that can be made up for

    def _at(self, now: int) -> int:
        """What is owed at `now`, as `_pay` would have it."""
        return max(-self._late, self._owed - max(0, now - self._last) * self._amount)

    def _pay(self, now: int) -> None:
        """A small step back of the clock is ignored; after a large one time counts from there, and nothing is granted."""
        elapsed = now - self._last
        if elapsed > 0:
            self._owed = self._at(now)
            self._last = now
        elif elapsed < -JITTER_NS:
            self._last = now

    def available(self, count: int, cost: int, now: int) -> int:
        self._pay(now)
        if self._owed > 0 or self._amount == 0:
            return 0
        return count if cost == 0 else min(count, -self._owed // (cost * self._per_ns) + 1)

    def take(self, count: int, cost: int) -> None:
        self._owed += count * cost * self._per_ns

    def settle(self, cost: int, debt_ns: int, now: int) -> None:
        self._pay(now)
        owed = self._owed + cost * self._per_ns
        if cost > 0:
            owed = min(owed, max(self._owed, debt_ns * self._amount))
        self._owed = max(owed, -self._late)

    def wait_ns(self, cost: int, now: int) -> int:
        return self._until(0, now)

    def full_in_ns(self, now: int) -> int:
        return self._until(-self._late, now)

    def _until(self, owed: int, now: int) -> int:
        """How long until no more than that is owed: exact, counted from `now`."""
        self._pay(now)
        if self._amount == 0:
            return NEVER
        if self._owed <= owed:
            return 0
        return -((owed - self._owed) // self._amount) + self._last - now

    def is_full(self, now: int) -> bool:
        return self._at(now) <= -self._late

    def fill(self, now: int) -> float:
        return 0.0 if self._amount == 0 else max(0, self._per_ns - self._at(now)) / (self._late + self._per_ns)

    def set_fill(self, fill: float, now: int) -> None:
        self.set_fill_units(int(max(0.0, fill) * UNIT), now)

    def full_after_ns(self, now: int) -> int:
        owed = self._at(now) + self._late
        if owed <= 0:
            return 0
        return NEVER if self._amount == 0 or self.fill_units(now) < MIN_FILL else -(-owed // self._amount)

    def fill_units(self, now: int) -> int:
        """UNIT: as late as can be; 0: one has just passed in time; below 0: a large one has."""
        return UNIT if self._amount == 0 else (self._per_ns - self._at(now)) * UNIT // (self._late + self._per_ns)

    def set_fill_units(self, units: int, now: int) -> None:
        left = (self._late + self._per_ns) * units // UNIT
        self._owed = 0 if self._amount == 0 else max(-self._late, self._per_ns - left)
        self._last = now

    def change(self, limit: Limit, now: int) -> None:
        """Keep the proportion; where a large one is still owed for, the lesser of the same time and the same number.

        From a rate of 0 there is nothing to keep: begins as after a message.
        """
        self._pay(now)
        amount, per_ns, span, left = self._amount, self._per_ns, self._late + self._per_ns, self._per_ns - self._owed
        self._set_rate(limit)
        if amount == 0 or self._amount == 0:
            left = 0 if self._amount > 0 else self._per_ns
        elif left >= 0:
            left = left * (self._late + self._per_ns) // span
        else:
            left = max(left * self._per_ns // per_ns, left * self._amount // amount)
        self._owed = self._per_ns - left

    def __repr__(self) -> str:
        what = "B" if self.counts == BYTES else ""
        return f"<Pace owes {self._owed}/{self._amount} ns, {self._amount}{what} per {self._per_ns} ns>"
