"""The algorithms of the limiter: one file and one line here each. `CONTRIBUTING.md` lists what else a new one needs."""

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

Maker = Callable[[Limit, int], Algorithm]  # a bucket, of the limit and `now`

# The words of a rule's `algorithm:` and what makes a bucket of each, by what the limit is on.
OF_RATES: Final[dict[str, Maker]] = {  # messages and bytes per second alone
    "token_bucket": TokenBucket,
    "pacing": pacing,
    "warm_up": warm_up,
}
OF_REQUESTS_IN_FLIGHT: Final[dict[str, Maker]] = {  # `concurrent` (`limiter.in_flight`)
    "concurrency": Concurrency,
    "adaptive": adaptive,
}
OF_BACKLOGS: Final[dict[str, Maker]] = {  # a rate that follows `lag`
    "lag": LagControlledBucket,
}
ALGORITHMS: Final[dict[str, Maker]] = {**OF_RATES, **OF_REQUESTS_IN_FLIGHT, **OF_BACKLOGS}

RATE_ALGORITHMS: Final = tuple(OF_RATES)
COUNTING: Final = tuple(OF_REQUESTS_IN_FLIGHT)
WITHOUT_BURST: Final = ("pacing",)  # spaces messages evenly
