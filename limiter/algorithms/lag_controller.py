"""How fast a topic may be published to, for its consumers to stay near a target backlog.

The naive rule, "over the target: slow; under it: fast", swings between the two for ever: what is published while it is fast takes longer
to drain than the next look takes to come. The next better one lets the rate follow the error (proportional control), and then the gain is
wrong either for a consumer of 10/s or for one of 10,000/s.

But with what was let through the backlog tells more: how much the consumers have **taken** since the last look, less what others sent
them. At that rate the backlog stands still, whatever their speed is. So the rate is what they take, times a factor that the backlog
alone decides:

    backlog above the target            0.95 down to 0.5 of what they take: it drains, the faster the further it is above
    between half of it and the target   what they take: it stands still                                      (the hysteresis)
    below half of the target            what it was, and GROWTH more each second, but never less than what they take

The last line finds out how fast consumers can be: while they keep up they take what is published, which says nothing. What they
take is smoothed over SMOOTH_S, because acknowledgements come in lumps. After a stall the first look that sees them take something lets the
rate rise again.

Bounds: a backlog overshoots the target by at most (fastest - what they take) * (time between two looks + SMOOTH_S), once; consumers that
stop altogether leave it growing at `slowest`.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from limiter.limits import SECOND, Rate

if TYPE_CHECKING:
    from limiter.limits import Limit

SMOOTH_S: Final = 3.0  # s; over which what consumers take is smoothed; a guess: several batches of one a second
GROWTH: Final = 0.25  # of the rate, per second; from a tenth to the whole in 10 s; a guess
DRAIN_AT_TARGET: Final = 0.95  # of what consumers take, just above the target
DRAIN_AT_TWICE: Final = 0.5  # of what consumers take, from twice the target on
THOUSANDTH: Final = 1000  # rates are kept to a thousandth of a message per second


class LagController:
    """One topic's rate. Rates are messages per second; floats, because they are estimates and are looked at once a second."""

    __slots__ = ("backlog", "rate", "taken_per_s")

    def __init__(self, limit: Limit) -> None:
        assert limit.messages is not None
        self.rate = limit.messages.per_second
        self.taken_per_s = inf  # what consumers take, smoothed; inf: not known yet
        self.backlog = 0  # at the last look

    def next_rate(self, limit: Limit, backlog: int, taken: int, elapsed_s: float) -> Rate:
        """The rate from now on, given the backlog, and how many messages consumers have taken in the last `elapsed_s` seconds.

        `taken` is below 0 where others have sent more than consumers took: smoothed with the rest, for consumers acknowledge in lumps.
        """
        lag = limit.lag
        assert lag is not None
        assert limit.messages is not None
        self.backlog = backlog
        seen = taken / elapsed_s
        part = min(1.0, elapsed_s / SMOOTH_S)
        self.taken_per_s = seen if self.taken_per_s == inf else self.taken_per_s + (seen - self.taken_per_s) * part
        if backlog > lag.target:
            excess = min(1.0, (backlog - lag.target) / max(1, lag.target))
            wanted = self.taken_per_s * (DRAIN_AT_TARGET - (DRAIN_AT_TARGET - DRAIN_AT_TWICE) * excess)
        elif backlog * 2 > lag.target:
            wanted = self.taken_per_s
        else:
            wanted = max(self.taken_per_s, self.rate * (1 + GROWTH * elapsed_s))
        self.rate = min(limit.messages.per_second, max(lag.slowest.per_second, wanted))
        return Rate(max(1, round(self.rate * THOUSANDTH)), THOUSANDTH * SECOND)

    def __repr__(self) -> str:
        return f"<LagController {self.rate:.1f}/s backlog={self.backlog} taken={self.taken_per_s:.1f}/s>"
