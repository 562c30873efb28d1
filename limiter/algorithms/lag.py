"""Lag: a token bucket whose rate follows how far the consumers are behind.

A fixed rate protects a broker, but not the consumers behind it: while they are slow, the topic's backlog grows at whatever the fixed rate
lets through, and its messages are late for as long as it takes to drain. What is right for them changes with every deployment of theirs,
so nobody can write it down.

Here the rate stands between `lag.slowest` and the limit's own (the fastest), and somebody who can ask the broker steers it (`steer`);
`limiter.algorithms.lag_controller` says where to. Between two words of his this is an ordinary bucket, and everything that holds for one
holds for it at the rate of the moment: the burst is a time of that rate, and a change keeps the fill in proportion. It begins at the
fastest, and while nobody steers (the broker cannot be asked) the last rate holds. Bytes, where the limit names them, are not steered.
"""

from __future__ import annotations

from dataclasses import replace

from limiter.algorithms.token_bucket import TokenBucket
from limiter.limits import Limit, Rate


class Following(TokenBucket):
    """A bucket that is steered. `configured` is the limit as its rule has it, `limit` as it is now."""

    __slots__ = ("configured",)

    def __init__(self, limit: Limit, now: int) -> None:
        super().__init__(limit, now)
        self.configured = limit

    def steer(self, rate: Rate, now: int) -> None:
        """Let so many messages per second pass from `now` on; no more than the rule allows, which may allow less since `rate` was found."""
        fastest = self.configured.messages
        if fastest is not None and rate.per_second > fastest.per_second:
            rate = fastest
        super().change(replace(self.configured, messages=rate), now)

    def change(self, limit: Limit, now: int) -> None:
        """The rule says another limit: the rate stays where it is, as far as that allows."""
        rate = self.limit.messages
        lag = limit.lag
        self.configured = limit
        if rate is not None and lag is not None and limit.messages is not None:
            if rate.per_second > limit.messages.per_second:
                rate = limit.messages
            elif rate.per_second < lag.slowest.per_second:
                rate = lag.slowest
            super().change(replace(limit, messages=rate), now)
        else:
            super().change(limit, now)

    def __repr__(self) -> str:
        return f"<Following {self.limit.messages} of {self.configured.messages}>"
