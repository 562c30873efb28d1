"""A brute-force model of the limiter: exact fractions, one message at a time, no cleverness. What the real one is compared with."""

from __future__ import annotations

import copy
from fractions import Fraction

from limiter.limits import Limit, Rate

OBSERVED_JITTER_NS = 10**9


class ModelTokens:
    """One dimension: tokens as a fraction."""

    def __init__(self, rate: Rate, capacity: int, now: int) -> None:
        self.each_ns = Fraction(rate.amount, rate.per_ns)
        self.capacity = capacity
        self.tokens = Fraction(capacity)
        self.last = now

    def pass_time(self, now: int) -> None:
        if now > self.last:
            self.tokens = min(Fraction(self.capacity), self.tokens + (now - self.last) * self.each_ns)
            self.last = now
        elif now < self.last - OBSERVED_JITTER_NS:
            self.last = now

    def admits(self, cost: int) -> bool:
        if self.capacity == 0:
            return False
        return self.tokens == self.capacity if cost > self.capacity else self.tokens >= cost

    def full_in(self) -> Fraction:
        return (self.capacity - self.tokens) / self.each_ns if self.capacity else Fraction(10**30)


class ModelLevel:
    """A bucket with its breaker."""

    def __init__(self, limit: Limit, open_for_ns: int, now: int, *, shadow: bool = False) -> None:
        self.dimensions = []
        if limit.messages is not None:
            self.dimensions.append((0, ModelTokens(limit.messages, limit.messages_capacity(), now)))
        if limit.bytes is not None:
            self.dimensions.append((1, ModelTokens(limit.bytes, limit.bytes_capacity(), now)))
        self.open_for_ns = open_for_ns
        self.open_until = Fraction(0)
        self.shadow = shadow

    def admits(self, messages: int, size: int, now: int) -> bool:
        if now < self.open_until:
            return False
        for _, tokens in self.dimensions:
            tokens.pass_time(now)
        return all(tokens.admits((messages, size)[which]) for which, tokens in self.dimensions)

    def take(self, messages: int, size: int) -> None:
        for which, tokens in self.dimensions:
            tokens.tokens -= (messages, size)[which]

    def refuse(self, messages: int, size: int, now: int) -> None:
        """Open the breaker, unless it is open: until `open_for` is over, or a dimension that refuses runs over."""
        if self.open_for_ns == 0 or now < self.open_until:
            return
        overflow = min(
            tokens.last - now + tokens.full_in() for which, tokens in self.dimensions if not tokens.admits((messages, size)[which])
        )
        self.open_until = now + min(Fraction(self.open_for_ns), Fraction(-(-overflow // 1)))


class ModelJudge:
    """Levels that add up: look at all, then take from all; shadow levels see what the enforced ones let pass."""

    def __init__(self, levels: list[ModelLevel]) -> None:
        self.levels = levels

    def ask(self, messages: int, size: int, now: int) -> tuple[bool, bool]:
        """One request: (passed, refused by some shadow level)."""
        enforced = [level for level in self.levels if not level.shadow]
        verdicts = [level.admits(messages, size, now) for level in enforced]
        if not all(verdicts):
            for level, admitted in zip(enforced, verdicts, strict=True):
                if not admitted:
                    level.refuse(messages, size, now)
            return False, False
        for level in enforced:
            level.take(messages, size)
        shadow_refused = False
        for level in self.levels:
            if level.shadow:
                if level.admits(messages, size, now):
                    level.take(messages, size)
                else:
                    level.refuse(messages, size, now)
                    shadow_refused = True
        return True, shadow_refused

    def would_pass(self, messages: int, size: int, now: int) -> bool:
        """Whether one request would pass at `now`, if nobody asked in between; changes nothing."""
        enforced = copy.deepcopy([level for level in self.levels if not level.shadow])
        return all(level.admits(messages, size, now) for level in enforced)
