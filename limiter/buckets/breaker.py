"""The circuit breaker of one bucket: when it runs dry, refuse everything at once for a while.

The breaker this comes from (`docs/design/limiter.md` 3) stayed open for a fixed second, whatever the bucket held by then. With a longer
time the refilled bucket ran over and 2 s cost a third of the rate; refused messages were charged; and the hint told clients the bucket's
last wait, a thousandth of the truth. Here

* it closes after `open_for`, or at the instant at which the bucket is full if that comes first: no token is ever lost to it, so the average
  holds for any `open_for`;
* while it is open the bucket is not even looked at, so nothing is charged;
* the hint is the longer of what remains of it and of the bucket's own wait: asked again after exactly that, the message passes.
"""

from __future__ import annotations

from typing import Final

JITTER_NS: Final = 1_000_000_000  # ns; as `limiter.algorithms.base` has it


class Breaker:
    """Open until `open_until` (monotonic ns); 0 there: closed."""

    __slots__ = ("open_for_ns", "open_until")

    def __init__(self, open_for_ns: int) -> None:
        self.open_for_ns = open_for_ns  # 0: never opens
        self.open_until = 0

    def is_open(self, now: int) -> bool:
        """Closes itself when its time has come, or when the clock was set back so far that it would not come."""
        if self.open_until == 0:
            return False
        remaining = self.open_until - now
        if 0 < remaining <= self.open_for_ns + JITTER_NS:
            return True
        self.open_until = 0
        return False

    def remaining_ns(self, now: int) -> int:
        return self.open_until - now if self.is_open(now) else 0

    def may_open(self, now: int) -> bool:
        """Whether a refusal opens it: one that never opens does not, and an open one stays as it is."""
        return self.open_for_ns > 0 and not self.is_open(now)

    def trip(self, now: int, full_in_ns: int) -> None:
        """The bucket has refused; it would be full in `full_in_ns`. Ask `may_open` first, where that time is dear to work out."""
        if self.may_open(now):
            self.open_until = now + min(self.open_for_ns, full_in_ns)

    def close(self) -> None:
        self.open_until = 0

    def __repr__(self) -> str:
        return f"<Breaker {'closed' if self.open_until == 0 else f'open until {self.open_until}'}>"
