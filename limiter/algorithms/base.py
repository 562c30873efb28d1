"""The interface of an algorithm, between the judge and one bucket.

An algorithm decides for one thing (a topic, a client, ...) about messages and bytes together. It looks (`available`) and takes (`take`)
in two steps, because a message must pass several levels and a refusal at one must spend nothing at the others. It holds no clock: `now`
is nanoseconds, monotonic; a clock that steps back by up to `JITTER_NS` (threads that read it at the same time) counts as standing still.

Contract, tested for every member of `ALGORITHMS` in `tests/contracts/test_algorithms.py`, of rates in `test_rates.py`:

* `take(n)` after `available(n, ...) == n` admits as many as n times one.
* After exactly `wait_ns` (and no other took) the cost is available; one nanosecond earlier it is not.
* Looking changes nothing anybody can notice.
* `change` keeps the fill in proportion, and of a debt the lesser of the same time and the same number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from limiter.algorithms.fills import UNIT, bytes_of, messages_of, pack
from limiter.limits import NEVER

if TYPE_CHECKING:
    from limiter.algorithms.slots import Slots
    from limiter.limits import Limit

JITTER_NS: Final = 1_000_000_000  # ns; a smaller step back of the clock is threads racing (microseconds), a larger one is a new time


class Algorithm:
    """State of one bucket. Subclassed once per algorithm; see the module's docstring."""

    def available(self, count: int, messages: int, size: int, now: int) -> int:
        """How many of `count` requests, each of `messages` messages and `size` bytes, would pass now."""
        raise NotImplementedError

    def take(self, count: int, messages: int, size: int) -> None:
        """Spend `count` requests that `available` has just promised (same instant)."""
        raise NotImplementedError

    def settle(self, messages: int, size: int, debt_ns: int, now: int) -> None:
        """Charge a cost that was not asked for before, or give a negative one back.

        Charging leaves a debt of at most `debt_ns` of the rate, or the one that there is, where that is deeper.
        """
        raise NotImplementedError

    def wait_ns(self, messages: int, size: int, now: int) -> int:
        """The true time until one such request would pass; 0: now; NEVER: not under this limit."""
        raise NotImplementedError

    def peek_ns(self, messages: int, size: int, now: int) -> int:
        """As `wait_ns`, for a caller that only looks: it wants nothing."""
        return self.wait_ns(messages, size, now)

    def full_in_ns(self, messages: int, size: int, now: int) -> int:
        """For a request that is refused: the time from which on waiting longer would waste what it waits for."""
        raise NotImplementedError

    def is_full(self, now: int) -> bool:
        """Whether one made anew would be no fuller than this one."""
        raise NotImplementedError

    def fill(self, now: int) -> float:
        """How full it is, 0 to 1: the emptier of messages and bytes. Changes nothing."""
        raise NotImplementedError

    def awaits_owner(self) -> bool:
        """Whether what it has just refused may pass in a moment: the owner of a limit that is shared has not said yet how much there is."""
        return False

    def set_fill(self, fill: float, now: int) -> None:
        """Start from `fill` (0 to 1), as known from before a restart or under another name."""
        raise NotImplementedError

    def follow(self, earlier: Algorithm, now: int) -> None:
        """Begin where `earlier` is, a bucket of any algorithm and limit under another name; right after it is made."""
        self.set_fill(earlier.fill(now), now)

    def change(self, limit: Limit, now: int) -> None:
        """Another limit from `now` on; the fill keeps its proportion, clamped to the new burst."""
        raise NotImplementedError

    # ---- for algorithms that count what is in flight (`limiter.in_flight`); a rate knows nothing of it -------------------

    # ---- for a bucket that topics share (`limiter.fair_share.shared_bucket`), in nanoseconds of the rate -------------

    def available_above(self, count: int, messages: int, size: int, kept_ns: int, now: int) -> int:
        """As `available`, but so much stays in it."""
        raise NotImplementedError

    def wait_above(self, messages: int, size: int, kept_ns: int, now: int) -> int:
        """Until `available_above` lets one pass."""
        raise NotImplementedError

    def held_ns(self, now: int) -> int:
        """In how much time what it holds comes in: messages or bytes, whichever is less."""
        raise NotImplementedError

    def capacity_ns(self) -> int:
        """In how much time the first of its dimensions is full."""
        raise NotImplementedError

    def cost_ns(self, messages: int, size: int) -> int:
        """In how much time a cost comes in: messages or bytes, whichever takes longer; at least 1."""
        raise NotImplementedError

    def slots(self) -> Slots | None:
        """Where it counts what is in flight; None: it does not."""
        return None

    def go_on_with(self, slots: Slots) -> None:
        """Count in `slots` from now on, in which the algorithm before has counted; right after it is made."""

    def heard(self, outcome: int, count: int, since: int, now: int) -> None:
        """The broker has answered `count` requests that were forwarded at `since`, `outcome` says how; their slots are given back."""

    # What follows is for idle buckets (`limiter.buckets.packed_buckets`). Where an algorithm says nothing, one is at hand
    # until it is full.

    def full_after_ns(self, now: int) -> int:
        """In how long `is_full` will hold without a request; NEVER: not by time alone, so that it is not packed. Changes nothing."""
        return 0 if self.is_full(now) else NEVER

    def fills(self, now: int) -> int:
        """How full it is for messages and for bytes, as `pack` has it, rounded down, a debt below 0. Changes nothing."""
        fill = int(self.fill(now) * UNIT)
        return pack(fill, fill)

    def set_fills(self, fills: int, now: int) -> None:
        """Be as `fills` said."""
        self.set_fill(min(messages_of(fills), bytes_of(fills)) / UNIT, now)
