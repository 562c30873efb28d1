"""Leased tokens: the messages, or the bytes, that one member of several has of one bucket.

The member spends them at once, and the owner grants them (`limiter.leases.leased_bucket`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from limiter.algorithms.base import JITTER_NS
from limiter.algorithms.token_bucket import change_level
from limiter.limits import NEVER, SECOND

if TYPE_CHECKING:
    from limiter.leases.lease import Lease
    from limiter.limits import Rate

HORIZON_NS: Final = 75_000_000  # ns; a grant is for so long; docs/design/limiter.md 7: 50 to 100 ms
MAX_HORIZON_NS: Final = SECOND  # where asks are far apart a grant is for half as long again as from one to the next, but not for longer
SLICE_NS: Final = 100_000_000  # ns of the rate; the most a member has in hand while asks are no further apart; docs/design/limiter.md 7
ROUND_NS: Final = 20_000_000  # ns; about how long an ask takes to be answered; a guess, for hints only
WHOLE: Final = 1 << 16  # parts in which shares are counted
FLOOR_PARTS: Final = 128  # when the owner goes, one part in so many of a limit that is used up is kept for members that had none of it


def credit_line(capacity: int, members: int) -> int:
    """How many tokens of a burst each member may spend on credit."""
    return 0 if capacity == 0 else max(1, capacity // (2 * members))


class LeasedTokens:
    """One dimension of what a member has of a bucket. Like `Tokens` it counts in a unit in which all is whole: a token is `per_ns` of it.

    `level` above 0: granted and not spent yet; below: spent and not granted yet.
    """

    __slots__ = (
        "_amount", "_asked", "_full", "_got", "_got_since", "_hungry", "_last", "_level", "_line", "_pace", "_per_ns", "_rest", "_share",
        "_short", "_slice", "_spent",
    )  # fmt: skip

    def __init__(self, rate: Rate, capacity: int, members: int, now: int) -> None:
        """Owes nothing and has nothing."""
        self._level = 0
        self._asked = 0  # tokens asked for and not answered
        self._spent = 0  # units, since the last wish
        self._pace = 0  # units spent in the time that a grant is for, as seen lately
        self._hungry = False  # something was refused since the last grant
        self._short = False  # the owner had less than was wanted, the last time
        self._got = 0  # tokens granted since `_got_since`
        self._got_since = now
        self._share = WHOLE // members  # of the rate: what it got lately
        self._last = now  # while there is no owner: when _level was true
        self._rest = 0  # then: parts of a unit beyond it, in WHOLE
        self.set_rate(rate, capacity, members)

    def set_rate(self, rate: Rate, capacity: int, members: int) -> None:
        self._amount = rate.amount
        self._per_ns = rate.per_ns
        self._full = capacity * rate.per_ns
        self._line = credit_line(capacity, members) * rate.per_ns
        self._slice = max(rate.per_ns, SLICE_NS * rate.amount) if capacity > 0 else 0

    # ---- deciding --------------------------------------------------------------------------------------------------

    def available(self, count: int, cost: int) -> int:
        room = self._level + self._line
        need = cost * self._per_ns
        if need * count <= room and self._full > 0:
            return count
        self._hungry = True
        if self._full == 0:
            return 0
        if need > self._line:  # it would never fit: into debt for it, as a bucket does
            return min(count, self._level // need + 1) if self._level >= 0 else 0
        return room // need if room >= need > 0 else 0

    def available_above(self, count: int, cost: int, kept_ns: int) -> int:
        """As `available`, but `kept_ns` of the rate stay, or all that one of `cost` leaves of the most that is in hand."""
        need = cost * self._per_ns
        if self._full == 0 or need > self._line:
            return self.available(count, cost)
        over = self._level + self._line - min(kept_ns * self._amount, self._line + self._slice - need)
        if count * need <= over:
            return count
        self._hungry = True
        return over // need if over >= need > 0 else 0

    def wait_above(self, cost: int, kept_ns: int, lease: Lease, now: int) -> int:
        """Until `available_above` lets one of `cost` pass: a guess, as `wait_ns`."""
        kept = min(kept_ns, max(0, self.capacity_ns() - self.cost_ns(cost)))
        wait = self.wait_ns(cost, lease, now)
        if wait > 0:
            return min(NEVER, wait + kept)
        missing = self.cost_ns(cost) + kept - self.held_ns()
        return max(ROUND_NS, missing) if missing > 0 else 0

    def held_ns(self) -> int:
        return (self._level + self._line) // self._amount if self._amount > 0 else 0

    def capacity_ns(self) -> int:
        """Of the most that is in hand: the line and a slice."""
        return (self._line + self._slice) // self._amount if self._amount > 0 else 0

    def cost_ns(self, cost: int) -> int:
        return cost * self._per_ns // self._amount if self._amount > 0 else 0

    def take(self, count: int, cost: int) -> None:
        units = count * cost * self._per_ns
        self._level -= units
        self._spent += units

    def settle(self, cost: int, debt_ns: int) -> None:
        level = self._level - cost * self._per_ns
        if cost > 0:
            level = max(level, min(self._level, -self._line - debt_ns * self._amount))
            self._spent += self._level - level
        self._level = level

    def missing(self, cost: int) -> int:
        """Units that are not there for one of `cost`."""
        need = cost * self._per_ns
        if need > self._line and self._level + self._line < need:
            return max(0, -self._level)
        return max(0, need - self._line - self._level)

    def want(self, cost: int) -> None:
        """Somebody waits for one of `cost`."""
        if self.missing(cost) > 0:
            self._hungry = True

    def wait_ns(self, cost: int, lease: Lease, now: int) -> int:
        if self._full == 0:
            return NEVER
        missing = self.missing(cost)
        if missing == 0:
            return 0
        if lease.owner_lost_at == 0 and not self._short:
            return ROUND_NS
        share = self.alone(lease)
        wait = -((self._rest - missing * WHOLE) // (self._amount * share))
        return max(1, wait + self._last - now) if lease.owner_lost_at else max(wait, ROUND_NS)

    def full_in_ns(self) -> int:
        """The earliest that it could owe nothing: all of the rate comes here."""
        return NEVER if self._full == 0 else max(ROUND_NS, -(self._level // self._amount))

    def fill(self) -> float:
        return 0.0 if self._line == 0 else min(1.0, max(0.0, 1 + self._level / self._line))

    def set_fill(self, fill: float) -> None:
        self._level = int(self._line * (min(1.0, max(0.0, fill)) - 1))

    def in_hand(self) -> int:
        """Units that can be spent now, on credit too."""
        return self._level + self._line

    def is_whole(self) -> bool:
        return self._level >= 0

    # ---- with an owner ---------------------------------------------------------------------------------------------

    def wish(self, elapsed_ns: int, *, idle: bool) -> int:
        """Tokens to ask for; negative: given back, from this moment on."""
        if self._full == 0:
            return 0
        span = max(HORIZON_NS, min(elapsed_ns + elapsed_ns // 2, MAX_HORIZON_NS))
        pace = self._spent * span // elapsed_ns
        self._pace = max(pace, (self._pace + pace) // 2)
        self._spent = 0
        most = max(self._slice, span * self._amount)
        want = 0
        if not idle:
            want = most if self._hungry else min(most, max(self._per_ns, self._pace))
        level = self._level
        if level < 0 or level < want // 2 or (self._hungry and level < want):
            self._asked = -((level - want) // self._per_ns)
            return self._asked
        surplus = (level - (0 if idle else most)) // self._per_ns
        if surplus <= 0:
            return 0
        self._level -= surplus * self._per_ns
        return -surplus

    def grant(self, tokens: int, permille: int = 1000) -> bool:
        """Whether that was less than was asked for. Of what is granted `permille` thousandths can be spent."""
        self._level += tokens * self._per_ns * permille // 1000 if tokens > 0 else tokens * self._per_ns
        self._got += tokens * permille // 1000
        short = tokens < self._asked
        if self._asked > 0:
            self._short = short
            if not short:
                self._hungry = False
        self._asked = 0
        return short

    def measure(self, now: int) -> None:
        """Once a second: what came of the rate, the last seconds weighing most."""
        elapsed = now - self._got_since
        if elapsed >= SECOND:
            most = self._amount * elapsed
            share = min(WHOLE, self._got * self._per_ns * WHOLE // most) if most > 0 else 0
            weight = 1 << min(elapsed // SECOND, 3)  # each second halves what was before
            self._share = share if elapsed > 3 * SECOND else (self._share + (weight - 1) * share) // weight
            self._got = 0
            self._got_since = now
        elif elapsed < -JITTER_NS:
            self._got = 0
            self._got_since = now

    # ---- without ---------------------------------------------------------------------------------------------------

    def alone(self, lease: Lease) -> int:
        """The share of the rate to go on with, in parts of WHOLE; never 0."""
        if self._short or lease.parted:
            return max(1, self._share * (FLOOR_PARTS - 1) // FLOOR_PARTS, WHOLE // (lease.members * FLOOR_PARTS))
        return max(1, self._share, WHOLE // lease.members)

    def refill(self, lease: Lease, now: int) -> None:
        """While there is no owner: up to owing nothing, at its share of the rate. Time without an owner is none in which nothing came."""
        self._got = 0
        self._got_since = now
        begun = max(self._last, lease.owner_lost_at)
        elapsed = now - begun
        if elapsed > 0:
            if self._level < 0:
                gained = self._rest + elapsed * self._amount * self.alone(lease)
                self._level = min(0, self._level + gained // WHOLE)
                self._rest = gained % WHOLE
            self._last = now
        elif elapsed < -JITTER_NS:
            self._last = now

    def change(self, rate: Rate, capacity: int, members: int) -> None:
        """What is in hand and what is spent on credit keep their proportion, a debt is changed as a bucket's; from a rate of 0: begins with
        all of its line owed."""
        level, full, line, amount, per_ns = self._level, self._full, self._line, self._amount, self._per_ns
        self.set_rate(rate, capacity, members)
        self._level = self._carried(level, full, line, amount, per_ns)
        self._spent = self._pace = 0

    def follow(self, earlier: LeasedTokens) -> None:
        """Owe as much as `earlier`, of another bucket and rate."""
        self._level = self._carried(min(0, earlier._level), earlier._full, earlier._line, earlier._amount, earlier._per_ns)

    def _carried(self, level: int, full: int, line: int, amount: int, per_ns: int) -> int:
        """What `level` at another rate and line is here."""
        if full == 0:
            return -self._line
        if level >= 0:
            return level * self._full // full
        if level >= -line:
            return level * self._line // line
        return change_level(level + line, full, amount, per_ns, self._amount, self._per_ns, self._full) - self._line

    def __repr__(self) -> str:
        return f"<LeasedTokens {self._level // self._per_ns} line={self._line // self._per_ns} asked={self._asked}>"


def change_rate(tokens: LeasedTokens | None, rate: Rate | None, capacity: int, members: int, now: int) -> LeasedTokens | None:
    """The dimension under another rate. A dimension without a limit until now owes nothing: nothing was counted."""
    if rate is None:
        return None
    if tokens is None:
        return LeasedTokens(rate, capacity, members, now)
    tokens.change(rate, capacity, members)
    return tokens
