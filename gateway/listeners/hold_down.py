"""Hold-down: how long an address that has failed gets no new connections, though it answers again.

A broker that comes and goes would otherwise take all new clients each time it is there, and lose them each time it goes. So an address that
was in use and has failed is left for MIN_HOLD_S, and twice as long with each further failure, up to MAX_HOLD_S. It is used again when that
is over and GOOD_PROBES in a row were answered. After FORGET_S in use its failures are forgotten. One that was never in use is not held: at
the start of a machine brokers come up one after the other. BGP calls this route flap damping (RFC 2439).

Times are seconds of any one clock.
"""

from __future__ import annotations

from typing import Final

MIN_HOLD_S: Final = 5.0  # after the first failure; a broker that restarts takes about as long (a guess)
MAX_HOLD_S: Final = 300.0
FORGET_S: Final = 600.0  # in use without a failure: more than MAX_HOLD_S, or one that fails after each hold would never be held longer
GOOD_PROBES: Final = 2  # in a row
GOOD_EVERY_S: Final = 1.0  # between two probes of an address that answers and is held


class HoldDown:
    """The failures of one address, and what follows from them."""

    __slots__ = ("_failures", "_good", "_used_since", "until")

    def __init__(self) -> None:
        self.until = 0.0
        self._failures = 0  # that ended its use, since they were forgotten last
        self._good = 0  # probes answered in a row
        self._used_since: float | None = None

    def note_use(self, now: float) -> None:
        """From now on it takes new connections."""
        if self._used_since is None:
            self._used_since = now

    def note_failure(self, now: float) -> None:
        """A dial or a probe has failed."""
        self._good = 0
        if self._used_since is None:
            return
        if now - self._used_since >= FORGET_S:
            self._failures = 0
        self._used_since = None
        self.until = now + min(MAX_HOLD_S, MIN_HOLD_S * 2.0 ** min(self._failures, 16))
        self._failures += 1

    def note_answer(self, now: float) -> bool:
        """A probe of an address that is not in use was answered. Returns whether it may be used again."""
        self._good += 1
        return self._good >= GOOD_PROBES and now >= self.until

    def left_s(self, now: float) -> float:
        """Seconds of the hold that are left."""
        return max(0.0, self.until - now)
