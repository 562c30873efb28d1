"""Pieces of HTML that several parts of the page share. Every text goes through `t`: a topic's name is what some client chose to call it."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from spark_jobs.report.facts import NightFacts
from spark_jobs.report.sentences import night_rows, night_titles
from spark_jobs.report.words import MAX_NAME_CHARS, plain


def t(text: object, most: int | None = None) -> str:
    """Text as HTML: escaped, on one line, without control characters."""
    return escape(plain(text, most))


def name_of(protocol: str, topic: str) -> str:
    return f"{t(topic, MAX_NAME_CHARS)} <small class=quiet>{t(protocol)}</small>"


def nights_table(title: str, seven: NightFacts | None, twenty_eight: NightFacts | None) -> Iterator[str]:
    """What this quota and others refused and reserved, over 7 and 28 nights."""
    first, second = night_titles(seven, twenty_eight)
    caption = f"<caption>{t(title)}</caption>" if title else ""
    yield f"<div class=wide><table class=nights>{caption}<thead>"
    yield f"<tr><th rowspan=2>rate<th colspan=2>{t(first)}<th colspan=2>{t(second)}</tr>"
    yield "<tr><th class=n>refused<th class=n>reserved<th class=n>refused<th class=n>reserved</tr></thead><tbody>"
    for name, *cells in night_rows(seven, twenty_eight):
        yield f"<tr><td>{t(name)}{''.join(f'<td class=n>{t(cell)}' for cell in cells)}</tr>"
    yield "</tbody></table></div>"
