"""A member's part of a paced limit: tokens leased as of any bucket, and spaced here.

Slices alone would undo the pacing: a member that is granted what comes in during the next 75 ms would pass all of it at once. So each
member has a **gate** beside its tokens, which is `algorithms.pacing` once more (when the next message is due, and how late it may be),
in nanoseconds. The tokens hold the rate over all members, exactly; the gate only spaces, and may be rounded.

How far apart? So that what is in hand would be spent in SPREAD_NS. A member that is granted g tokens a second then holds g * SPREAD_NS of
them and passes g a second, evenly, whatever the others do, and follows within a few slices when they want more or less. Bounds: never
faster than CATCH_UP of the whole rate, which makes up for slices that came late; never slower than an even share. Without an owner the
interval is that of the share to go on with.

Members know nothing of each other's moments, so of N members N messages may fall together, more than one process's tolerance never at one
member.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from limiter.algorithms.pacing import TOLERANCE_NS
from limiter.leases.leased_bucket import LeasedBucket
from limiter.leases.leased_tokens import WHOLE, LeasedTokens

if TYPE_CHECKING:
    from limiter.leases.lease import Lease
    from limiter.limits import Limit, Rate

SPREAD_NS: Final = 50_000_000  # ns; a round of a fleet, some of a worker; less than a slice, or what is in hand could not be so much
CATCH_UP: Final = WHOLE * 9 // 8  # of the rate; a guess


class Gate:
    """When the next message (or byte) of one member is due."""

    __slots__ = ("_amount", "_due", "_per_ns")

    def __init__(self, rate: Rate, now: int) -> None:
        self._amount = rate.amount
        self._per_ns = rate.per_ns
        self._due = now - TOLERANCE_NS  # monotonic ns

    def change(self, rate: Rate, now: int) -> None:
        """What must be waited for is the lesser of the same time and the same number; nothing after a rate of 0, as long as that holds."""
        if rate.amount > 0:
            wait = self.wait_ns(now)
            self._due = min(self._due, now + wait * self._amount * rate.per_ns // (rate.amount * self._per_ns))
        self._amount = rate.amount
        self._per_ns = rate.per_ns

    def _interval_ns(self, cost: int, tokens: LeasedTokens, lease: Lease) -> int:
        whole = cost * self._per_ns * WHOLE // self._amount  # the interval of the whole rate, in WHOLE
        if lease.owner_lost_at != 0:
            return whole // tokens.alone(lease)
        spread = cost * self._per_ns * SPREAD_NS // max(1, tokens.in_hand())
        return max(whole // CATCH_UP, min(spread, whole * lease.members // WHOLE))

    def available(self, count: int, cost: int, tokens: LeasedTokens, lease: Lease, now: int) -> int:
        late = now - max(self._due, now - TOLERANCE_NS)
        if late < 0:
            return 0
        interval = self._interval_ns(cost, tokens, lease)
        return count if interval == 0 else min(count, late // interval + 1)

    def charge(self, cost: int, tokens: LeasedTokens, lease: Lease, now: int) -> None:
        """Below 0: it is given back. At a rate of 0 nothing is due, whatever passes."""
        if self._amount > 0:
            self._due = max(self._due, now - TOLERANCE_NS) + self._interval_ns(cost, tokens, lease)

    def settle(self, cost: int, debt_ns: int, tokens: LeasedTokens, lease: Lease, now: int) -> None:
        before = self._due
        self.charge(cost, tokens, lease, now)
        if cost > 0:
            self._due = min(self._due, max(before, now + debt_ns))

    def wait_ns(self, now: int) -> int:
        return max(0, self._due - now)

    def __repr__(self) -> str:
        return f"<Gate due={self._due}>"


class PacedLease(LeasedBucket):
    """What one member has of a limit that spaces messages evenly."""

    __slots__ = ("_bytes_gate", "_messages_gate")

    def __init__(self, limit: Limit, now: int, lease: Lease) -> None:
        super().__init__(limit, now, lease)
        self._messages_gate = None if limit.messages is None else Gate(limit.messages, now)
        self._bytes_gate = None if limit.bytes is None else Gate(limit.bytes, now)

    def available(self, count: int, messages: int, size: int, now: int) -> int:
        count = super().available(count, messages, size, now)
        gate, tokens = self._messages_gate, self._messages
        if gate is not None and tokens is not None and count > 0:
            count = gate.available(count, messages, tokens, self._lease, now)
        gate, tokens = self._bytes_gate, self._bytes
        if gate is not None and tokens is not None and count > 0:
            count = gate.available(count, size, tokens, self._lease, now)
        return count

    def take(self, count: int, messages: int, size: int) -> None:
        if self._messages_gate is not None and self._messages is not None:
            self._messages_gate.charge(count * messages, self._messages, self._lease, self._used_at)
        if self._bytes_gate is not None and self._bytes is not None:
            self._bytes_gate.charge(count * size, self._bytes, self._lease, self._used_at)
        super().take(count, messages, size)

    def settle(self, messages: int, size: int, debt_ns: int, now: int) -> None:
        if self._messages_gate is not None and self._messages is not None:
            self._messages_gate.settle(messages, debt_ns, self._messages, self._lease, now)
        if self._bytes_gate is not None and self._bytes is not None:
            self._bytes_gate.settle(size, debt_ns, self._bytes, self._lease, now)
        super().settle(messages, size, debt_ns, now)

    def peek_ns(self, messages: int, size: int, now: int) -> int:
        return max(super().peek_ns(messages, size, now), self._gates_ns(now))

    def _gates_ns(self, now: int) -> int:
        wait = 0 if self._messages_gate is None else self._messages_gate.wait_ns(now)
        return wait if self._bytes_gate is None else max(wait, self._bytes_gate.wait_ns(now))

    def is_full(self, now: int) -> bool:
        return super().is_full(now) and self._gates_ns(now) == 0

    def change(self, limit: Limit, now: int) -> None:
        super().change(limit, now)
        self._messages_gate = change_gate(self._messages_gate, limit.messages, now)
        self._bytes_gate = change_gate(self._bytes_gate, limit.bytes, now)

    def __repr__(self) -> str:
        return f"<PacedLease {self._messages_gate} {self._bytes_gate} messages={self._messages} bytes={self._bytes}>"


def change_gate(gate: Gate | None, rate: Rate | None, now: int) -> Gate | None:
    if rate is None:
        return None
    if gate is None:
        return Gate(rate, now)
    gate.change(rate, now)
    return gate
