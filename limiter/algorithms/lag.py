"""Lag: a token bucket whose rate follows how far the consumers are behind.

A fixed rate protects a broker, but not the consumers behind it: while they are slow, the topic's backlog grows at whatever the fixed rate
lets through, and its messages are late for as long as it takes to drain. The rate that is right for them changes with every deployment
of theirs, so it cannot be written down.

Here the rate stands between `lag.slowest` and the limit's own (the fastest). `gateway.broker_load.lag_watch` asks the broker for the
backlog and sets the rate (`set_rate`); `limiter.algorithms.lag_controller` calculates it. In between this is an ordinary bucket at the
rate of the moment: the burst is a time of that rate, and a change keeps the fill in proportion. It begins at the fastest. While the
broker cannot be asked the last rate holds. Bytes, where the limit names them, keep their rate.
"""

from __future__ import annotations

from dataclasses import replace

from limiter.algorithms.token_bucket import TokenBucket
from limiter.limits import Limit, Rate


class LagControlledBucket(TokenBucket):
    """A bucket whose rate is set from outside. `configured` is the limit as its rule has it, `limit` as it is now."""

    __slots__ = ("configured",)

    def __init__(self, limit: Limit, now: int) -> None:
        super().__init__(limit, now)
        self.configured = limit

    def set_rate(self, rate: Rate, now: int) -> None:
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
        return f"<LagControlledBucket {self.limit.messages} of {self.configured.messages}>"
