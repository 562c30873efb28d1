"""Slots: what an algorithm that counts requests in flight has of them. A slot is lent, and `limiter.in_flight` brings it back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from limiter.limits import Limit

# How requests of a flight end:
ANSWERED: Final = 0  # the broker has done what was asked: how long it took tells about its load
FAILED: Final = 1  # it has answered something else: it is there, but an error's latency tells nothing
BUSY: Final = 2  # it has said that it is overloaded
GIVEN_UP: Final = 3  # never forwarded, or no answer will be heard any more

MIN_WAIT_NS: Final = 1_000_000  # ns, 1 ms; the shortest wait a client is told, also while no latency is known
MAX_WAIT_NS: Final = 1_000_000_000  # ns, 1 s; the longest; a broker that takes longer may be another one by then, a guess
ANY_NUMBER: Final = 1 << 60  # requests
SMOOTHING: Final = 0.1  # weight of an answer in `latency_ns`; about the last twenty count; a guess


class Slots:
    """The slots of one bucket: `taken` of `most`. Outlives a change of the algorithm, so that nothing is lost count of."""

    __slots__ = ("clock_offset_ns", "heard_at", "latency_ns", "lent", "most", "passing", "peak", "prepaid", "taken")

    def __init__(self, most: int, now: int) -> None:
        self.most = most  # requests that may be in flight now; where it was lowered more may be
        self.clock_offset_ns = 0  # from monotonic time here to the clock of all members
        self.lent = ANY_NUMBER  # of a limit that several members share: those that may be in flight at this one (`limiter.leases`)
        self.taken = 0
        self.peak = 0  # most that were taken at once since the gradient looked last
        self.passing = False  # the request being judged is never answered: it takes no slot and needs none
        self.prepaid = False  # it has been charged what stands beside the slots
        self.latency_ns = 0.0  # smoothed; an estimate, so it may be a float
        self.heard_at = now  # monotonic ns of the last answer, or since when one is waited for

    def bound(self) -> int:
        """How many may be in flight now."""
        return min(self.most, self.lent)

    def free(self) -> int:
        return max(self.bound() - self.taken, 0)

    def take(self, count: int, now: int) -> None:
        if self.taken == 0:
            self.heard_at = now
        self.taken += count
        self.peak = max(self.peak, self.taken)

    def wait_ns(self) -> int:
        """An estimate: as long as an answer has taken lately. When a slot is given back is the broker's to say."""
        return max(MIN_WAIT_NS, min(int(self.latency_ns), MAX_WAIT_NS))

    def hear(self, latency_ns: int) -> None:
        if self.latency_ns == 0.0:
            self.latency_ns = float(latency_ns)
        else:
            self.latency_ns += (latency_ns - self.latency_ns) * SMOOTHING

    def __repr__(self) -> str:
        return f"<Slots {self.taken}/{self.most} latency={self.latency_ns / 1e6:.1f}ms>"


def most_in_flight(limit: Limit) -> int:
    """How many requests `limit` lets be in flight."""
    concurrent = limit.concurrent
    assert concurrent is not None, "a rule that counts requests in flight says how many"
    return concurrent
