"""Pieces of HTML that several parts of the page share. Every text goes through `escape_html`: some client chose each topic's name."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from spark_jobs.report.facts import NightFacts
from spark_jobs.report.sentences import night_rows, night_titles
from spark_jobs.report.words import MAX_NAME_CHARS, clean_text


def escape_html(text: object, most: int | None = None) -> str:
    """Text as HTML: escaped, on one line, without control characters."""
    return escape(clean_text(text, most))


def render_name(protocol: str, topic: str) -> str:
    return f"{escape_html(topic, MAX_NAME_CHARS)} <small class=quiet>{escape_html(protocol)}</small>"


def nights_table(title: str, seven: NightFacts | None, twenty_eight: NightFacts | None) -> Iterator[str]:
    """The table of refused and reserved messages of this quota and of others, over 7 and 28 nights."""
    first, second = night_titles(seven, twenty_eight)
    caption = f"<caption>{escape_html(title)}</caption>" if title else ""
    yield f"<div class=wide><table class=nights>{caption}<thead>"
    yield f"<tr><th rowspan=2>rate<th colspan=2>{escape_html(first)}<th colspan=2>{escape_html(second)}</tr>"
    yield "<tr><th class=n>refused<th class=n>reserved<th class=n>refused<th class=n>reserved</tr></thead><tbody>"
    for name, *cells in night_rows(seven, twenty_eight):
        yield f"<tr><td>{escape_html(name)}{''.join(f'<td class=n>{escape_html(cell)}' for cell in cells)}</tr>"
    yield "</tbody></table></div>"
