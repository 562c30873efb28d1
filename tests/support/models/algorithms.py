"""What the algorithms of the limiter differ in, as tests need it: one entry for each whose limit is a rate.

All else that is promised of a rate is the same for all of them (`contracts/test_rates.py`). Numbers are exact: fractions, not floats.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from limiter.algorithms.pacing import TOLERANCE_NS
from limiter.limits import SECOND, Rate

DEFAULT_OVER_NS = 10 * SECOND


@dataclass(frozen=True)
class RateTraits:
    """Of one dimension. `capacity` is the limit's burst in tokens, `over_ns` its time to warm up (0: the default)."""

    most: Callable[[Rate, int, int, int], Fraction]  # (rate, capacity, window in ns, largest request): the most that any window admits
    at_once: Callable[[Rate, int, int], int]  # (rate, capacity, over_ns): requests of one token that pass at once, as new; to within 1
    late_ns: int = 0  # endless demand gets what the rate brings in, but for so much time


def tokens(rate: Rate, duration_ns: int) -> Fraction:
    return Fraction(rate.amount * duration_ns, rate.per_ns)


def bucket_most(rate: Rate, capacity: int, window_ns: int, largest: int) -> Fraction:
    """Burst + rate * T, and one more where it may go into debt for a request above the burst."""
    return capacity + tokens(rate, window_ns) + (largest if largest > capacity else 0)


def pacing_most(rate: Rate, capacity: int, window_ns: int, largest: int) -> Fraction:
    """No burst: what comes due, as late as it may be, and the request that is passed before it has come due as a whole."""
    return tokens(rate, window_ns + TOLERANCE_NS) + largest


def extra(n: Fraction, warm: Fraction) -> Fraction:
    """E(n): what the first `n` after a rest pay above 1 each; `warm` = rate * over / 2."""
    return warm - max(Fraction(0), warm - n) ** 2 / warm


def warm_up_at_once(rate: Rate, capacity: int, over_ns: int) -> int:
    """The largest n with n + E(n) <= burst; one where even that is too dear."""
    warm = tokens(rate, over_ns or DEFAULT_OVER_NS) / 2
    least, above = 0, capacity + 1
    while above - least > 1:
        middle = (least + above) // 2
        if middle + extra(Fraction(middle), warm) <= capacity:
            least = middle
        else:
            above = middle
    return max(1, least)


RATES = {
    "token_bucket": RateTraits(most=bucket_most, at_once=lambda _rate, capacity, _over: capacity),
    "lag": RateTraits(most=bucket_most, at_once=lambda _rate, capacity, _over: capacity),  # a bucket, while no rate is set
    "pacing": RateTraits(most=pacing_most, at_once=lambda rate, _capacity, _over: 1 + rate.tokens_in(TOLERANCE_NS)),
    "warm_up": RateTraits(most=bucket_most, at_once=warm_up_at_once, late_ns=DEFAULT_OVER_NS // 2),
}
NO_RATES = ("concurrency", "adaptive")  # what these promise stands in limiter/algorithms/test_concurrency.py and test_adaptive.py
