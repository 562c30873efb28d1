"""Adaptive: a limit on requests in flight that need not be known beforehand. `limiter.algorithms.gradient` finds it."""

from __future__ import annotations

from limiter.algorithms.concurrency import Concurrency
from limiter.algorithms.gradient import Gradient
from limiter.limits import Limit


def adaptive(limit: Limit, now: int) -> Concurrency:
    """A concurrency limit that is found."""
    return Concurrency(limit, now, Gradient(limit, now))
