"""One topic for a terminal of 80 columns: the quota and its reason, a chart of 28 days, and refused and reserved by it and by others."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Final

from limiter.quota_snapshot import Snapshot
from spark_jobs.report.digest import has_moved
from spark_jobs.report.facts import LISTS, SideFacts, Topic
from spark_jobs.report.reading import read_fleet, read_topics
from spark_jobs.report.scale import DAYS, Scale, place_days
from spark_jobs.report.sentences import (
    dimensions_of,
    facts_line,
    gateways_text,
    night_rows,
    night_titles,
    origin,
    quota_text,
    reason_of,
)
from spark_jobs.report.words import MAX_NAME_CHARS, TIMES, UNKNOWN, amount_text, clean_text, factor_text, pluralise, rate_text, short_day

WIDTH: Final = 80
ROWS: Final = 9  # lines of the chart
LABEL: Final = 12  # columns left of the chart
EIGHTHS: Final = " ▁▂▃▄▅▆▇█"
ASCII: Final = str.maketrans(
    {**dict.fromkeys("▂▃▄▅▆▇█", "#"), "▁": "_", "│": "|", "━": "=", "─": "-", "└": "+", TIMES: "x", "→": ">", "…": "~"}
)


def render_topic(snapshot: Snapshot, topic: str, protocol: str | None = None) -> list[str]:
    """The lines about `topic`: one block for each protocol that has it; no line where it is in no list either."""
    fleet = read_fleet(snapshot, None, ())
    found = [each for each in read_topics(snapshot, None) if each.name == topic and protocol in {None, each.protocol}]
    listed = {
        (owner, name): [(kind, reason)]
        for kind in LISTS
        for owner, name, reason in fleet.lists[kind] or ()
        if name == topic and protocol in {None, owner} and not any(each.protocol == owner for each in found)
    }
    lines: list[str] = []
    for each in found:
        lines += [*_topic(each), ""]
    for (owner, name), states in listed.items():
        said = "; ".join(f"{kind}: {clean_text(reason, 400)}" for kind, reason in states)
        lines += [*_wrap(f"{clean_text(name, MAX_NAME_CHARS)} ({owner}) has no quota. {said}"), ""]
    return [*lines, *_wrap(origin(fleet))] if lines else []


def _wrap(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


def _topic(topic: Topic) -> Iterator[str]:
    state = f", {topic.status}" if topic.status not in {None, "quota"} else ""
    yield from _wrap(f"{clean_text(topic.name, MAX_NAME_CHARS)} ({topic.protocol}{clean_text(state, 40)})")
    yield from _wrap(f"why: {reason_of(topic)}")
    if topic.days is not None:
        yield f"learned from {pluralise(topic.days, 'day')} with traffic"
    for side in dimensions_of(topic):
        yield ""
        yield from _side(side)
    if topic.gateways:
        yield ""
        yield from _wrap(f"gateways, by demand of 7 days: {gateways_text(topic)}")


def _side(side: SideFacts) -> Iterator[str]:
    factor = side.factor()
    was = ""
    if side.before_rate is not None:
        moved = factor is not None and has_moved(factor)
        was = f"; was {rate_text(side.dimension, side.before_rate)} ({factor_text(factor)})" if moved else "; the same as before"
    yield from _wrap(f"{side.dimension}: {quota_text(side)}{was}")
    yield from _wrap(facts_line(side), "  ")
    yield from chart_lines(side)
    if side.nights7 is None and side.nights28 is None:
        yield from _wrap(f"refused out of sample: {UNKNOWN}; the first figures come with the night after a quota's first", "  ")
        return
    yield ""
    yield from nights_lines(side)


def chart_lines(side: SideFacts) -> list[str]:
    """The chart: two columns a day, the mean as a block, the busiest second as a line, the quota as a heavy line across."""
    days = place_days(side.series)
    if not days:
        return [f"  demand of past days: {UNKNOWN}"]
    scale = Scale(tuple(day for _, day in days), side.rate, side.dimension)
    cells = [[" "] * (2 * DAYS) for _ in range(ROWS)]  # lines of cells, from the bottom
    for at, day in days:
        filled = round(scale.part(day.mean) * ROWS * 8) if day.mean else 0
        filled = max(filled, 1) if day.mean else 0
        for row in range(ROWS):
            if day.busiest and (row + 0.5) / ROWS <= scale.part(day.busiest):
                cells[row][2 * at] = "│"
            if filled > 8 * row:
                cells[row][2 * at] = EIGHTHS[min(8, filled - 8 * row)]
        if day.quota is not None:
            row = _row(scale, day.quota)
            cells[row][2 * at : 2 * at + 2] = "━━"
    if side.rate is not None:
        cells[_row(scale, side.rate)][2 * DAYS - 1] = "━"
    labels = {_row(scale, value): scale.label(value) for value in scale.ticks()}
    lines = [f"{labels.get(row, ''):>{LABEL}} │ {''.join(cells[row]).rstrip()}" for row in range(ROWS - 1, -1, -1)]
    refused = [" "] * DAYS
    for at, day in days:
        if day.refused:
            refused[at] = TIMES
    most = max((day.refused for _, day in days if day.refused is not None), default=None)
    first, last = short_day(days[0][1].day), short_day(days[-1][1].day)
    start = 2 * days[0][0]
    dates = f"{'':{start}}{first}"
    lines += [
        f"{'':{LABEL}} └─{'─' * (2 * DAYS)}",
        f"{'refused':>{LABEL}}   {' '.join(refused)}".rstrip(),
        f"{'':{LABEL}}   {dates:{2 * DAYS - len(last)}}{last if len(days) > 1 else ''}".rstrip(),
        *_wrap(
            f"█ mean of the day, │ busiest second, ━ quota, {TIMES} refused (most in a day: {amount_text(side.dimension, most)})"
            + ("; logarithmic axis" if scale.logarithmic else ""),
            "  ",
        ),
    ]
    return lines


def _row(scale: Scale, value: float) -> int:
    return min(ROWS - 1, int(scale.part(value) * ROWS))


def nights_lines(side: SideFacts) -> list[str]:
    """The table of refused and reserved messages."""
    first, second = night_titles(side.nights7, side.nights28)
    lines = [f"  {'':20} {first:26} {second}".rstrip(), f"  {'':20} {'refused':15}{'reserved':11} {'refused':15}reserved"]
    for name, *cells in night_rows(side.nights7, side.nights28):
        shown = [cell if cell != UNKNOWN else "?" for cell in cells]
        lines.append(f"  {name:20} {shown[0]:15}{shown[1]:11} {shown[2]:15}{shown[3]}".rstrip())
    return lines


def for_encoding(line: str, encoding: str | None) -> str:
    """`line`, drawn with ASCII where the terminal has no other signs."""
    try:
        line.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return line.translate(ASCII).encode("ascii", "replace").decode()
    return line
