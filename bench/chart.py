"""The benchmark as a picture: CPU per message of HAProxy, Envoy and sluice for each kind of traffic, drawn from a kept file.

    python bench/chart.py bench/results/STAMP.json docs/images/cpu-per-message.svg

The works differ by a factor of fifty, so a bar's length is the multiple of what HAProxy needs for the same work; the microseconds stand
beside it. A bar ends at the median of the rounds; the thin line on it goes from the least to the most. Works that were not measured
through all three have no place in it. Plain SVG written by hand, which follows the reader's light or dark background. The picture says in
its description from which file it was drawn; `tests/bench/test_chart.py` draws it again.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from records import NAMES, Bench, Work, loaded
from report import number

PROXIES: Final = ("haproxy", "envoy", "sluice")
WIDTH: Final = 920
EDGE: Final = 20  # where headings begin
LEFT: Final = 300  # where bars begin
RIGHT: Final = 110  # room for the numbers beside the longest bar
TOP: Final = 96
BAR: Final = 13
GAP: Final = 15  # between works

STYLE: Final = """
  svg { color-scheme: light dark; }
  text { font: 12px system-ui, sans-serif; fill: #24292f; }
  .title { font-size: 15px; font-weight: 600; }
  .faint { fill: #57606a; }
  .grid { stroke: #d0d7de; stroke-width: 1; fill: none; }
  .one { stroke: #57606a; stroke-width: 1; stroke-dasharray: 4 3; fill: none; }
  .spread { stroke: #24292f; stroke-width: 1; fill: none; }
  .haproxy { fill: #8c959f; }
  .envoy { fill: #a475f9; }
  .sluice { fill: #0969da; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .faint { fill: #9198a1; }
    .grid { stroke: #30363d; }
    .one { stroke: #9198a1; }
    .spread { stroke: #e6edf3; }
    .haproxy { fill: #6e7681; }
    .envoy { fill: #8957e5; }
    .sluice { fill: #58a6ff; }
  }"""


def costs(bench: Bench, work: Work) -> dict[str, list[float]]:
    """Processor microseconds per message, by proxy, one for each round."""
    return {name: [run.cpu_us for run in bench.runs(work.name, name) if run.cpu_us is not None] for name in PROXIES}


def comparable(bench: Bench) -> list[tuple[str, dict[str, list[float]]]]:
    """The works measured through all three: those with traffic where there are any, else those with one message again and again."""
    found = [(work.name, found) for work in bench.works if all((found := costs(bench, work)).values())]
    return [(name.replace(", traffic", ""), each) for name, each in found if "traffic" in name] or found


def ratio(values: list[float], of: list[float]) -> tuple[float, float, float]:
    """Least, median and most, as multiples of another's median."""
    base = statistics.median(of)
    return min(values) / base, statistics.median(values) / base, max(values) / base


def describe(rows: list[tuple[str, dict[str, list[float]]]], source: str) -> str:
    """The picture in words."""
    sentences = [
        f"{name}: " + ", ".join(f"{NAMES[proxy]} {number(statistics.median(values))}" for proxy, values in found.items()) + " microseconds."
        for name, found in rows
    ]
    return f"Drawn from {source}. " + " ".join(sentences)


def bar(kind: str, values: list[float], of: list[float], y: float, scale: float) -> Iterator[str]:
    least, median, most = (LEFT + scale * value for value in ratio(values, of))
    middle = y + BAR / 2
    yield f'<rect x="{LEFT}" y="{y:.1f}" width="{median - LEFT:.1f}" height="{BAR - 2}" class="{kind}"/>'
    yield f'<path d="M{least:.1f} {middle - 1:.1f}H{most:.1f}" class="spread"/>'
    shade = "" if kind == "sluice" else ' class="faint"'
    yield f'<text x="{max(most, median) + 6:.1f}" y="{y + BAR - 3:.1f}"{shade}>{number(statistics.median(values))} µs</text>'


def legend(y: float) -> Iterator[str]:
    words = {"haproxy": "HAProxy, blind", "envoy": "Envoy, blind", "sluice": "sluice: decodes, judges and logs every message"}
    x = float(EDGE)
    for name, what in words.items():
        yield f'<rect x="{x:.0f}" y="{y - 9:.0f}" width="10" height="10" class="{name}"/><text x="{x + 15:.0f}" y="{y:.0f}">{what}</text>'
        x += 36 + 6.4 * len(what)


def draw(bench: Bench, source: str) -> str:
    """The whole picture; `source` is the name of the file that `bench` was read from. ValueError where nothing can be compared."""
    rows = comparable(bench)
    if not rows:
        raise ValueError("no work was measured through HAProxy, Envoy and sluice")
    row = len(PROXIES) * BAR + GAP
    bottom = TOP + len(rows) * row
    longest = max(ratio(values, found["haproxy"])[2] for _, found in rows for values in found.values())
    scale = (WIDTH - LEFT - RIGHT) / longest
    title = "Processor time per message, as a multiple of HAProxy's"
    machine = bench.machine
    day = f"{bench.at[:10]} at {bench.commit}" if bench.commit else bench.at[:10]
    measured = f"{day}, medians of {bench.rounds} rounds of {bench.seconds:g} s, thin lines from least to most"
    subtitle = f"{machine.processors} processors ({machine.cpu}), {measured}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 40}" role="img" aria-labelledby="title desc">',
        f'<title id="title">{title}</title>',
        f'<desc id="desc">{escape(describe(rows, source))}</desc>',
        f"<style>{STYLE}\n</style>",
        f'<text x="{EDGE}" y="24" class="title">{title}</text>',
        f'<text x="{EDGE}" y="42" class="faint">{escape(subtitle)}</text>',
        *legend(64),
    ]
    for tick in range(1, math.floor(longest) + 1):
        x = LEFT + tick * scale
        parts.append(f'<path d="M{x:.1f} {TOP - 8}V{bottom - 4}" class="{"one" if tick == 1 else "grid"}"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 14}" text-anchor="middle" class="faint">{tick} &#215;</text>')
    for at, (name, found) in enumerate(rows):
        y = float(TOP + at * row)
        parts.append(f'<text x="{LEFT - 10}" y="{y + len(PROXIES) * BAR / 2 + 3:.1f}" text-anchor="end">{escape(name)}</text>')
        for kind, values in found.items():
            parts += bar(kind, values, found["haproxy"], y, scale)
            y += BAR
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    results = Path(sys.argv[1])
    Path(sys.argv[2]).write_text(draw(loaded(results), results.name))
