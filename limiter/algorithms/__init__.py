"""The algorithms of the limiter: one file and one line each (`docs/architecture.md`, Extending)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from limiter.algorithms.adaptive import adaptive
from limiter.algorithms.base import Algorithm
from limiter.algorithms.concurrency import Concurrency
from limiter.algorithms.lag import LagControlledBucket
from limiter.algorithms.pacing import pacing
from limiter.algorithms.token_bucket import TokenBucket
from limiter.algorithms.warm_up import warm_up
from limiter.limits import Limit

# What a rule's `algorithm:` may say -> what makes its state, given the limit and `now`.
ALGORITHMS: Final[dict[str, Callable[[Limit, int], Algorithm]]] = {
    "token_bucket": TokenBucket,
    "pacing": pacing,
    "warm_up": warm_up,
    "concurrency": Concurrency,
    "adaptive": adaptive,
    "lag": LagControlledBucket,
}
