"""The table of all topics, one row each. It can be sorted and searched where scripts run, and is complete where they do not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from spark_jobs.report.digest import Digest, has_moved
from spark_jobs.report.facts import SideFacts, Topic
from spark_jobs.report.markup import escape_html, render_name
from spark_jobs.report.words import factor_text, pluralise, rate_text, share_text

MAX_OPEN_ROWS: Final = (
    300  # rows of the table of all topics that a browser lays out at once; with more the table opens on a click (a guess)
)
ALL: Final = ("topic", "messages", "change", "bytes", "refused, 7 days", "28 days", "reserved, 28 days", "state")


def render_table(found: Digest) -> Iterator[str]:
    """Every topic, one row each; the cells carry their numbers for the script that sorts."""
    rows = found.rows
    if not rows:
        yield "<h2>All topics</h2><p>This snapshot holds no quota.</p>"
        return
    opened = " open" if len(rows) <= MAX_OPEN_ROWS else ""
    yield f"<h2>All topics</h2><details{opened}><summary>{pluralise(len(rows), 'topic')}, those that matter first</summary>"
    yield '<p id="find" hidden><label>Find a topic: <input type="search" autocomplete="off"></label>'
    yield '<span id="found" class=quiet></span></p>'
    yield '<div class=wide><table id="all" class=small><thead><tr>'
    yield "".join(f"<th{' class=n' if 0 < at < len(ALL) - 1 else ''}>{title}" for at, title in enumerate(ALL)) + "</tr></thead><tbody>"
    yield from map(_row, rows)
    yield "</tbody></table></div>"
    if len(found.ranked) > len(rows):
        yield f"<p class=quiet>{pluralise(len(found.ranked) - len(rows), 'topic')} left out here; all are in report.json.</p>"
    yield "</details>"


def _row(topic: Topic) -> str:
    messages, size = topic.side("messages"), topic.side("bytes")
    seven, long = (messages.nights7, messages.nights28) if messages is not None else (None, None)
    refused7, refused28 = (nights.refused() if nights is not None else None for nights in (seven, long))
    factor = messages.factor() if messages is not None else None
    cells = (
        _rate(messages),
        _cell(factor, "?" if factor is None else factor_text(factor) if has_moved(factor) else "same"),
        _rate(size),
        _cell(refused7, share_text(refused7) if refused7 is not None else "?"),
        _cell(refused28, share_text(refused28) if refused28 is not None else "?"),
        _cell(reserved := long.reserved() if long is not None else None, factor_text(reserved) if reserved is not None else "?"),
    )
    state = "new" if topic.is_new else topic.status or ""
    return f"<tr><td class=t>{render_name(topic.protocol, topic.name)}{''.join(cells)}<td>{escape_html(state, 40)}</tr>"


def _rate(side: SideFacts | None) -> str:
    if side is None or side.rate is None:
        return _cell(None, "none")
    return _cell(side.rate, rate_text(side.dimension, side.rate))


def _cell(value: float | None, text: str) -> str:
    """A number for the eye and for the script that sorts."""
    return f'<td class=n data-v="{"" if value is None else f"{min(value, 1e18):.5g}"}">{escape_html(text)}'
