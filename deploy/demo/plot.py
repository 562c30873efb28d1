"""The incident as a picture: two panels of one scale, without and with a limit, drawn from the seconds of a real run.

    python deploy/demo/plot.py docs/images/incident.json docs/images/incident.svg

Plain SVG written by hand: no library, a few kilobytes, and it follows the reader's light or dark background.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple
from xml.sax.saxutils import escape

WIDTH: Final = 920
PANEL: Final = 380  # width of a panel
LEFT: Final = (76, 510)  # where the two begin
ROWS: Final = (92, 236, 380)  # where the three charts of a panel begin
ROW: Final = 104  # height of a chart
HEIGHT: Final = 560
LEAST_MS: Final = 1.0  # where the logarithmic axis of times begins

STYLE: Final = """
  svg { color-scheme: light dark; }
  text { font: 12px system-ui, sans-serif; fill: #24292f; }
  .title { font-size: 15px; font-weight: 600; }
  .faint { fill: #57606a; }
  .axis { stroke: #8c959f; stroke-width: 1; fill: none; }
  .grid { stroke: #d0d7de; stroke-width: 1; fill: none; }
  .storm { fill: #8c959f; fill-opacity: .16; }
  .passed { fill: #bf8700; }
  .refused { fill: #0969da; fill-opacity: .45; }
  .shed { fill: #bf8700; fill-opacity: .4; }
  .taken { fill: #1a7f37; fill-opacity: .5; }
  .failed { fill: #cf222e; }
  .slow { stroke: #8250df; stroke-width: 2; fill: none; stroke-linejoin: round; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .faint { fill: #9198a1; }
    .axis { stroke: #6e7681; }
    .grid { stroke: #30363d; }
    .passed { fill: #d29922; }
    .refused { fill: #58a6ff; }
    .shed { fill: #d29922; }
    .taken { fill: #3fb950; }
    .failed { fill: #f85149; }
    .slow { stroke: #bc8cff; }
  }"""


class Scale(NamedTuple):
    """Values from 0 to `most` on a chart, linear or logarithmic from LEAST_MS."""

    top: float
    most: float
    logarithmic: bool = False

    def y(self, value: float) -> float:
        share = value / self.most
        if self.logarithmic:
            share = math.log10(max(value, LEAST_MS) / LEAST_MS) / math.log10(self.most / LEAST_MS)
        return self.top + ROW * (1 - min(share, 1.0))

    def ticks(self) -> list[float]:
        if self.logarithmic:
            return [10**power for power in range(round(math.log10(self.most)) + 1)]
        return [0.0, self.most / 2, self.most]


def round_up(value: float) -> float:
    """The next 1, 2, 4, 6, 8 or 10 times a power of ten; even, so that half of it is a whole number from 10 on."""
    power = 10 ** math.floor(math.log10(max(value, 10)))
    return next(float(factor * power) for factor in (1, 2, 4, 6, 8, 10) if factor * power >= value)


def draw(data: dict[str, Any]) -> str:
    """The whole picture. `data` as `incident.py` writes it."""
    panels: list[dict[str, Any]] = data["panels"]
    seconds = [second for panel in panels for second in panel["seconds"]]
    scales = [
        Scale(ROWS[0], round_up(max(second["passed"] + second["shed"] + second["refused"] for second in seconds))),
        Scale(ROWS[1], round_up(max(second["sends"] for second in seconds))),
        Scale(ROWS[2], 10 ** math.ceil(math.log10(max(second["p99_ms"] for second in seconds))), logarithmic=True),
    ]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="title desc">',
        f'<title id="title">{escape(data["title"])}</title>',
        f'<desc id="desc">{escape(describe(panels))}</desc>',
        f"<style>{STYLE}\n</style>",
        *headings(data),
    ]
    for left, panel in zip(LEFT, panels, strict=True):
        parts += panel_parts(left, panel, scales)
    return "\n".join([*parts, "</svg>", ""])


def describe(panels: list[dict[str, Any]]) -> str:
    """The picture in words."""
    sentences = []
    for panel in panels:
        storm = [second for second in panel["seconds"] if second["storm"]]
        sends = sum(second["sends"] for second in storm)
        failed = sum(second["failed"] for second in storm)
        sentences.append(
            f"{panel['title']}: during the storm {failed} of {sends} sends to the ten other topics fail, "
            f"and the slowest second has a 99th percentile of {max(second['p99_ms'] for second in storm):.0f} milliseconds."
        )
    return " ".join(sentences)


def headings(data: dict[str, Any]) -> Iterator[str]:
    yield f'<text x="{LEFT[0]}" y="24" class="title">{escape(data["title"])}</text>'
    yield f'<text x="{LEFT[0]}" y="42" class="faint">{escape(data["subtitle"])}</text>'
    x = float(LEFT[0])
    y = HEIGHT - 12
    for kind, words in LEGEND:
        yield f'<rect x="{x:.0f}" y="{y - 9}" width="10" height="10" class="{kind}"/><text x="{x + 15:.0f}" y="{y}">{words}</text>'
        x += 36 + 6.4 * len(words)


NAMES: Final = ("send-backs of the group, per second", "sends to ten other topics, per second", "99th percentile of those that succeed, ms")
LEGEND: Final = (
    ("passed", "stored by the broker"),
    ("shed", "shed by the broker, code 2"),
    ("refused", "refused by sluice, code 215"),
    ("taken", "sends that succeed"),
    ("failed", "sends that fail"),
)


def panel_parts(left: float, panel: dict[str, Any], scales: list[Scale]) -> Iterator[str]:
    seconds = panel["seconds"]
    step = PANEL / len(seconds)
    yield f'<text x="{left}" y="68" class="title">{escape(panel["title"])}</text>'
    stormy = [number for number, second in enumerate(seconds) if second["storm"]]
    for name, scale in zip(NAMES, scales, strict=True):
        bottom = scale.top + ROW
        x, width = left + stormy[0] * step, (stormy[-1] - stormy[0] + 1) * step
        yield f'<rect x="{x:.1f}" y="{scale.top}" width="{width:.1f}" height="{ROW}" class="storm"/>'
        yield f'<text x="{left}" y="{scale.top - 6:.0f}" class="faint">{name}</text>'
        for tick in scale.ticks():
            yield f'<path d="M{left} {scale.y(tick):.1f}h{PANEL}" class="grid"/>'
            yield f'<text x="{left - 6}" y="{scale.y(tick) + 4:.1f}" text-anchor="end" class="faint">{tick:,.0f}</text>'
        yield f'<path d="M{left} {scale.top}V{bottom:.0f}H{left + PANEL}" class="axis"/>'
    for number, second in enumerate(seconds):
        x = left + number * step
        yield from bars(x, step, scales[0], (second["passed"], "passed"), (second["shed"], "shed"), (second["refused"], "refused"))
        yield from bars(x, step, scales[1], (second["failed"], "failed"), (second["sends"] - second["failed"], "taken"))
    points = " ".join(f"{left + (number + 0.5) * step:.1f},{scales[2].y(second['p99_ms']):.1f}" for number, second in enumerate(seconds))
    yield f'<polyline points="{points}" class="slow"/>'
    base = ROWS[2] + ROW
    for number in range(0, len(seconds) + 1, 5):
        yield f'<text x="{left + number * step:.1f}" y="{base + 16}" text-anchor="middle" class="faint">{number} s</text>'


def bars(x: float, step: float, scale: Scale, *values: tuple[float, str]) -> Iterator[str]:
    """One second's bar: values of several kinds, one upon the other."""
    start = 0.0
    for value, kind in values:
        y = scale.y(start + value)
        height = scale.y(start) - y
        start += value
        if height > 0:
            yield f'<rect x="{x + 0.08 * step:.1f}" y="{y:.1f}" width="{0.84 * step:.1f}" height="{height:.1f}" class="{kind}"/>'


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(draw(json.loads(Path(sys.argv[1]).read_text())))
