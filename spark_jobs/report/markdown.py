"""The report as Markdown, for a chat or a ticket: the fleet, the biggest changes, the lists, and a table of the topics that matter.

Names are escaped for Markdown and for the HTML that Markdown may hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from spark_jobs.report.digest import MAX_CHANGES, MAX_LISTED, Digest
from spark_jobs.report.facts import DIMENSIONS, LISTS, NightFacts, Topic
from spark_jobs.report.needs import NOTHING, THEN, Need, command, list_needs, list_notes
from spark_jobs.report.replayed import HEAD
from spark_jobs.report.sentences import (
    FORMULA,
    LEGEND,
    SENDER,
    change_reason,
    change_text,
    changes_text,
    count_of,
    fleet_line,
    heading,
    night_rows,
    night_titles,
    origin,
    published_text,
    words_text,
)
from spark_jobs.report.tomorrow import expected_text, refused_rows, title
from spark_jobs.report.words import MAX_NAME_CHARS, UNKNOWN, clean_text, factor_text, pluralise, rate_text, share_text

_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]()#+\-.!|~:@])")


def escape_markdown(text: object, most: int | None = None) -> str:
    """Text as Markdown: characters with a meaning are escaped."""
    found = clean_text(text, most).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", found)


def escape_sentence(text: str) -> str:
    """A sentence of ours with names in it: readable, but no cell, tag, link or emphasis."""
    found = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|~])", r"\\\1", found).replace("://", ":\u200b//")


def render_markdown(found: Digest) -> str:
    """The whole file."""
    return "\n".join((*_lines(found), ""))


def _lines(found: Digest) -> Iterator[str]:
    fleet = found.fleet
    yield from (f"# {heading(fleet)}", "", escape_sentence(fleet_line(fleet)), "", escape_sentence(words_text(fleet)), "")
    if found.outcome and not found.guard_rails:
        yield from (f"**{_mark_typed(published_text(found.gateways, found.outcome))}**", "")
    yield from ("## What needs me?", "")
    asked = list_needs(found)
    for at, need in enumerate(asked, 1):
        yield from _need(at, need)
    yield from (THEN, "", f"    {command(found)}", "") if asked else (f"**{NOTHING}**", "")
    for note in list_notes(found):
        yield from (_mark_typed(note), "")
    yield from (f"## {title(fleet)}", "", escape_sentence(expected_text(fleet)), "", SENDER, "")
    head, rows, rest = refused_rows(fleet, found.ranked)
    if rows:
        yield from (f"| {' | '.join(head)} |", "|---|---|---|---|")
        yield from (f"| {_name(topic)} | {' | '.join(map(escape_sentence, cells))} |" for topic, cells in rows)
        yield from ("", rest)
    yield from ("", "## Why did my quota change?", "", f"{changes_text(fleet, found.changed)} {FORMULA}", "")
    yield from _changes(found)
    yield from ("", escape_sentence(origin(fleet)), "", "## All topics together, out of sample", "")
    if not fleet.nights7 and not fleet.nights28:
        yield "Not known yet: the first figures come with the second night."
    for dimension in DIMENSIONS:
        if dimension in fleet.nights7 or dimension in fleet.nights28:
            yield from _nights(dimension, fleet.nights7.get(dimension), fleet.nights28.get(dimension))
    if found.judged:
        yield from ("", escape_sentence(clean_text(found.judged, 400)))
    if found.backtest is not None:
        yield from ("", f"## {escape_sentence(found.backtest.title)}", "", f"| {' | '.join(HEAD)} |", "|---|---|---|---|---|")
        yield from (f"| {' | '.join(escape_sentence(cell) for cell in row)} |" for row in found.backtest.rows)
        yield from (f"\n{escape_sentence(note)}" for note in found.backtest.notes)
    for name in LISTS:
        listed = fleet.lists[name]
        if listed:
            yield from ("", f"## {name.capitalize()}: {count_of(fleet, name)}", "")
            yield from (
                f"* {escape_markdown(topic, MAX_NAME_CHARS)} ({escape_markdown(protocol)}): {escape_sentence(clean_text(reason, 400))}"
                for protocol, topic, reason in listed[:MAX_LISTED]
            )
            if len(listed) > MAX_LISTED:
                yield f"* and {len(listed) - MAX_LISTED:,} more, in report.json"
    yield from _topics(found)
    yield from ("", "## What the words mean", "")
    yield from (f"* **{word}**: {meaning}" for word, meaning in LEGEND)


def _mark_typed(sentence: str) -> str:
    """A sentence of ours; text between backticks is to be typed."""
    parts = sentence.split("`")
    return "".join(f"`{part}`" if at % 2 and at + 1 < len(parts) else escape_sentence(part) for at, part in enumerate(parts))


def _need(at: int, need: Need) -> Iterator[str]:
    yield f"{at}. {_mark_typed(need.what)}"
    yield f"   **If nothing is done:** {_mark_typed(need.otherwise)}"
    yield from (f"   **Do:** {_mark_typed(need.way)}", "")


def _changes(found: Digest) -> Iterator[str]:
    if not found.changed:
        yield "No change of a quota is known."
        return
    yield from ("| topic | messages | bytes | why |", "|---|---|---|---|")
    for topic in found.changed[:MAX_CHANGES]:
        cells = [
            escape_sentence(change_text(side)) if (side := topic.side(dimension)) is not None else "no quota" for dimension in DIMENSIONS
        ]
        yield f"| {_name(topic)} | {cells[0]} | {cells[1]} | {escape_sentence(change_reason(topic))} |"
    if len(found.changed) > MAX_CHANGES:
        yield from ("", f"{pluralise(len(found.changed) - MAX_CHANGES, 'smaller change')} left out here; all are in report.json.")
    if found.removed:
        named = ", ".join(
            f"{escape_markdown(quota.topic, MAX_NAME_CHARS)} ({escape_markdown(quota.protocol)})" for quota in found.removed[:MAX_LISTED]
        )
        yield from ("", f"{pluralise(len(found.removed), 'quota')} removed: {named}.")


def _nights(dimension: str, seven: NightFacts | None, twenty_eight: NightFacts | None) -> Iterator[str]:
    first, second = night_titles(seven, twenty_eight)
    yield from ("", f"| {dimension} | refused, {first} | reserved | refused, {second} | reserved |", "|---|---|---|---|---|")
    yield from (f"| {' | '.join(escape_sentence(cell) for cell in row)} |" for row in night_rows(seven, twenty_eight))


def _topics(found: Digest) -> Iterator[str]:
    yield from ("", "## Topics", "")
    left = len(found.ranked) - len(found.charted)
    if left:
        yield from (f"The {len(found.charted)} topics that matter most; {left:,} more are in report.json.", "")
    yield from (
        "| topic | messages | forecast | peakiness | refused, 7 days | refused, 28 | reserved, 28 | bytes |",
        "|---|---|---|---|---|---|---|---|",
    )
    for topic in found.charted:
        side, size = topic.side("messages"), topic.side("bytes")
        seven, long = (side.nights7, side.nights28) if side is not None else (None, None)
        cells = (
            rate_text("messages", side.rate) if side is not None and side.pair is not None else "none",
            rate_text("messages", side.forecast if side is not None else None),
            UNKNOWN if side is None or side.peakiness is None else factor_text(side.peakiness),
            share_text(seven.refused() if seven is not None else None),
            share_text(long.refused() if long is not None else None),
            factor_text(long.reserved() if long is not None else None),
            rate_text("bytes", size.rate) if size is not None and size.pair is not None else "none",
        )
        yield f"| {_name(topic)} | {' | '.join(escape_sentence(cell) for cell in cells)} |"


def _name(topic: Topic) -> str:
    return f"{escape_markdown(topic.name, MAX_NAME_CHARS)} ({escape_markdown(topic.protocol)}{', new' if topic.is_new else ''})"
