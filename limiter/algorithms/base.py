"""What an algorithm must know: the interface between the judge and one bucket.

An algorithm decides for one thing (a topic, a client, ...) about messages and bytes together. It looks (`available`) and takes (`take`)
in two steps, because a message must pass several levels and a refusal at one must spend nothing at the others. It holds no clock: `now`
is nanoseconds, monotonic; a clock that steps back by up to `JITTER_NS` (threads that read it at the same time) counts as standing still.

Contract, tested for every member of `ALGORITHMS` in `tests/contracts/test_algorithms.py`:

* `take(n)` after `available(n, ...) == n` admits as many as n times one.
* After exactly `wait_ns` (and nobody else took) the cost is available; one nanosecond earlier it is not.
* Looking changes nothing anybody can notice.
* `change` keeps the fill in proportion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from limiter.limits import Limit

JITTER_NS: Final = 1_000_000_000  # limiter threads stamp `now` some microseconds apart; 1 s is far above that, far below a real step


class Algorithm:
    """State of one bucket. Subclassed once per algorithm; see the module's docstring."""

    def available(self, count: int, messages: int, size: int, now: int) -> int:
        """How many of `count` requests, each of `messages` messages and `size` bytes, would pass now."""
        raise NotImplementedError

    def take(self, count: int, messages: int, size: int) -> None:
        """Spend `count` requests that `available` has just promised (same instant)."""
        raise NotImplementedError

    def settle(self, messages: int, size: int, debt_ns: int, now: int) -> None:
        """Charge what nobody had asked for, or give back what is negative.

        Charging leaves a debt of at most `debt_ns` of the rate, or the one that there is, where that is deeper.
        """
        raise NotImplementedError

    def wait_ns(self, messages: int, size: int, now: int) -> int:
        """The true time until one such request would pass; 0: now; NEVER: not under this limit."""
        raise NotImplementedError

    def full_in_ns(self, messages: int, size: int, now: int) -> int:
        """For a request that is refused: the time from which on waiting longer would waste what it waits for."""
        raise NotImplementedError

    def is_full(self, now: int) -> bool:
        """Whether forgetting this state would give nobody anything."""
        raise NotImplementedError

    def fill(self, now: int) -> float:
        """How full it is, 0 to 1: the emptier of messages and bytes. Changes nothing."""
        raise NotImplementedError

    def set_fill(self, fill: float, now: int) -> None:
        """Start from `fill` (0 to 1), as known from before a restart or under another name."""
        raise NotImplementedError

    def change(self, limit: Limit, now: int) -> None:
        """Another limit from `now` on; the fill keeps its proportion, clamped to the new burst."""
        raise NotImplementedError
