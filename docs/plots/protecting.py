"""A picture of one cap and four topics: first come first served, and shared. Simulated with the limiter itself.

    python docs/plots/protecting.py            # writes docs/images/protecting-topics.svg

As in `algorithms.py` the limiter's clock is an argument, so the picture is the same every time; `tests/contracts/test_protecting_plot.py`
compares the file with what this draws.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from limiter.judge import Judge  # noqa: E402  -- run as a script, the repository is not on the path before
from limiter.limits import SECOND, Limit, Rate  # noqa: E402
from limiter.request import Request  # noqa: E402
from limiter.rules.rule_set import Match, Rule, RuleSet  # noqa: E402
from limiter.topics import rocketmq_topic  # noqa: E402

CAP: Final = 100  # messages per second
LENGTH: Final = 36  # seconds
STEP_NS: Final = 5_000_000
BIN_S: Final = 0.5  # what a point of a line counts
BEGIN: Final = 1000 * SECOND

# topic: (from second, to second, messages a second)
DEMAND: Final[dict[str, tuple[tuple[float, float, int], ...]]] = {
    "payments": ((0, 36, 20),),
    "orders": ((0, 12, 30), (12, 18, 200), (24, 36, 30)),
    "mail": ((0, 36, 15),),
    "debug": ((0, 6, 10), (6, 30, 2000), (30, 36, 10)),
}
LIMIT: Final = Limit(messages=Rate(CAP), messages_burst=CAP // 2)
BUCKET: Final = (Rule("broker", per="rule", limit=LIMIT, open_for_ns=0),)
SHARED: Final = (
    Rule("broker", per="listener", limit=LIMIT),
    Rule("payments", Match(topic="payments"), protected=True),
    Rule("orders", Match(topic="orders"), weight=3),
)
PANELS: Final = (
    ("One bucket, first come first served", BUCKET),
    ("The same cap, shared: payments protected, orders weight 3", SHARED),
)


def arriving(topic: str, step: int) -> int:
    begin, end = step * STEP_NS, (step + 1) * STEP_NS
    count = 0
    for since, until, rate in DEMAND[topic]:
        since_ns = int(since * SECOND)
        first, last = max(begin, since_ns), min(end, int(until * SECOND))
        if first < last:
            count += rate * (last - since_ns) // SECOND - rate * (first - since_ns) // SECOND
    return count


def passed(rules: tuple[Rule, ...]) -> dict[str, list[float]]:
    """Messages per second that pass, per topic and bin. Whoever comes first in a step changes from step to step."""
    judge = Judge(RuleSet(rules))
    origin = judge.origin("rocketmq", "rocket", "10.0.0.7", None)
    topics = list(DEMAND)
    keys = {topic: judge.key(origin, topic.encode(), rocketmq_topic(topic.encode())) for topic in topics}
    rates = {topic: [0.0] * int(LENGTH / BIN_S) for topic in topics}
    for step in range(LENGTH * SECOND // STEP_NS):
        for turn in range(len(topics)):
            topic = topics[(step + turn) % len(topics)]
            count = arriving(topic, step)
            if count:
                request = Request(keys[topic], count, 1, 200)
                judge.decide([request], BEGIN + step * STEP_NS)
                rates[topic][int(step * STEP_NS / (BIN_S * SECOND))] += int(request.passed) / BIN_S
    return rates


# ---- drawing -----------------------------------------------------------------------------------------------------------

WIDTH: Final = 920
LEFT: Final = 60
RIGHT: Final = 100
TOPS: Final = (74, 302)
PANEL: Final = 170
HEIGHT: Final = 532
MOST: Final = 100  # messages per second, at the top of a panel

STYLE: Final = """
  svg { color-scheme: light dark; }
  text { font: 12px system-ui, sans-serif; fill: #24292f; }
  .title { font-size: 15px; font-weight: 600; }
  .faint { fill: #57606a; }
  .grid { stroke: #d0d7de; stroke-width: 1; fill: none; }
  .line { stroke-width: 2; fill: none; stroke-linejoin: round; }
  .payments { stroke: #1a7f37; } .orders { stroke: #0969da; } .mail { stroke: #8250df; } .debug { stroke: #bf8700; }
  text.payments { fill: #1a7f37; stroke: none; } text.orders { fill: #0969da; stroke: none; }
  text.mail { fill: #8250df; stroke: none; } text.debug { fill: #bf8700; stroke: none; }
  .wanted { stroke-width: 1; stroke-dasharray: 3 3; fill: none; opacity: .8; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .faint { fill: #9198a1; }
    .grid { stroke: #30363d; }
  }"""


def across(second: float) -> float:
    return LEFT + second * (WIDTH - LEFT - RIGHT) / LENGTH


def down(top: int, rate: float) -> float:
    return top + PANEL - min(rate, MOST) * PANEL / MOST


def wanted(topic: str, top: int) -> str:
    """The topic's demand, as far as it fits into the panel."""
    pieces = [
        f"M{across(since):.1f} {down(top, rate):.1f}H{across(until):.1f}" for since, until, rate in DEMAND[topic] if rate <= MOST
    ]  # above it there is no line to draw
    return f'<path class="wanted {topic}" d="{"".join(pieces)}"/>'


def line(topic: str, rates: list[float], top: int) -> str:
    points = " ".join(f"{across((at + 0.5) * BIN_S):.1f},{down(top, rate):.1f}" for at, rate in enumerate(rates))
    return f'<polyline class="line {topic}" points="{points}"/>'


def spread(heights: dict[str, float]) -> dict[str, float]:
    """Labels at these heights, pushed apart."""
    placed: dict[str, float] = {}
    last = -100.0
    for topic, height in sorted(heights.items(), key=lambda pair: pair[1]):
        last = placed[topic] = max(height, last + 14)
    return placed


def panel(title: str, rules: tuple[Rule, ...], top: int) -> Iterator[str]:
    yield f'<text x="{LEFT}" y="{top - 12}">{title}</text>'
    for rate in range(0, MOST + 1, 25):
        yield f'<path class="grid" d="M{LEFT} {down(top, rate):.1f}H{WIDTH - RIGHT}"/>'
        yield f'<text class="faint" x="{LEFT - 8}" y="{down(top, rate) + 4:.1f}" text-anchor="end">{rate}/s</text>'
    for second in range(0, LENGTH + 1, 6):
        yield f'<text class="faint" x="{across(second):.1f}" y="{top + PANEL + 16}" text-anchor="middle">{second} s</text>'
    courses = passed(rules)
    for topic, rates in courses.items():
        yield wanted(topic, top)
        yield line(topic, rates, top)
    labels = spread({topic: down(top, rates[-1]) for topic, rates in courses.items()})
    for topic, height in labels.items():
        yield f'<text class="{topic}" x="{WIDTH - RIGHT + 8}" y="{height + 4:.1f}">{topic}</text>'


def draw() -> str:
    subtitle = "cap 100/s; debug floods with 2000/s from 6 s to 30 s; orders wants 200/s from 12 s to 18 s, then nothing until 24 s"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="One cap, four topics">',
        f"<style>{STYLE}</style>",
        f'<text class="title" x="{LEFT}" y="24">One cap, four topics: what passes of each (dashed: what it asks for)</text>',
        f'<text class="faint" x="{LEFT}" y="42">{subtitle}</text>',
    ]
    for (title, rules), top in zip(PANELS, TOPS, strict=True):
        lines.extend(panel(title, rules, top))
    return "\n".join([*lines, "</svg>"]) + "\n"


if __name__ == "__main__":
    (ROOT / "docs" / "images" / "protecting-topics.svg").write_text(draw())
