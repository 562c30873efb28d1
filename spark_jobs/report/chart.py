"""A chart of one topic: demand against quota over the last days, and the refused part, as one inline SVG without script.

Three layers over one axis of days: the band from nothing to the day's mean, a tick at the day's busiest second, the quota as a line with
steps. Where the busiest second is far above the mean a linear axis would show the mean as nothing, so the axis is logarithmic then, and
says so. One bar a day below it shows the refused part. Colours are classes of the page's style; each layer also has a shape of its own.
"""

from __future__ import annotations

from datetime import date
from html import escape

from spark_jobs.report.facts import DayFacts, SideFacts
from spark_jobs.report.scale import DAYS, Scale, place_days
from spark_jobs.report.words import UNKNOWN, amount_text, rate_text, short_day

WIDTH, HEIGHT = 420, 168  # units of the drawing; the page scales it to the column
LEFT, RIGHT, TOP = 62, 4, 8
FLOOR = 108  # y of the axis of days
REFUSED_TOP, REFUSED_FLOOR = 122, 146


def render_chart(side: SideFacts) -> str:
    """The SVG of one dimension of a topic; an empty text where no day is known."""
    days = place_days(side.series)
    if not days:
        return ""
    scale = Scale(tuple(day for _, day in days), side.rate, side.dimension)
    wide = (WIDTH - LEFT - RIGHT) / DAYS
    dimension = side.dimension
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(_summary(side, days))}">']
    for value in scale.ticks():
        y = _y(scale, value)
        parts.append(f'<path class="g" d="M{LEFT} {_n(y)}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 4}" y="{_n(y + 4)}" class="e">{scale.label(value)}</text>')
    means, busiest, steps, hovers = [], [], [], []
    last_at, last_y = -2, ""
    for at, day in days:
        x = LEFT + at * wide
        if day.mean:
            y = _y(scale, day.mean)
            means.append(f"M{_n(x + 1)} {FLOOR}V{_n(y)}h{_n(wide - 2)}V{FLOOR}z")
        if day.busiest:
            y = _y(scale, day.busiest)
            busiest.append(f"M{_n(x + 2)} {_n(y)}h{_n(wide - 4)}M{_n(x + wide / 2)} {_n(y)}V{_n(_y(scale, day.mean or 0.0))}")
        if day.quota is not None:
            y_text = _n(_y(scale, day.quota))
            joined = at == last_at + 1
            steps.append(f"{'' if joined and y_text == last_y else f'V{y_text}' if joined else f'M{_n(x)} {y_text}'}H{_n(x + wide)}")
            last_at, last_y = at, y_text
        hovers.append(
            f'<rect x="{_n(x)}" y="0" width="{_n(wide)}" height="{REFUSED_FLOOR}"><title>{_day_text(dimension, day)}</title></rect>'
        )
    parts.append(f'<path class="m" d="{"".join(means)}"/><path class="b" d="{"".join(busiest)}"/><path class="q" d="{"".join(steps)}"/>')
    if side.rate is not None:  # the quota that this snapshot brings, from the last day on
        y_text = _n(_y(scale, side.rate))
        parts.append(f'<path class="n" d="M{_n(WIDTH - RIGHT - 2 * wide)} {y_text}H{WIDTH - RIGHT}"/>')
    parts.append(f'<path class="a" d="M{LEFT} {FLOOR}H{WIDTH - RIGHT}"/>')
    parts += _refused(dimension, days, wide)
    parts += _dates(days, wide)
    if scale.logarithmic:
        parts.append(f'<text x="{LEFT}" y="{FLOOR + 11}">logarithmic axis</text>')
    return "".join((*parts, '<g class="h">', *hovers, "</g></svg>"))


def _refused(dimension: str, days: list[tuple[int, DayFacts]], wide: float) -> list[str]:
    """One bar a day; the highest is as high as the strip, and its number stands beside it."""
    known = [day.refused for _, day in days if day.refused is not None]
    top = max(known, default=0.0)
    said = "refused" if known else "refused: ?"
    parts = [
        f'<text x="{LEFT - 4}" y="{REFUSED_TOP + 8}" class="e">{said}</text>',
        f'<text x="{LEFT - 4}" y="{REFUSED_FLOOR}" class="e">{amount_text(dimension, top) if known else ""}</text>',
        f'<path class="a" d="M{LEFT} {REFUSED_FLOOR}H{WIDTH - RIGHT}"/>',
    ]
    bars = [
        f"M{_n(LEFT + at * wide + 2)} {REFUSED_FLOOR}V{_n(REFUSED_FLOOR - max(1.5, (REFUSED_FLOOR - REFUSED_TOP) * day.refused / top))}"
        f"h{_n(wide - 4)}V{REFUSED_FLOOR}z"
        for at, day in days
        if day.refused
    ]
    return [*parts, f'<path class="r" d="{"".join(bars)}"/>'] if bars else parts


def _dates(days: list[tuple[int, DayFacts]], wide: float) -> list[str]:
    """The last day, and every seventh before it."""
    last = date.fromisoformat(days[-1][1].day).toordinal()
    parts = []
    for weeks in range(4):
        x = LEFT + (DAYS - 1 - 7 * weeks + 0.5) * wide
        anchor = "e" if weeks == 0 else "c"
        when = short_day(date.fromordinal(max(1, last - 7 * weeks)).isoformat())
        parts.append(f'<text x="{_n(WIDTH - RIGHT if weeks == 0 else x)}" y="{HEIGHT - 6}" class="{anchor}">{when}</text>')
    return parts


def _day_text(dimension: str, day: DayFacts) -> str:
    quota = "none" if day.quota is None else rate_text(dimension, day.quota)
    return (
        f"{short_day(day.day)}: mean {rate_text(dimension, day.mean)}, busiest second {rate_text(dimension, day.busiest)}, "
        f"quota {quota}, refused {amount_text(dimension, day.refused)}"
    )


def _summary(side: SideFacts, days: list[tuple[int, DayFacts]]) -> str:
    newest = days[-1][1]
    quota = rate_text(side.dimension, side.rate) if side.rate is not None else "none"
    return f"{side.dimension}, {len(days)} days. New quota {quota}. {_day_text(side.dimension, newest)}".replace(UNKNOWN, "unknown")


def _n(value: float) -> str:
    """A coordinate with one place."""
    return f"{value:.1f}".removesuffix(".0")


def _y(scale: Scale, value: float) -> float:
    return FLOOR - (FLOOR - TOP) * scale.part(value)
