"""The axes of a topic's chart, for the page's SVG and for a terminal: the days that are shown, and the height of a rate."""

from __future__ import annotations

import math
import statistics
from datetime import date
from typing import Final

from spark_jobs.report.facts import DayFacts
from spark_jobs.report.words import number_text, rate_text

DAYS: Final = 28
STEEP: Final = 25  # times: the top of the chart over the median of the means, from which the axis is logarithmic (a guess)


class Scale:
    """Per second -> part of the chart's height, 0 to 1. Linear from 0, or logarithmic from the decade of the smallest mean."""

    def __init__(self, days: tuple[DayFacts, ...], quota: float | None, dimension: str) -> None:
        self.dimension = dimension
        values = [value for day in days for value in (day.mean, day.busiest, day.quota) if value]
        self.top: float = max([*values, quota or 0.0], default=0.0) or 1.0
        means = [day.mean for day in days if day.mean]
        self.logarithmic = bool(means) and self.top > STEEP * statistics.median(means)
        self.base = 16.0 if dimension == "bytes" else 10.0  # 16: marks at 1, 16 and 256 of B, KiB, ...
        self.bottom: float = self.base ** (math.floor(math.log(min(means), self.base)) if self.logarithmic else 0)
        if self.logarithmic:
            self.top = max(self.top * 1.2, self.bottom * self.base)

    def part(self, value: float) -> float:
        found = value / (self.top * 1.06)
        if self.logarithmic:
            found = math.log(max(value, self.bottom) / self.bottom) / math.log(self.top / self.bottom)
        return min(1.0, max(0.0, found))

    def ticks(self) -> list[float]:
        """Two to four values to write beside the axis."""
        if self.logarithmic:
            first, last = round(math.log(self.bottom, self.base)), math.floor(math.log(self.top, self.base) + 1e-9)
            every = max(1, math.ceil((last - first) / 3))
            return [self.base**power for power in range(first, last + 1, every)]
        thousand = 1024.0 ** max(0, math.floor(math.log(self.top, 1024))) if self.dimension == "bytes" else 1.0  # KiB, MiB, ...
        unit = thousand * 10.0 ** math.floor(math.log10(self.top / thousand))
        step = next(unit * each for each in (0.2, 0.5, 1, 2, 5) if self.top / (unit * each) <= 4)
        return [step * at for at in range(int(self.top / step) + 1)]

    def label(self, value: float) -> str:
        """A mark in words. All marks of an axis are per second, so that they can be compared."""
        return rate_text("bytes", value) if self.dimension == "bytes" else f"{number_text(value)}/s"


def place_days(series: tuple[DayFacts, ...]) -> list[tuple[int, DayFacts]]:
    """(place 0..27, day), the last day at the right. Days that cannot be read, or are older, are left out."""
    found: list[tuple[date, DayFacts]] = []
    for day in series:
        try:
            found.append((date.fromisoformat(day.day), day))
        except ValueError:
            continue
    if not found:
        return []
    last = max(when for when, _ in found).toordinal()
    return sorted(((place, day) for when, day in found if (place := DAYS - 1 - (last - when.toordinal())) >= 0), key=lambda found: found[0])
