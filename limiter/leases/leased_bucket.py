"""Leased buckets: one limit over many members (worker processes of a gateway, gateways of a fleet), each of which decides on its own.

The naive way divides: each of N members gets a limit of 1/N. When all the load is on one of them, N - 1 parts of the limit lie idle.
The other naive way asks the owner of the limit for every message, and a message then costs a round trip. Here a member decides from what
it has, and asks in the background for **slices**: tokens for the next moments, out of the owner's bucket, which is charged for them at
once. That is token leasing::

      owner: the real bucket, of rate r and the part of the burst that is not lent
        │ asks (wish), every few milliseconds    ▲
        ▼ grants, never more than it has         │ what lies idle is given back
      member: level ── spent by take ──► may fall to -line, is brought back above 0 by grants

* **The line.** Half of the burst is lent in advance: a member that owes nothing may spend `line` = burst / (2 N), at least 1 token, before
  it is granted anything. So the first message of a fresh key needs no round trip. The member owes what it spends, and its next grants pay
  for that.
* **The bound.** The owner's bucket holds the other half of the burst (`owner_limit`), so that in any window T the sum over all members is
  at most burst + r * T, as if there were one; where the burst is less than 2 N tokens, at most N tokens more, because every line has at
  least one; where it is less than two asks' worth of the rate, as much as comes in between two asks more (`sharing.ROOM_NS`); and each
  member may go into debt for one request, oversized or in its turn, as a bucket may. A member that ends may leave unpaid what it owed
  (once `line` per bucket), and takes with it what it was granted (once `slice`).
* **The slice.** A member wants to have, beside its line, what it has spent lately in HORIZON_NS; after a refusal all of SLICE_NS of the
  rate (or one token, where that is less). Where its asks are further apart, it wants for half as long again as from one to the next. After
  IDLE_NS without a request it wants nothing: it gives back what it has and only pays what it owes. An ask is answered before the next one
  is made.
* **Short of tokens** the owner shares what there is between the members that were short lately (`LeaseOwner.grant`).
* **The owner is gone** (`Lease.owner_lost`): each member fills by itself, up to its line and not above, at its last share of the rate: of a
  limit that was used up, what it got of it in the last seconds, less a 128th, of which each has its part that had nothing; of one that
  was not, that or 1/N of the limit, whichever is more. While shares are as they were the sum stays under the limit; it can never
  be twice the limit. No burst is made by it. The next grant ends it (`Lease.owner_back`). Where members may be parted from each other
  (`Lease.parted`), each goes on as of a limit that was used up: then the shares of any of them are at most the limit together.

The cost: a member alone passes at once no more than its line and slice, and more of the burst only after an answer, some
milliseconds later. `wait_ns` is the truth only for a member whose owner is gone: else it is a guess from its share. A breaker closes when
the member's part could be full again, which is earlier than the whole bucket could.

Here is the member's side; `limiter.leases.leased_tokens` is one dimension of it, `limiter.leases.owner` the owner's side.
`limiter.leases.sharing` says which algorithms are shared, and how.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from limiter.algorithms.base import JITTER_NS
from limiter.leases.lease import Lease, Lessee
from limiter.leases.leased_tokens import LeasedTokens, change_rate
from limiter.limits import NEVER, SECOND

if TYPE_CHECKING:
    from limiter.algorithms.base import Algorithm
    from limiter.limits import Limit

IDLE_NS: Final = 200_000_000  # ns; after so long without a request a member gives back what it has; a guess, twice a slice
AGAIN_NS: Final = 20_000_000  # ns; the pause after an answer that was short; a guess: what comes in meanwhile is worth a journey
MAX_ACTIVE: Final = 16_384  # buckets of a member that may have something to ask; some ms for all, a guess; more wait for their turn
LOST_NS: Final = SECOND  # ns; an ask is asked again after so long without an answer


class LeasedBucket(Lessee):
    """What one member has of a bucket of messages and bytes; decides without its owner."""

    __slots__ = (
        "_asked_at", "_bytes", "_members", "_messages", "_short_until", "_used_at", "_wished_at", "limit",
        "permille",
    )  # fmt: skip

    def __init__(self, limit: Limit, now: int, lease: Lease) -> None:
        super().__init__(lease)
        self.limit = limit
        self.permille = 1000  # of what is granted that can be spent; less where a cap is tightened (`limiter.fair_share.adaptive_cap`)
        self._members = lease.members
        self._used_at = now
        self._wished_at = now
        self._asked_at = 0  # 0: nothing is asked for
        self._short_until = 0  # after an answer that was short: when it is worth asking again
        self._messages = None if limit.messages is None else LeasedTokens(limit.messages, limit.messages_capacity(), lease.members, now)
        self._bytes = None if limit.bytes is None else LeasedTokens(limit.bytes, limit.bytes_capacity(), lease.members, now)

    # ---- with the owner --------------------------------------------------------------------------------------------

    def wish(self, now: int) -> tuple[int, int]:
        """Messages and bytes to ask the owner for, at this moment; negative: given back. (0, 0): nothing.

        Nothing more is asked for until `grant` has brought the answer. Unlists itself when there is nothing to ask for any more.
        """
        if self._members != self._lease.members:
            self._count_members()
        if self._lease.owner_lost_at != 0:
            self._refill(now)
            self.listed = -JITTER_NS < now - self._used_at < IDLE_NS
            return 0, 0
        if self._asked_at != 0 and 0 <= now - self._asked_at < LOST_NS:
            return 0, 0
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
            short = self._messages.grant(messages, self.permille)
        if self._bytes is not None:
            short = self._bytes.grant(size, self.permille) or short
        self._short_until = now + AGAIN_NS if short else 0
        self._use(now)

    def put_off(self, now: int) -> None:
        self.grant(0, 0, now)

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
        if not self.listed and len(self._lease.active) < MAX_ACTIVE:
            self.listed = True
            self._wished_at = now - 1
            self._lease.active.append(self)

    def _refill(self, now: int) -> None:
        self._asked_at = 0
        if self._messages is not None:
            self._messages.measure(self._lease.owner_lost_at)  # what it got once but not lately is no share of its
            self._messages.refill(self._lease, now)
        if self._bytes is not None:
            self._bytes.measure(self._lease.owner_lost_at)
            self._bytes.refill(self._lease, now)

    # ---- as any bucket ---------------------------------------------------------------------------------------------

    def available(self, count: int, messages: int, size: int, now: int) -> int:
        self._used_at = now
        if not self.listed:
            self._use(now)
        if self._lease.owner_lost_at != 0:
            self._refill(now)
        tokens = self._messages
        if tokens is not None:
            count = tokens.available(count, messages)
            if count == 0:
                return 0
        tokens = self._bytes
        if tokens is not None:
            count = tokens.available(count, size)
        return count

    def take(self, count: int, messages: int, size: int) -> None:
        tokens = self._messages
        if tokens is not None:
            tokens.take(count, messages)
        tokens = self._bytes
        if tokens is not None:
            tokens.take(count, size)

    def settle(self, messages: int, size: int, debt_ns: int, now: int) -> None:
        self._use(now)
        if self._messages is not None:
            self._messages.settle(messages, debt_ns)
        if self._bytes is not None:
            self._bytes.settle(size, debt_ns)

    def wait_ns(self, messages: int, size: int, now: int) -> int:
        """While there is an owner: a guess, from the member's share. Asking for the wait means wanting tokens: reservations ask for nothing
        else."""
        self._used_at = now
        if not self.listed:
            self._use(now)
        wait = self.peek_ns(messages, size, now)
        if wait > 0:
            if self._messages is not None:
                self._messages.want(messages)
            if self._bytes is not None:
                self._bytes.want(size)
        return wait

    def peek_ns(self, messages: int, size: int, now: int) -> int:
        """As `wait_ns`, for a caller that only looks: nothing is asked of the owner for it."""
        if self._lease.owner_lost_at != 0:
            self._refill(now)
        wait = 0
        if self._messages is not None:
            wait = self._messages.wait_ns(messages, self._lease, now)
        if self._bytes is not None:
            wait = max(wait, self._bytes.wait_ns(size, self._lease, now))
        return wait

    # ---- for a bucket that is shared ---------------------------------------------------------------------------------

    def available_above(self, count: int, messages: int, size: int, kept_ns: int, now: int) -> int:
        self._used_at = now
        if not self.listed:
            self._use(now)
        if self._lease.owner_lost_at != 0:
            self._refill(now)
        if self._messages is not None:
            count = self._messages.available_above(count, messages, kept_ns)
        if self._bytes is not None and count > 0:
            count = self._bytes.available_above(count, size, kept_ns)
        return count

    def wait_above(self, messages: int, size: int, kept_ns: int, now: int) -> int:
        wait = self.wait_ns(messages, size, now)
        if self._messages is not None:
            wait = max(wait, self._messages.wait_above(messages, kept_ns, self._lease, now))
        if self._bytes is not None:
            wait = max(wait, self._bytes.wait_above(size, kept_ns, self._lease, now))
        return wait

    def held_ns(self, now: int) -> int:
        if self._lease.owner_lost_at != 0:
            self._refill(now)
        if self._messages is None:
            return 0 if self._bytes is None else self._bytes.held_ns()
        held = self._messages.held_ns()
        return held if self._bytes is None else min(held, self._bytes.held_ns())

    def capacity_ns(self) -> int:
        if self._messages is None:
            return 0 if self._bytes is None else self._bytes.capacity_ns()
        capacity = self._messages.capacity_ns()
        return capacity if self._bytes is None else min(capacity, self._bytes.capacity_ns())

    def cost_ns(self, messages: int, size: int) -> int:
        cost = 1 if self._messages is None else max(1, self._messages.cost_ns(messages))
        return cost if self._bytes is None else max(cost, self._bytes.cost_ns(size))

    def full_in_ns(self, messages: int, size: int, now: int) -> int:
        full_in = NEVER
        if self._messages is not None and self._messages.missing(messages) > 0:
            full_in = self._messages.full_in_ns()
        if self._bytes is not None and self._bytes.missing(size) > 0:
            full_in = min(full_in, self._bytes.full_in_ns())
        return full_in

    def is_full(self, now: int) -> bool:
        """Owes nothing. When it is forgotten, what it has in hand is lost: a slice at most."""
        if self._lease.owner_lost_at != 0:
            self._refill(now)
        if self._messages is not None and not self._messages.is_whole():
            return False
        return self._bytes is None or self._bytes.is_whole()

    def fill(self, now: int) -> float:
        """Of this member's line, not of the whole bucket."""
        if self._lease.owner_lost_at != 0:
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

    def follow(self, earlier: Algorithm, now: int) -> None:
        """One of its own kind with its debts, but with nothing of what that has in hand."""
        if isinstance(earlier, LeasedBucket):
            if self._lease.owner_lost_at != 0:
                earlier._refill(now)
            if self._messages is not None and earlier._messages is not None:
                self._messages.follow(earlier._messages)
            if self._bytes is not None and earlier._bytes is not None:
                self._bytes.follow(earlier._bytes)
            self._use(now)
        else:
            self.set_fill(earlier.fill(now), now)

    def change(self, limit: Limit, now: int) -> None:
        self.limit = limit
        members = self._lease.members
        self._messages = change_rate(self._messages, limit.messages, limit.messages_capacity(), members, now)
        self._bytes = change_rate(self._bytes, limit.bytes, limit.bytes_capacity(), members, now)

    def __repr__(self) -> str:
        return f"<LeasedBucket messages={self._messages} bytes={self._bytes}>"
