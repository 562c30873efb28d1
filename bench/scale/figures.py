"""Numbers out of series: slopes, medians, ratios. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Slope:
    """A straight line through points, by least squares. `error` is the standard error of `per_x`; 0 where two points leave no doubt."""

    per_x: float
    error: float

    def is_flat(self, tolerance: float) -> bool:
        """Whether the line rises by no more than `tolerance`, or by less than twice its own error."""
        return self.per_x <= max(tolerance, 2 * self.error)


def slope(points: Sequence[tuple[float, float]]) -> Slope:
    """Raises ValueError for fewer than two different x."""
    if len({x for x, _ in points}) < 2:
        raise ValueError("a slope needs two points")
    mean_x, mean_y = (statistics.fmean(values) for values in zip(*points, strict=True))
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    per_x = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    if len(points) == 2:
        return Slope(per_x, 0.0)
    left_over = sum((y - mean_y - per_x * (x - mean_x)) ** 2 for x, y in points)
    return Slope(per_x, math.sqrt(left_over / (len(points) - 2) / spread))


@dataclass(frozen=True)
class Spread:
    """The median of several rounds, with the least and the most."""

    median: float
    least: float
    most: float

    def said(self, unit: str) -> str:
        half = (self.most - self.least) / 2 / self.median if self.median else 0.0
        return f"{number(self.median)} {unit} ±{half:.0%}"


def spread(values: Sequence[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values))


def ratio(ours: Sequence[float], others: Sequence[float]) -> Spread:
    """Ours by another's, round by round: what the machine does in a round hits both."""
    return spread([one / other for one, other in zip(ours, others, strict=True)])


def number(value: float) -> str:
    return f"{value:,.2f}" if abs(value) < 100 else f"{value:,.0f}"


@dataclass(frozen=True)
class Row:
    """One line of a table: what was measured, and the goal it is held against where there is one."""

    what: str
    found: str
    goal: str = ""
    reached: bool | None = None


def at_most(what: str, found: float, most: float, unit: str, shown: Callable[[float], str] = number) -> Row:
    return Row(what, f"{shown(found)} {unit}".strip(), f"≤ {most:g} {unit}".strip(), found <= most)


def at_least(what: str, found: float, least: float, unit: str, shown: Callable[[float], str] = number) -> Row:
    return Row(what, f"{shown(found)} {unit}".strip(), f"≥ {least:g} {unit}".strip(), found >= least)


def table(rows: Sequence[Row]) -> str:
    """Rows as a Markdown table."""
    verdicts = {None: "", True: "reached", False: "**missed**"}
    cells = [("", "found", "goal", ""), *((row.what, row.found, row.goal, verdicts[row.reached]) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(4)]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in cells]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)
