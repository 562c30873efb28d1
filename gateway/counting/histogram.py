"""A histogram: counts in fixed buckets, cheap enough for the hot path."""

from __future__ import annotations

from collections.abc import Iterator

from mypy_extensions import i64


class Histogram:
    """How often each bucket's bound (seconds, ascending) was not exceeded.

    `observe` looks at one bound after the other: most of what is observed is short, and a bisection by the standard library costs compiled
    code what it takes to look at twenty.
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        bounds = self.bounds
        bucket: i64 = 0
        while bucket < len(bounds) and bounds[bucket] < seconds:
            bucket += 1
        self.counts[bucket] += 1
        self.sum += seconds

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """(bound, observations up to it), the last bound infinite."""
        total = 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            total += count
            yield bound, total

    def __repr__(self) -> str:
        return f"<Histogram {sum(self.counts)} observations, {self.sum:.3f} s>"
