"""Slices: one limit over many members (worker processes of a gateway, gateways of a fleet), each of which decides on its own.

The naive way divides: each of N members gets a limit of 1/N. When all the load is on one of them, N - 1 parts of the limit lie idle.
The other naive way asks the owner of the limit for every message, and a message then costs a journey. Here a member decides from what it
has, and asks in the background for **slices**: tokens for the next moments, out of the owner's bucket, which is charged for them at once::

      owner: the real bucket, of rate r and the part of the burst that is not lent
        │ asks (wish), every few milliseconds    ▲
        ▼ grants, never more than it has         │ what lies idle is given back
      member: level ── spent by take ──► may fall to -line, is brought back above 0 by grants

* **The line.** Half of the burst is lent in advance: a member that owes nothing may spend `line` = burst / (2 N), at least 1 token, before
  it is granted anything. So the first message of a fresh key needs no journey. What it spends it owes, and its next grants pay for that.
* **The bound.** The owner's bucket holds the other half of the burst (`owner_limit`), so that in any window T the sum over all members is
  at most burst + r * T, as if there were one; where the burst is less than 2 N tokens, at most N tokens more, because every line has at
  least one; and each member may go into debt for one oversized request, as a bucket may. A member that ends may leave unpaid what it owed
  (once `line` per bucket), and takes with it what it was granted (once `slice`).
* **The slice.** What a member wants to have beside its line: what it has spent lately in HORIZON_NS; all of SLICE_NS of the rate (or one
  token, where that is less) after something was refused. Nothing when nobody has asked for IDLE_NS: then it gives back what it has and only
  pays what it owes. An ask is answered before the next one is made.
* **Short of tokens** the owner shares what there is between the members that were short lately (`Owner.grant`).
* **The owner is gone** (`Lease.orphan`): each member fills by itself, up to its line and not above, at its last share of the rate: of a
  limit that was used up, what it got of it in the last seconds (with a tenth divided evenly, so that nobody has nothing); of one that
  was not, that or 1/N of the limit, whichever is more. While shares are as they were the sum stays under the limit; it can never
  be twice the limit. No burst is made by it. The next grant ends it (`Lease.adopt`). Where members may be parted from each other
  (`Lease.parted`), each goes on as of a limit that was used up: then the shares of any of them are at most the limit together.

What this costs: a member alone passes at once no more than its line and slice, and more of the burst only after an answer, some
milliseconds later. `wait_ns` is the truth only for a member whose owner is gone: else it is a guess from its share. A breaker closes when
the member's part could be full again, which is earlier than the whole bucket could.

Only rates are shared. What cannot be (`fraction`) is divided by N.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from limiter.algorithms.base import JITTER_NS, Algorithm
from limiter.limits import NEVER, SECOND, Limit, Rate

if TYPE_CHECKING:
    from collections.abc import Hashable

    from limiter.ledger import Level
    from limiter.matching import Subject
    from limiter.rules import Identity

HORIZON_NS: Final = 75_000_000  # limiter.md 7: tokens for the next 50 to 100 ms
SLICE_NS: Final = 100_000_000  # likewise: the most that a member has in hand, so the most that is lost with it
IDLE_NS: Final = 200_000_000  # without a request for so long a member gives back what it has (a guess: twice a slice)
ROUND_NS: Final = 20_000_000  # about how long until an ask is answered (a guess, for hints only)
AGAIN_NS: Final = 20_000_000  # after an answer that was short: what comes in meanwhile is worth a journey (a guess)
LOST_NS: Final = SECOND  # an ask without an answer for so long is asked again
SHORT_NS: Final = 250_000_000  # who got less than it wanted counts for so long when others ask (a guess: some rounds)
WHOLE: Final = 1024  # shares are counted in parts of this
FLOOR_PARTS: Final = 10  # of a limit that is used up, one part in so many is divided evenly when the owner goes
MANY: Final = 1 << 40  # more tokens than any bucket has


def line_of(capacity: int, members: int) -> int:
    """How many tokens of a burst each member may spend on credit."""
    return 0 if capacity == 0 else max(1, capacity // (2 * members))


def owner_limit(limit: Limit, members: int) -> Limit:
    """The limit for the owner's bucket: the same rates, and of the bursts what is not lent to members."""
    messages, size = limit.messages_capacity(), limit.bytes_capacity()
    return replace(
        limit,
        messages_burst=max(1, messages - members * line_of(messages, members)) if messages else None,
        bytes_burst=max(1, size - members * line_of(size, members)) if size else None,
        burst_ns=None,
    )


def fraction(limit: Limit, members: int) -> Limit:
    """A limit of 1/members, for each of them to hold alone: rates exactly, bursts and other numbers rounded down, to 1 at least."""
    messages, size = limit.messages_capacity(), limit.bytes_capacity()
    return replace(
        limit,
        messages=divided(limit.messages, members),
        bytes=divided(limit.bytes, members),
        messages_burst=max(1, messages // members) if messages else None,
        bytes_burst=max(1, size // members) if size else None,
        burst_ns=None,
        concurrent=portion(limit.concurrent, members),
        at_least=portion(limit.at_least, members),
        start=portion(limit.start, members),
    )


def divided(rate: Rate | None, members: int) -> Rate | None:
    return None if rate is None else Rate(rate.amount, rate.per_ns * members)


def portion(number: int | None, members: int) -> int | None:
    return None if number is None else max(1, number // members)


class Lease:
    """The terms all buckets of one member share: of how many it is one, whether the owner is there; and which have something to ask."""

    __slots__ = ("active", "gone_at", "lost", "members", "parted")

    def __init__(self, members: int, *, parted: bool = False) -> None:
        """`parted`: some members may lose the owner while others have it, as machines do; then none goes on with more than its share."""
        if members < 1:
            raise ValueError(f"{members} members is less than 1")
        self.members = members  # may change: gateways come and go
        self.parted = parted
        self.gone_at = 0  # monotonic ns since when there is no owner; 0: it is there
        self.lost = 0  # asks that were never answered
        self.active: list[Sliced] = []  # used since they were settled, or in debt

    def asks(self, now: int) -> list[tuple[Sliced, int, int]]:
        """What to ask the owner for now: bucket, messages, bytes (negative: given back). Call it every few milliseconds."""
        found: list[tuple[Sliced, int, int]] = []
        kept: list[Sliced] = []
        for sliced in self.active:
            messages, size = sliced.wish(now)
            if messages != 0 or size != 0:
                found.append((sliced, messages, size))
            if sliced.listed:
                kept.append(sliced)
        self.active = kept
        return found

    def orphan(self, now: int) -> None:
        """The owner is gone: go on alone."""
        if self.gone_at == 0:
            self.gone_at = now

    def adopt(self) -> None:
        """The owner is back."""
        self.gone_at = 0

    def __repr__(self) -> str:
        state = "orphaned" if self.gone_at else "held"
        return f"<Lease {state} by 1 of {self.members}, {len(self.active)} active>"


class Pocket:
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
        self._pace = 0  # units spent in HORIZON_NS, as seen lately
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
        self._line = line_of(capacity, members) * rate.per_ns
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
        if room >= need > 0:
            return room // need
        return 1 if need > self._line and self._level >= 0 else 0  # it would never fit: into debt for it, as a bucket does

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

    def wait_ns(self, cost: int, lease: Lease, now: int) -> int:
        if self._full == 0:
            return NEVER
        missing = self.missing(cost)
        if missing == 0:
            return 0
        if lease.gone_at == 0 and not self._short:
            return ROUND_NS
        share = self.alone(lease)
        wait = -((self._rest - missing * WHOLE) // (self._amount * share))
        return max(1, wait + self._last - now) if lease.gone_at else max(wait, ROUND_NS)

    def full_in_ns(self) -> int:
        """The earliest that it could owe nothing: all of the rate comes here."""
        return NEVER if self._full == 0 else max(ROUND_NS, -(self._level // self._amount))

    def fill(self) -> float:
        return 0.0 if self._line == 0 else min(1.0, max(0.0, 1 + self._level / self._line))

    def set_fill(self, fill: float) -> None:
        self._level = int(self._line * (min(1.0, max(0.0, fill)) - 1))

    def is_whole(self) -> bool:
        return self._level >= 0

    # ---- with an owner ---------------------------------------------------------------------------------------------

    def wish(self, elapsed_ns: int, *, idle: bool) -> int:
        """Tokens to ask for; negative: given back, from this moment on."""
        if self._full == 0:
            return 0
        pace = self._spent * HORIZON_NS // elapsed_ns
        self._pace = max(pace, (self._pace + pace) // 2)
        self._spent = 0
        want = 0
        if not idle:
            want = self._slice if self._hungry else min(self._slice, max(self._per_ns, self._pace))
        level = self._level
        if level < 0 or level < want // 2 or (self._hungry and level < want):
            self._asked = -((level - want) // self._per_ns)
            return self._asked
        surplus = (level - (0 if idle else self._slice)) // self._per_ns
        if surplus <= 0:
            return 0
        self._level -= surplus * self._per_ns
        return -surplus

    def grant(self, tokens: int) -> bool:
        """Whether that was less than was asked for."""
        self._level += tokens * self._per_ns
        self._got += tokens
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
            weight = 1 << (elapsed // SECOND)  # each second halves what was before
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
            return max(1, (self._share * (FLOOR_PARTS - 1) + WHOLE // lease.members) // FLOOR_PARTS)
        return max(1, self._share, WHOLE // lease.members)

    def refill(self, lease: Lease, now: int) -> None:
        """While there is no owner: up to owing nothing, at its share of the rate."""
        begun = max(self._last, lease.gone_at)
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
        """Debts and what is in hand keep their proportion; from a rate of 0: begins with all of its line owed."""
        old_full = self._full
        self.set_rate(rate, capacity, members)
        self._level = self._level * self._full // old_full if old_full > 0 else -self._line
        self._spent = self._pace = 0

    def __repr__(self) -> str:
        return f"<Pocket {self._level // self._per_ns} line={self._line // self._per_ns} asked={self._asked}>"


class Sliced(Algorithm):
    """What one member has of a bucket of messages and bytes; decides without its owner."""

    __slots__ = (
        "_asked_at", "_bytes", "_lease", "_members", "_messages", "_short_until", "_used_at", "_wished_at", "limit", "listed",
        "whose",
    )  # fmt: skip

    def __init__(self, limit: Limit, now: int, lease: Lease) -> None:
        self.limit = limit
        self.whose: object = None  # whatever its member knows it by
        self.listed = False  # in `lease.active`
        self._lease = lease
        self._members = lease.members
        self._used_at = now
        self._wished_at = now
        self._asked_at = 0  # 0: nothing is asked for
        self._short_until = 0  # after an answer that was short: when it is worth asking again
        self._messages = None if limit.messages is None else Pocket(limit.messages, limit.messages_capacity(), lease.members, now)
        self._bytes = None if limit.bytes is None else Pocket(limit.bytes, limit.bytes_capacity(), lease.members, now)

    # ---- with the owner --------------------------------------------------------------------------------------------

    def wish(self, now: int) -> tuple[int, int]:
        """Messages and bytes to ask the owner for, at this moment; negative: given back. (0, 0): nothing.

        Nothing more is asked for until `grant` has brought the answer. Unlists itself when there is nothing to ask for any more.
        """
        if self._members != self._lease.members:
            self._count_members()
        if self._lease.gone_at != 0:
            self._refill(now)
            self.listed = -JITTER_NS < now - self._used_at < IDLE_NS
            return 0, 0
        if self._asked_at != 0:
            if 0 <= now - self._asked_at < LOST_NS:
                return 0, 0
            self._lease.lost += 1
        self._asked_at = 0
        if self._short_until != 0 and 0 < self._short_until - now <= AGAIN_NS:
            return 0, 0
        elapsed = now - self._wished_at
        if 0 >= elapsed > -JITTER_NS:
            return 0, 0
        self._wished_at = now
        idle = not -JITTER_NS < now - self._used_at < IDLE_NS
        messages = size = 0
        if self._messages is not None:
            self._messages.measure(now)
            messages = self._messages.wish(max(elapsed, 1), idle=idle)
        if self._bytes is not None:
            self._bytes.measure(now)
            size = self._bytes.wish(max(elapsed, 1), idle=idle)
        if messages > 0 or size > 0:
            self._asked_at = now
        elif idle:
            self.listed = False
        return messages, size

    def grant(self, messages: int, size: int, now: int) -> None:
        """The owner's answer to what was wished for: so much, and no more for now. `now` only ends the time that an answer may take."""
        self._asked_at = 0
        short = False
        if self._messages is not None:
            short = self._messages.grant(messages)
        if self._bytes is not None:
            short = self._bytes.grant(size) or short
        self._short_until = now + AGAIN_NS if short else 0
        self._use(now)

    def _count_members(self) -> None:
        """There are more members than there were, or fewer: another part of the burst is this one's."""
        self._members = members = self._lease.members
        if self._messages is not None and self.limit.messages is not None:
            self._messages.set_rate(self.limit.messages, self.limit.messages_capacity(), members)
        if self._bytes is not None and self.limit.bytes is not None:
            self._bytes.set_rate(self.limit.bytes, self.limit.bytes_capacity(), members)

    def _use(self, now: int) -> None:
        if self._members != self._lease.members:
            self._count_members()
        if not self.listed:
            self.listed = True
            self._wished_at = now - 1
            self._lease.active.append(self)

    def _refill(self, now: int) -> None:
        self._asked_at = 0
        if self._messages is not None:
            self._messages.measure(self._lease.gone_at)  # what it got once but not lately is no share of its
            self._messages.refill(self._lease, now)
        if self._bytes is not None:
            self._bytes.measure(self._lease.gone_at)
            self._bytes.refill(self._lease, now)

    # ---- as any bucket ---------------------------------------------------------------------------------------------

    def available(self, count: int, messages: int, size: int, now: int) -> int:
        self._used_at = now
        if not self.listed:
            self._use(now)
        if self._lease.gone_at != 0:
            self._refill(now)
        pocket = self._messages
        if pocket is not None:
            count = pocket.available(count, messages)
            if count == 0:
                return 0
        pocket = self._bytes
        if pocket is not None:
            count = pocket.available(count, size)
        return count

    def take(self, count: int, messages: int, size: int) -> None:
        pocket = self._messages
        if pocket is not None:
            pocket.take(count, messages)
        pocket = self._bytes
        if pocket is not None:
            pocket.take(count, size)

    def settle(self, messages: int, size: int, debt_ns: int, now: int) -> None:
        self._use(now)
        if self._messages is not None:
            self._messages.settle(messages, debt_ns)
        if self._bytes is not None:
            self._bytes.settle(size, debt_ns)

    def wait_ns(self, messages: int, size: int, now: int) -> int:
        """While there is an owner: a guess, from the member's share."""
        if self._lease.gone_at != 0:
            self._refill(now)
        wait = 0
        if self._messages is not None:
            wait = self._messages.wait_ns(messages, self._lease, now)
        if self._bytes is not None:
            wait = max(wait, self._bytes.wait_ns(size, self._lease, now))
        return wait

    def full_in_ns(self, messages: int, size: int, now: int) -> int:
        full_in = NEVER
        if self._messages is not None and self._messages.missing(messages) > 0:
            full_in = self._messages.full_in_ns()
        if self._bytes is not None and self._bytes.missing(size) > 0:
            full_in = min(full_in, self._bytes.full_in_ns())
        return full_in

    def is_full(self, now: int) -> bool:
        """Owes nothing. What it has in hand is lost when it is forgotten, a slice at most."""
        if self._lease.gone_at != 0:
            self._refill(now)
        if self._messages is not None and not self._messages.is_whole():
            return False
        return self._bytes is None or self._bytes.is_whole()

    def fill(self, now: int) -> float:
        """Of this member's line, not of the whole bucket."""
        if self._lease.gone_at != 0:
            self._refill(now)
        fill = 1.0
        if self._messages is not None:
            fill = self._messages.fill()
        if self._bytes is not None:
            fill = min(fill, self._bytes.fill())
        return fill

    def set_fill(self, fill: float, now: int) -> None:
        if self._messages is not None:
            self._messages.set_fill(fill)
        if self._bytes is not None:
            self._bytes.set_fill(fill)
        self._use(now)

    def change(self, limit: Limit, now: int) -> None:
        self.limit = limit
        members = self._lease.members
        self._messages = changed(self._messages, limit.messages, limit.messages_capacity(), members, now)
        self._bytes = changed(self._bytes, limit.bytes, limit.bytes_capacity(), members, now)

    def __repr__(self) -> str:
        return f"<Sliced messages={self._messages} bytes={self._bytes}>"


def changed(pocket: Pocket | None, rate: Rate | None, capacity: int, members: int, now: int) -> Pocket | None:
    """The dimension under another rate. What was unlimited until now owes nothing: nothing was counted."""
    if rate is None:
        return None
    if pocket is None:
        return Pocket(rate, capacity, members, now)
    pocket.change(rate, capacity, members)
    return pocket


class Lent:
    """What the owner knows of a bucket whose parts it hands out: whose it is, and where it is."""

    __slots__ = ("identity", "level", "subject")

    def __init__(self, identity: Identity, subject: Subject) -> None:
        self.identity = identity
        self.subject = subject  # whoever asked first
        self.level: Level | None = None  # the owner's, where it was last found

    def __repr__(self) -> str:
        return f"<Lent {self.identity}>"


class Owner:
    """Hands out slices of buckets: never more than there is, and where that is short, in turns that leave something for the others."""

    __slots__ = ("_short", "granted", "refused")

    def __init__(self) -> None:
        self._short: dict[Hashable, dict[int, int]] = {}  # by bucket: members that got less than they wanted, and when (monotonic ns)
        self.granted = 0  # asks answered in full
        self.refused = 0  # asks that got less

    def grant(self, name: Hashable, bucket: Algorithm, member: int, messages: int, size: int, now: int) -> tuple[int, int]:
        """What `member` gets of `bucket` (known as `name`) for what it wishes; what it gives back (negative) is taken back."""
        if messages < 0 or size < 0:
            bucket.settle(min(messages, 0), min(size, 0), 0, now)
        others = self._others(name, member, now)
        got_messages = got_size = 0
        if messages > 0:
            got_messages = part(bucket.available(MANY, 1, 0, now), messages, others)
            bucket.take(got_messages, 1, 0)
        if size > 0:
            got_size = part(bucket.available(MANY, 0, 1, now), size, others)
            bucket.take(got_size, 0, 1)
        if got_messages < messages or got_size < size:
            self._short.setdefault(name, {})[member] = now
            self.refused += 1
        else:
            self._forget(name, member)
            self.granted += 1
        return got_messages, got_size

    def _others(self, name: Hashable, member: int, now: int) -> int:
        short = self._short.get(name)
        if short is None:
            return 0
        for other, since in list(short.items()):
            if not -JITTER_NS < now - since < SHORT_NS:
                del short[other]
        if not short:
            del self._short[name]
        return len(short) - (member in short)

    def _forget(self, name: Hashable, member: int) -> None:
        short = self._short.get(name)
        if short is not None and short.pop(member, 0) and not short:
            del self._short[name]

    def gone(self, member: int) -> None:
        """A member has ended: what it wanted no longer counts."""
        for name in list(self._short):
            self._forget(name, member)

    def sweep(self, now: int) -> None:
        """Forget who is short no more. Call it once in a while, for buckets that nobody asks for any more."""
        for name in list(self._short):
            self._others(name, -1, now)

    def __repr__(self) -> str:
        return f"<Owner granted={self.granted} refused={self.refused} short={len(self._short)}>"


def part(there: int, wanted: int, others: int) -> int:
    """Of what is there, what one member gets while so many others are short too: an equal part, and at least one token."""
    return min(wanted, max(min(1, there), there // (1 + others)))
