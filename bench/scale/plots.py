"""Pictures of growth: processor time per message against what grows, as SVG. Drawn from the results of `growth`, not measured here."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any
from xml.sax.saxutils import escape

from scale.figures import Spread, number, spread
from scale.growth import DIMENSIONS

WIDTH = 920
LEFT = 60
PANEL_WIDTH, PANEL_HEIGHT = 370, 150
GAPS = (100, 90)  # between panels, across and down
TOP = 86
HEIGHT = TOP + 2 * PANEL_HEIGHT + GAPS[1] + 56

STYLE = """
  svg { color-scheme: light dark; }
  text { font: 12px system-ui, sans-serif; fill: #24292f; }
  .title { font-size: 15px; font-weight: 600; }
  .faint { fill: #57606a; }
  .grid { stroke: #d0d7de; stroke-width: 1; fill: none; }
  .line { stroke: #0969da; stroke-width: 2; fill: none; stroke-linejoin: round; }
  .reach { stroke: #0969da; stroke-width: 1; fill: none; }
  .point { fill: #0969da; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .faint { fill: #9198a1; }
    .grid { stroke: #30363d; }
    .line, .reach { stroke: #4493f8; }
    .point { fill: #4493f8; }
  }"""


def ceiling(value: float) -> float:
    """The next of 1, 2, 4, 6, 8, 10, 20, ... above: an axis that ends there has round quarters."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 6, 8, 10) if step * power >= value)


def panel(name: str, points: Sequence[tuple[int, Spread]], left: int, top: int, most: float) -> Iterator[str]:
    """One picture: `points` are how many there were, and µs per message. The axis across is logarithmic."""
    first, last = math.log10(points[0][0]), math.log10(points[-1][0])
    bottom = top + PANEL_HEIGHT

    def across(many: int) -> float:
        return left + 20 + (PANEL_WIDTH - 40) * (math.log10(many) - first) / (last - first)

    def down(cost: float) -> float:
        return bottom - PANEL_HEIGHT * cost / most

    yield f'<text x="{left}" y="{top - 10}">{escape(name)}</text>'
    for part in range(5):
        height = most * part / 4
        yield f'<path class="grid" d="M{left} {down(height):.1f}h{PANEL_WIDTH}"/>'
        yield f'<text class="faint" x="{left - 6}" y="{down(height) + 4:.1f}" text-anchor="end">{height:g}</text>'
    places = " ".join(f"{across(many):.1f},{down(cost.median):.1f}" for many, cost in points)
    yield f'<polyline class="line" points="{places}"/>'
    for many, cost in points:
        x = across(many)
        yield f'<path class="reach" d="M{x:.1f} {down(cost.least):.1f}V{down(cost.most):.1f}"/>'
        yield f'<circle class="point" cx="{x:.1f}" cy="{down(cost.median):.1f}" r="3.5"/>'
        yield f'<text x="{x:.1f}" y="{down(cost.most) - 8:.1f}" text-anchor="middle">{number(cost.median)}</text>'
        yield f'<text class="faint" x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{many:,}</text>'


def growth(found: dict[str, Any]) -> str:
    """The four pictures in one, from the results of `growth`."""
    costs = {
        name: [(place["point"][name], spread([run["cpu_us"] for run in place["runs"]])) for place in places]
        for name, places in found["growth"].items()
    }
    plan = found["plan"]
    highest = {name: max(cost.most for _, cost in points) for name, points in costs.items()}
    others = max(most for name, most in highest.items() if name != "messages")  # at few messages a second they cost several times as much
    ends = {name: ceiling(1.15 * (most if name == "messages" else others)) for name, most in highest.items()}
    usual = f"{plan['rate']:,} messages/s of 200 bytes with answers, {plan['least']['topics']} topics, {plan['least']['rules']} rules, "
    usual += f"{plan['least']['connections']} connections, but for what grows; median, least and most of {plan['rounds']} rounds"
    told = "; ".join(
        f"{DIMENSIONS[name]}: " + ", ".join(f"{many:,}: {number(cost.median)} µs" for many, cost in points)
        for name, points in costs.items()
    )
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="title desc">',
        '<title id="title">Processor time per message</title>',
        f'<desc id="desc">{escape(told)}</desc>',
        f"<style>{STYLE}\n</style>",
        f'<text x="{LEFT}" y="22" class="title">Processor time per message, in µs, against what grows</text>',
        f'<text x="{LEFT}" y="41" class="faint">{escape(usual)}</text>',
    ]
    for place, (name, points) in enumerate(costs.items()):
        left = LEFT + place % 2 * (PANEL_WIDTH + GAPS[0])
        top = TOP + place // 2 * (PANEL_HEIGHT + GAPS[1])
        lines.extend(panel(DIMENSIONS[name], points, left, top, ends[name]))
    return "\n".join([*lines, "</svg>"]) + "\n"
