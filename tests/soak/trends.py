"""What grows over a long run: the slope of numbers over time, which a few wild ones do not bend, and what may be said of it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

WARM_UP = 0.25  # of the run; by then tables and pools are full


@dataclass(frozen=True)
class Trend:
    """`begin` and `end`: medians of the first and the last third after the warm-up. `per_hour`: Theil and Sen's slope, the median of those
    between all pairs of samples."""

    begin: float
    end: float
    per_hour: float

    @property
    def grown(self) -> float:
        """From the beginning to the end: medians, so that a few wild numbers are none."""
        return self.end - self.begin


def trend(samples: Sequence[tuple[float, float]]) -> Trend:
    """Of samples of (seconds, value), in order. Raises ValueError where there are too few."""
    after = samples[int(WARM_UP * len(samples)) :]
    if len(after) < 6:
        raise ValueError(f"{len(after)} samples after the warm-up are too few to see a trend: run longer")
    third = len(after) // 3
    values = [value for _, value in after]
    slopes = [(later - value) / (then - at) for (at, value), (then, later) in combinations(after, 2) if then > at]
    return Trend(statistics.median(values[:third]), statistics.median(values[-third:]), 3600 * statistics.median(slopes))
