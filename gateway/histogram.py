"""A histogram: counts in fixed buckets, cheap enough for the hot path."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator


class Histogram:
    """How often each bucket's bound (seconds, ascending) was not exceeded; `observe` is one bisection."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum += seconds

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """(bound, observations up to it), the last bound infinite."""
        total = 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            total += count
            yield bound, total

    def __repr__(self) -> str:
        return f"<Histogram {sum(self.counts)} observations, {self.sum:.3f} s>"
