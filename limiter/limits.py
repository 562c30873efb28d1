"""Limits: how many messages and bytes per second, and how much at once.

Rates are exact rationals of integers, never floats: a float rate of 1/3 per second drifts, and "admitted no more than burst + rate * T"
would then hold only almost. Time is in nanoseconds everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import gcd
from typing import Final

SECOND: Final = 1_000_000_000  # nanoseconds
NEVER: Final = (1 << 62) - 1  # nanoseconds (146 years): a time that does not come; the largest that compiled code compares without a call
DEFAULT_BURST_NS: Final = SECOND  # ns of the rate; a burst where none is given; docs/design/limiter.md 1
MAX_PER_SECOND: Final = 10**15  # tokens; a rate; above any broker, and low enough that a typing error is noticed (guess)


@dataclass(frozen=True)
class Rate:
    """`amount` tokens per `per_ns` nanoseconds, kept in lowest terms, so that equal rates are equal. 0 refuses everything.

    Raises ValueError for a negative amount, a period that is not positive, and more than 10**15 per second.
    """

    amount: int
    per_ns: int = SECOND

    def __post_init__(self) -> None:
        if self.amount < 0:
            raise ValueError(f"a rate of {self.amount} is negative; 0 refuses everything, leaving the limit out limits nothing")
        if self.per_ns <= 0:
            raise ValueError(f"a rate needs a period longer than nothing, not {self.per_ns} ns")
        if self.amount * SECOND > MAX_PER_SECOND * self.per_ns:
            raise ValueError(f"a rate of {self.amount * SECOND // self.per_ns}/s is above {MAX_PER_SECOND}/s; leave the limit out instead")
        shared = gcd(self.amount, self.per_ns)
        if shared > 1:
            object.__setattr__(self, "amount", self.amount // shared)
            object.__setattr__(self, "per_ns", self.per_ns // shared)

    def tokens_in(self, duration_ns: int) -> int:
        """Whole tokens that come in within `duration_ns`."""
        return self.amount * duration_ns // self.per_ns

    @property
    def per_second(self) -> float:
        return self.amount * SECOND / self.per_ns

    def __str__(self) -> str:
        exact = Fraction(self.amount * SECOND, self.per_ns)
        return f"{exact.numerator}/s" if exact.denominator == 1 else f"{self.per_second:g}/s"


def per_second(number: float) -> Rate:
    """The rate of `number` per second, as JSON has it: whole, or a decimal read to six places. Raises ValueError as `Rate` does."""
    if number != number or number in (float("inf"), float("-inf")):  # noqa: PLR0124  -- the way to tell NaN without importing math
        raise ValueError(f"{number} is no rate; leave the limit out where there is none")
    exact = Fraction(str(number)).limit_denominator(10**6)
    return Rate(exact.numerator, exact.denominator * SECOND)


@dataclass(frozen=True)
class Adapt:
    """How a cap follows the load of its broker (`limiter.fair_share.adaptive_cap`). Parts are thousandths of the cap."""

    floor: int = 200  # never below this much of the cap
    tighten: int = 200  # of what it is, each time
    every_ns: int = SECOND  # once in so long at most
    recover: int = 50  # of the whole cap, per second

    def __post_init__(self) -> None:
        if not 1 <= self.floor <= 1000 or not 1 <= self.tighten < 1000 or not 1 <= self.recover <= 1000 or self.every_ns <= 0:
            raise ValueError("parts of a cap are more than nothing and at most the whole of it, and tighten leaves something")


@dataclass(frozen=True)
class Lag:
    """The backlog that a limit follows (`limiter.algorithms.lag_controller`): a RocketMQ `group`'s, or an AMQP `queue`'s."""

    target: int  # messages waiting, about which it settles
    slowest: Rate  # never below this
    group: str = ""
    queue: str = ""


@dataclass(frozen=True)
class Limit:
    """A limit on messages and bytes, each with a rate (None: unlimited) and a burst.

    The burst of a dimension is its number of tokens where one is given, else `burst_ns` of its rate (default one second).
    Raises ValueError for a burst that would never let anything pass; a rate of 0 says that.
    """

    messages: Rate | None = None
    bytes: Rate | None = None
    messages_burst: int | None = None
    bytes_burst: int | None = None
    burst_ns: int | None = None
    concurrent: int | None = None  # requests in flight (`limiter.in_flight`), at least 1; of `adaptive` the most it may find
    at_least: int | None = None  # of `adaptive`: the lower bound
    start: int | None = None  # of `adaptive`: the number at the start
    adapt: Adapt | None = None  # of a listener's cap: how it follows its broker; None: it is constant
    lag: Lag | None = None  # of `lag`: its backlog; `messages` is then the highest rate
    warm_up_ns: int = 0  # of `warm_up`: ns in which the rate rises; 0: the algorithm's default

    def __post_init__(self) -> None:
        for burst in (self.messages_burst, self.bytes_burst):
            if burst is not None and burst < 1:
                raise ValueError(f"a burst of {burst} would refuse everything; say a rate of 0 where that is meant")
        if self.burst_ns is not None and self.burst_ns <= 0:
            raise ValueError("a burst of no time would refuse everything; say a rate of 0 where that is meant")

    def messages_capacity(self) -> int:
        """The most messages that pass at once: whole tokens, at least 1 unless the rate is 0. 0 also where messages are unlimited."""
        return capacity(self.messages, self.messages_burst, self.burst_ns)

    def bytes_capacity(self) -> int:
        """The most bytes that pass at once: whole tokens, at least 1 unless the rate is 0. 0 also where bytes are unlimited."""
        return capacity(self.bytes, self.bytes_burst, self.burst_ns)

    def cost_ns(self, messages: int, size: int) -> int:
        """In how much time so many messages and bytes come in: whichever takes longer, rounded up; NEVER at a rate of 0."""
        cost = 0
        for rate, tokens in ((self.messages, messages), (self.bytes, size)):
            if rate is not None and tokens > 0:
                cost = max(cost, NEVER if rate.amount == 0 else -(-tokens * rate.per_ns // rate.amount))
        return cost

    def is_shut(self) -> bool:
        """Whether nothing passes, ever."""
        return (self.messages is not None and self.messages.amount == 0) or (self.bytes is not None and self.bytes.amount == 0)

    def limits_nothing(self) -> bool:
        return self.messages is None and self.bytes is None and self.concurrent is None


UNLIMITED: Final = Limit()


@dataclass(frozen=True)
class LimitChange:
    """A change of a limit's rates and bursts; a field that is None stays as it is, and an empty change changes nothing.

    Raises ValueError for bursts that no `Limit` may have.
    """

    messages: Rate | None = None
    bytes: Rate | None = None
    messages_burst: int | None = None
    bytes_burst: int | None = None
    burst_ns: int | None = None

    def __post_init__(self) -> None:
        Limit(self.messages, self.bytes, self.messages_burst, self.bytes_burst, self.burst_ns)

    def apply_to(self, base: Limit) -> Limit:
        """`base` with this change. A burst given as time replaces bursts given as tokens."""
        keeps = self.burst_ns is None
        return replace(
            base,
            messages=base.messages if self.messages is None else self.messages,
            bytes=base.bytes if self.bytes is None else self.bytes,
            messages_burst=self.messages_burst if self.messages_burst is not None or not keeps else base.messages_burst,
            bytes_burst=self.bytes_burst if self.bytes_burst is not None or not keeps else base.bytes_burst,
            burst_ns=base.burst_ns if keeps else self.burst_ns,
        )

    def is_empty(self) -> bool:
        return self == NO_CHANGE


NO_CHANGE: Final = LimitChange()


def as_change(limit: Limit) -> LimitChange:
    """The change that makes `limit` of any limit that differs from it only in rates and bursts."""
    return LimitChange(limit.messages, limit.bytes, limit.messages_burst, limit.bytes_burst, limit.burst_ns)


def lower_limit(limit: Limit, roof: Limit, *, bursts: bool) -> Limit:
    """`limit` with no rate above that of `roof`, nor, where it has `bursts`, a burst; itself where it is so already."""
    messages, messages_burst = lower_rate(limit.messages, limit.messages_capacity(), roof.messages, roof.messages_capacity())
    size, bytes_burst = lower_rate(limit.bytes, limit.bytes_capacity(), roof.bytes, roof.bytes_capacity())
    if not bursts:
        messages_burst = bytes_burst = None
    found = replace(limit, messages=messages, bytes=size, messages_burst=messages_burst, bytes_burst=bytes_burst, burst_ns=None)
    rates = found.messages == limit.messages and found.bytes == limit.bytes
    same = rates and found.messages_capacity() == limit.messages_capacity() and found.bytes_capacity() == limit.bytes_capacity()
    return limit if same else found


def lower_rate(rate: Rate | None, burst: int, most: Rate | None, most_burst: int) -> tuple[Rate | None, int | None]:
    """The lesser of two rates, and of their bursts in tokens (None: no burst to name); None as a rate is more than any."""
    if most is None:
        return rate, burst or None
    if rate is None:
        return most, most_burst or None
    lower = rate if rate.amount * most.per_ns <= most.amount * rate.per_ns else most
    return lower, (min(burst, most_burst) or None) if lower.amount else None


def capacity(rate: Rate | None, burst: int | None, burst_ns: int | None) -> int:
    """The size of a bucket in whole tokens; one that holds less than one token could never give any, so it holds at least one."""
    if rate is None or rate.amount == 0:
        return 0
    if burst is not None:
        return burst
    return max(1, rate.tokens_in(DEFAULT_BURST_NS if burst_ns is None else burst_ns))
