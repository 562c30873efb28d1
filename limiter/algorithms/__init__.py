"""The algorithms of the limiter: one file and one line each (`architecture.md` 4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from limiter.algorithms.base import Algorithm
from limiter.algorithms.token_bucket import TokenBucket
from limiter.limits import Limit

# What a rule's `algorithm:` may say -> what makes its state, given the limit and `now`.
ALGORITHMS: Final[dict[str, Callable[[Limit, int], Algorithm]]] = {
    "token_bucket": TokenBucket,
}
