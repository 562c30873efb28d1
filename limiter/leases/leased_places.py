"""A member's places of a limit on requests in flight (`limiter.leases.lent_places` is the owner's side).

What one process does with its slots (`algorithms.concurrency`) is done with those that are held here, `Slots.lent`; the member says what it
needs in the background and decides by itself in between.

* **The first request** finds no place in hand where its bucket was idle. It passes on credit, one for each member, where there are at
  least as many places as members. So the sum is above the limit by members - 1 at most, while members begin.
* **More than it has in hand** is no refusal yet: the places may lie idle at the owner. So it waits for the owner, a round trip, whatever
  the rule's action (`awaits_owner`), and is refused where the owner has said that there are not so many; while a member begins and gets
  none, only after BEGIN_NS, in which one that is idle gives its own back. Places kept in advance would save the round trip, and lie idle
  where all of the load is at one member.
* **Idle** for IDLE_NS with nothing in flight a member gives all back; for REFRESH_NS where there are fewer places than members.
* **The owner is gone**: the member goes on with the places it holds, with one at least; one that was idle, with an even part. One that is
  idle when the owner comes back holds nothing any more.
* **Adaptive** limits are found by each member for itself, from the latency that it sees, as connections find their windows. What they find
  together stays within the whole ceiling, wherever the load is. All probe at the same time, by the owner's clock: alone each would take the
  others' queue for the broker's own latency, and in the simulation it is four times that after a minute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from limiter.algorithms import ALGORITHMS
from limiter.algorithms.base import JITTER_NS, Algorithm
from limiter.algorithms.slots import Slots, most_in_flight
from limiter.leases.lease import Lease, Lessee
from limiter.leases.leased_bucket import AGAIN_NS, LOST_NS, MAX_ACTIVE
from limiter.leases.leased_tokens import ROUND_NS
from limiter.limits import SECOND

if TYPE_CHECKING:
    from limiter.limits import Limit

REFRESH_NS: Final = 50_000_000  # ns; as often a member in use tells what it needs; a round of a fleet
IDLE_NS: Final = 100_000_000  # ns; after so long without a request a member gives its places back: they serve nobody meanwhile; a guess
BEGIN_NS: Final = 2 * IDLE_NS  # an idle member's places have come back by then, with a round of a fleet
CLOCK_STEP_NS: Final = 50_000_000  # ns; below it a difference of clocks is the journey of an answer; a guess
PEAK_NS: Final = 50_000_000  # ns; what was in flight at most in this time and the one before is needed; a guess


class LeasedPlaces(Lessee):
    """The places that one member holds; decides without its owner."""

    __slots__ = (
        "_asked_at", "_began_at", "_begun_at", "_earlier_peak", "_fresh", "_held", "_inner", "_most", "_needed", "_peak", "_refused",
        "_short", "_short_until", "_slots", "_told_at", "_used_at",
    )  # fmt: skip

    def __init__(self, limit: Limit, now: int, lease: Lease, algorithm: str) -> None:
        super().__init__(lease)
        self._inner: Algorithm = ALGORITHMS[algorithm](limit, now)
        slots = self._inner.slots()
        assert slots is not None, "it counts what is in flight"
        self._slots: Slots = slots
        self._most = most_in_flight(limit)
        self._held = 0
        self._fresh = True  # nothing was heard of the owner since it was idle
        self._begun_at = now  # when it has asked first since it was idle
        self._asked_at = 0  # 0: nothing is asked for
        self._needed = 0  # what the owner was told last
        self._short = False  # the owner's last answer was less than that, for good
        self._short_until = 0  # after an answer that was short: when it is worth asking again
        self._told_at = now
        self._used_at = now
        self._refused = 0  # requests, since the owner was told last
        self._peak = 0  # most in flight since `_began_at`
        self._earlier_peak = 0
        self._began_at = now
        self._bound()

    def _bound(self) -> None:
        """How many may be in flight here now."""
        members = self._lease.members
        lent = self._held
        if self._fresh and self._lease.owner_lost_at != 0:
            lent = max(lent, self._most // members)
        if (self._fresh or self._lease.owner_lost_at != 0) and self._most >= members:
            lent = max(lent, 1)
        self._slots.lent = lent

    # ---- with the owner ----------------------------------------------------------------------------------------------

    def wish(self, now: int) -> tuple[int, int]:
        """How many places it needs, and how many it holds; (0, 0): nothing is to be told now."""
        idle_ns = IDLE_NS if self._most >= self._lease.members else REFRESH_NS
        idle = self._slots.taken == 0 and not -JITTER_NS < now - self._used_at < idle_ns
        if self._lease.owner_lost_at != 0:
            self._asked_at = 0
            self.listed = not idle
            return 0, 0
        if self._asked_at != 0 and 0 <= now - self._asked_at < LOST_NS:
            return 0, 0
        if idle:
            return self._give_back()
        hungry = self._refused > 0 and not 0 < self._short_until - now <= AGAIN_NS
        if not hungry and -JITTER_NS < now - self._told_at < REFRESH_NS and not self._fresh:
            return 0, 0
        self._asked_at = self._told_at = now
        if self._fresh:
            self._begun_at = now
        peak = max(self._peak, self._earlier_peak, self._slots.taken)
        self._needed = min(self._most, max(1, peak + self._refused))
        self._refused = 0
        if not -JITTER_NS < now - self._began_at < PEAK_NS:
            self._earlier_peak, self._peak, self._began_at = self._peak, self._slots.taken, now
        return self._needed, max(self._held, self._slots.taken)

    def _give_back(self) -> tuple[int, int]:
        known = 0 if self._fresh else max(1, self._held)  # to the owner, to whom no place and no need say nothing
        self._held = 0
        self.listed = self._short = False
        self._fresh = True
        self._asked_at = self._refused = self._peak = self._earlier_peak = 0
        self._bound()
        return 0, known

    def grant(self, messages: int, size: int, now: int) -> None:
        """It may hold `messages` places from now on. `size`: the owner's clock in microseconds; 0: it is this one's.

        What it has given back meanwhile stays so.
        """
        if self._asked_at == 0:
            return
        offset = size * 1000 - now if size else 0
        if abs(offset - self._slots.clock_offset_ns) > CLOCK_STEP_NS:
            self._slots.clock_offset_ns = offset
        self._asked_at = 0
        self._short = messages < self._needed and not (messages == 0 and 0 <= now - self._begun_at < BEGIN_NS)
        self._short_until = now + AGAIN_NS if messages <= self._slots.taken else 0
        self._held = messages
        self._fresh = False
        self._bound()

    def put_off(self, now: int) -> None:
        self._asked_at = 0  # what it holds, or its credit, stays

    def awaits_owner(self) -> bool:
        slots = self._slots
        if self._short or slots.lent >= slots.most or self._lease.owner_lost_at != 0 or not self.listed:
            return False
        return slots.free() == 0

    def _use(self, now: int) -> None:
        self._used_at = now
        if not self.listed and self._slots.taken == 0 and self._lease.owner_lost_at == 0:
            self._held, self._fresh = 0, True  # where it went idle without an owner, nothing was given back
        if not self.listed and len(self._lease.active) < MAX_ACTIVE:
            self.listed = True
            self._lease.active.append(self)

    # ---- as any bucket -----------------------------------------------------------------------------------------------

    def slots(self) -> Slots | None:
        return self._slots

    def go_on_with(self, slots: Slots) -> None:
        self._inner.go_on_with(slots)
        self._slots = slots
        self._bound()

    def heard(self, outcome: int, count: int, since: int, now: int) -> None:
        self._inner.heard(outcome, count, since, now)

    def available(self, count: int, messages: int, size: int, now: int) -> int:
        self._use(now)
        self._bound()
        found = self._inner.available(count, messages, size, now)
        if found < count and not self._slots.passing:
            self._refused += max(0, count - self._slots.free())
        return found

    def take(self, count: int, messages: int, size: int) -> None:
        self._inner.take(count, messages, size)
        self._peak = max(self._peak, self._slots.taken)

    def settle(self, messages: int, size: int, debt_ns: int, now: int) -> None:
        self._inner.settle(messages, size, debt_ns, now)

    def wait_ns(self, messages: int, size: int, now: int) -> int:
        wait = self._inner.wait_ns(messages, size, now)
        return max(wait, ROUND_NS) if wait > 0 and self.awaits_owner() else wait

    def full_in_ns(self, messages: int, size: int, now: int) -> int:
        return self._inner.full_in_ns(messages, size, now)

    def is_full(self, now: int) -> bool:
        return self._inner.is_full(now)

    def fill(self, now: int) -> float:
        return self._inner.fill(now)

    def set_fill(self, fill: float, now: int) -> None:
        self._inner.set_fill(fill, now)

    def change(self, limit: Limit, now: int) -> None:
        self._inner.change(limit, now)
        self._most = most_in_flight(limit)
        self._held = min(self._held, self._most)
        self._told_at = now - SECOND  # the owner hears of it at once
        self._bound()

    def __repr__(self) -> str:
        return f"<LeasedPlaces {self._held} of {self._most} {self._inner}>"


def concurrency_places(limit: Limit, now: int, lease: Lease) -> LeasedPlaces:
    return LeasedPlaces(limit, now, lease, "concurrency")


def adaptive_places(limit: Limit, now: int, lease: Lease) -> LeasedPlaces:
    return LeasedPlaces(limit, now, lease, "adaptive")
