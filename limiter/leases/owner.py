"""The lease owner: the other side of a limit that several members share (`limiter.leases.leased_bucket`).

It cuts slices from a bucket of any algorithm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from limiter.algorithms.base import JITTER_NS
from limiter.leases.lent_places import LentPlaces

if TYPE_CHECKING:
    from collections.abc import Hashable

    from limiter.algorithms.base import Algorithm

SHORT_NS: Final = 250_000_000  # ns; how long a member that got too little counts when others ask; a guess, some rounds
MANY_TOKENS: Final = 1 << 40  # tokens; more than any bucket has


class LeaseOwner:
    """Hands out slices of buckets: never more than there is, and where that is short, in turns that leave something for the others."""

    __slots__ = ("_places", "_short", "granted", "refused")

    def __init__(self) -> None:
        self._short: dict[Hashable, dict[int, int]] = {}  # by bucket: members that got less than they wanted, and when (monotonic ns)
        self._places: dict[Hashable, LentPlaces] = {}  # by bucket: those of which members hold some
        self.granted = 0  # asks answered in full
        self.refused = 0  # asks that got less

    def grant(self, name: Hashable, algorithm: Algorithm, member: int, messages: int, size: int, now: int) -> tuple[int, int]:
        """What `member` gets of `bucket` (known as `name`) for what it wishes; what it gives back (negative) is taken back.

        Of places: how many it may hold, given how many it needs and holds.
        """
        if isinstance(algorithm, LentPlaces):
            self._places[name] = algorithm
            return algorithm.lend(member, messages, size, now), 0
        if messages < 0 or size < 0:
            algorithm.settle(min(messages, 0), min(size, 0), 0, now)
        others = self._others(name, member, now)
        got_messages = got_size = 0
        if messages > 0:
            got_messages = equal_part(algorithm.available(MANY_TOKENS, 1, 0, now), messages, others)
            algorithm.take(got_messages, 1, 0)
        if size > 0:
            got_size = equal_part(algorithm.available(MANY_TOKENS, 0, 1, now), size, others)
            algorithm.take(got_size, 0, 1)
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

    def member_left(self, member: int) -> None:
        """A member has ended: what it wanted no longer counts, and the places that it held are free."""
        for name, places in list(self._places.items()):
            if not places.leave(member):
                del self._places[name]
        for name in list(self._short):
            self._forget(name, member)

    def expire(self, now: int) -> None:
        """Forget members that are short no more, and holders of places that are silent. Call it once in a while, for buckets that are not
        asked for any more."""
        for name in list(self._short):
            self._others(name, -1, now)
        self._places = {name: places for name, places in self._places.items() if places.forget_silent(now)}

    def __repr__(self) -> str:
        return f"<LeaseOwner granted={self.granted} refused={self.refused} short={len(self._short)}>"


def equal_part(there: int, wanted: int, others: int) -> int:
    """Of what is there, what one member gets while so many others are short too: an equal part, and at least one token."""
    return min(wanted, max(min(1, there), there // (1 + others)))
