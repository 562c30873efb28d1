"""How much may pass without a verdict: at most a share of the messages of the last seconds (`max_bypass: 10%/10s`).

The naive way to fail open lets everything pass while the judge's queue is full. Then a client that floods the gateway for long enough
has switched the limits off for all: the harder they are pushed, the less they hold. So the messages that pass unjudged are bounded by
those that are judged.

The promise: whenever messages pass by `take`, they and all that passed before them within the window ending now are at most the share of
all messages settled within it, these included. Messages that pass because the judge failed (`add`) are counted in it and never held back by
it: there is nothing to judge them with.

A sliding window would have to remember every message. Instead there are counters that only grow, and what they said at the beginning of
each of the last slots: a fixed ring. A window of whole slots is never exactly the one that ends now, so both sides are taken on the safe
one: what passed is counted over a little more than the window (its slots and the running one), what was settled over a little less.
Messages count as judged when the verdict is there, not when they are offered; those that no rule is for are not counted as judged, so they
do not widen the door.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

PARTS: Final = 1_000_000  # a share is so many of a million
SLOTS: Final = 20  # of a window; one is how coarse it is: 5 %, 0.5 s of 10 s; a guess


class BypassBound(NamedTuple):
    """`parts` of a million, within any `window_ns`, which is a multiple of SLOTS."""

    parts: int
    window_ns: int


class Bypass:
    """Counts what passed without a verdict and says whether more may. `judged` tells how many messages were judged so far: a counter.

    Only one thread may use it. `now` is monotonic ns and goes forwards.
    """

    __slots__ = ("_judged", "_passed_at", "_settled_at", "_slot", "_slot_ns", "due", "parts", "passed")

    def __init__(self, share: BypassBound, judged: Callable[[], int]) -> None:
        if not 0 <= share.parts <= PARTS or share.window_ns < SLOTS or share.window_ns % SLOTS:
            raise ValueError(f"{share}: a share is 0 to {PARTS} parts of a window that {SLOTS} slots divide")
        self.parts = share.parts
        self.passed = 0  # messages without a verdict, so far
        self.due = 0  # when the next slot begins: `look` then, or what is settled meanwhile counts as before
        self._judged = judged
        self._slot_ns = share.window_ns // SLOTS
        self._slot = -1  # number of the running one; -1: not begun
        self._passed_at = [0] * (SLOTS + 1)  # `passed` at the beginning of the running slot and of the SLOTS before it, by number
        self._settled_at = [0] * (SLOTS + 1)  # the same with all messages, judged or passed

    def look(self, now: int) -> None:
        """Begin the slot that `now` is in."""
        slot = now // self._slot_ns
        if slot <= self._slot:
            return
        passed = self.passed
        settled = self._judged() + passed
        first = max(self._slot + 1, slot - SLOTS) if self._slot >= 0 else slot - SLOTS
        for number in range(first, slot + 1):
            self._passed_at[number % (SLOTS + 1)] = passed
            self._settled_at[number % (SLOTS + 1)] = settled
        self._slot = slot
        self.due = (slot + 1) * self._slot_ns

    def take(self, messages: int, now: int) -> bool:
        """Whether `messages` may pass now without a verdict; if so they are counted."""
        self.look(now)
        if self.parts < PARTS:
            passed = self.passed + messages - self._passed_at[(self._slot - SLOTS) % (SLOTS + 1)]
            settled = self._judged() + self.passed + messages - self._settled_at[(self._slot - SLOTS + 1) % (SLOTS + 1)]
            if passed * PARTS > settled * self.parts:
                return False
        self.passed += messages
        return True

    def add(self, messages: int) -> None:
        """So many have passed because the judge failed."""
        self.passed += messages

    def __repr__(self) -> str:
        return f"<Bypass passed={self.passed} of at most {self.parts / 10_000:g} %>"
