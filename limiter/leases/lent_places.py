"""The owner of a limit on requests in flight: who of its members holds how many places of it.

A token is spent; a place is lent and comes back, and while a member's requests are in flight nobody can take theirs. So members do not
ask for more or less: each says how many it **needs** (as many as it had in flight lately, and what it had to refuse) and how many it
**holds**, some times a second, and is told how many it may hold from now on. None of these is a difference, so a lost message, or an owner
that has forgotten everything, is made good by the next one. (When somebody unknown holds places the owner has forgotten, and gives nobody
more until all must have told.)

* What is needed is shared by max-min: whoever needs less than an even part gets it, the others share the rest evenly. Where there are fewer
  places than members, they take turns of TURN_NS, whatever each needs.
* A member that holds more than its part lets no request pass until that many have ended. Only what nobody holds is lent, so the sum is
  never above the limit.
* Whoever has said nothing for SILENT_NS holds nothing any more: it has ended, or its last word was not for this owner. (No rule was in
  force for the bucket when it gave back, or it spoke of tokens, because the limit's algorithm was changed.)
* What nobody needs is spread evenly, with a part for whoever comes next, so that the next requests find a place in hand.

A script in Redis does the same for a fleet (`gateway.fleet.script`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from limiter.algorithms.base import Algorithm
from limiter.algorithms.slots import MIN_WAIT_NS, Slots, most_in_flight
from limiter.limits import NEVER, SECOND

if TYPE_CHECKING:
    from limiter.limits import Limit

ON_CREDIT: Final = 1  # places; that a member may hold of which its owner does not know yet
LEARN_NS: Final = 250_000_000  # ns; some rounds of a fleet, in which each member says what it holds
SILENT_NS: Final = 5 * SECOND  # ns; a hundred rounds of a member that has something in flight; a guess
TURN_NS: Final = 500_000_000  # ns; some rounds of a fleet: a place that goes round is idle for one of them; a guess


class Holder:
    """What one member has said last, and when (monotonic ns)."""

    __slots__ = ("held", "needed", "said_at")

    def __init__(self, needed: int, held: int, said_at: int) -> None:
        self.needed = needed
        self.held = held
        self.said_at = said_at

    def __repr__(self) -> str:
        return f"<Holder needs {self.needed}, holds {self.held}>"


class LentPlaces(Algorithm):
    """The owner's bucket of a limit on requests in flight. Lets nothing pass by itself."""

    __slots__ = ("_holders", "_learns_until", "_slots", "most")

    def __init__(self, limit: Limit, now: int) -> None:
        self.most = most_in_flight(limit)
        self._slots = Slots(self.most, now)  # to be shown: what is in use at all members
        self._holders: dict[int, Holder] = {}
        self._learns_until = 0  # monotonic ns; it has forgotten who holds what: nobody gets more until all have said so

    def lend(self, member: int, needed: int, held: int, now: int) -> int:
        """How many places `member` may hold from now on. One that needs none gives all back."""
        self.forget_silent(now)
        if needed <= 0:
            self.leave(member)
            return 0
        if member not in self._holders and held > ON_CREDIT:
            self._learns_until = now + LEARN_NS
        self._holders[member] = mine = Holder(min(needed, self.most), held, now)
        others = taken = 0
        for other, holder in self._holders.items():
            if other != member:
                others += holder.held
                taken += max(holder.held, holder.needed)
        spare = max(0, self.most - taken - mine.needed)
        part = self._part(member, now) + spare // (1 + len(self._holders))
        if part > held:
            part = held if now < self._learns_until else max(held, min(part, self.most - others))
            mine.held = part
        self._count()
        return part

    def _part(self, member: int, now: int) -> int:
        """What is left for `member` when those that need less, and whose turn it is, have theirs."""
        members = sorted(self._holders)
        turn = now // TURN_NS
        scarce = self.most < len(members)  # then those that come first get nothing
        order = sorted(members, key=lambda each: (0 if scarce else self._holders[each].needed, (members.index(each) + turn) % len(members)))
        left, part = self.most, 0
        for number, each in enumerate(order):
            part = min(self._holders[each].needed, left // (len(order) - number))
            if each == member:
                break
            left -= part
        return part

    def leave(self, member: int) -> bool:
        """What it held is free; whether anybody is left."""
        self._holders.pop(member, None)
        self._count()
        return len(self._holders) > 0

    def forget_silent(self, now: int) -> bool:
        """Free what those held that have said nothing for long; whether anybody is left."""
        silent = [member for member, holder in self._holders.items() if abs(now - holder.said_at) > SILENT_NS]
        for member in silent:
            self.leave(member)
        return len(self._holders) > 0

    def _count(self) -> None:
        used = 0
        for holder in self._holders.values():
            used += min(holder.needed, holder.held)
        self._slots.taken = used

    def slots(self) -> Slots | None:
        return self._slots

    # ---- as any bucket: for whoever only looks -----------------------------------------------------------------------

    def available(self, count: int, messages: int, size: int, now: int) -> int:
        return 0

    def take(self, count: int, messages: int, size: int) -> None:
        pass

    def settle(self, messages: int, size: int, debt_ns: int, now: int) -> None:
        pass

    def wait_ns(self, messages: int, size: int, now: int) -> int:
        """An estimate: when a place is given back is the broker's to say."""
        return MIN_WAIT_NS if self._slots.free() == 0 else 0

    def full_in_ns(self, messages: int, size: int, now: int) -> int:
        return NEVER

    def is_full(self, now: int) -> bool:
        return len(self._holders) == 0

    def fill(self, now: int) -> float:
        return max(0.0, 1 - self._slots.taken / self.most)

    def set_fill(self, fill: float, now: int) -> None:
        """After a restart nothing is in flight."""

    def change(self, limit: Limit, now: int) -> None:
        self.most = self._slots.most = most_in_flight(limit)

    def __repr__(self) -> str:
        return f"<LentPlaces {self._slots} {self._holders}>"
