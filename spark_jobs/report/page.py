"""The report as one HTML file: nothing is fetched, and everything is there without its one small script.

Some client chose each topic's name. All text goes through `escape_html`; names never become a link, an id or a class.
The policy in the head lets a browser run this script and use this style (by their hashes) and nothing else, should something slip through.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from limiter.quota_snapshot import Quota
from spark_jobs.report.cards import render_cards
from spark_jobs.report.digest import MAX_CHANGES, MAX_LISTED, Digest
from spark_jobs.report.facts import DIMENSIONS, LISTS, FleetFacts, Topic
from spark_jobs.report.markup import escape_html, nights_table, render_name
from spark_jobs.report.needs import NOTHING, THEN, Need, command, list_needs, list_notes
from spark_jobs.report.replayed import HEAD, HEAD_WORST, Replayed
from spark_jobs.report.sentences import (
    FORMULA,
    LEGEND,
    SENDER,
    change_reason,
    change_text,
    changes_text,
    count_of,
    expected_share,
    fleet_line,
    heading,
    is_over_target,
    origin,
    published_text,
    words_text,
)
from spark_jobs.report.style import SCRIPT, STYLE
from spark_jobs.report.table import render_table
from spark_jobs.report.tomorrow import expected_text, read_expected, refused_rows, title
from spark_jobs.report.words import pluralise

TOPIC: Final = "topic <small>(protocol)</small>"
MAX_OPEN_CHANGES: Final = 15  # changes that are shown at once; the others open on a click (a guess: one screen)


def render_page(found: Digest) -> str:
    """The whole page."""
    return "\n".join((*_head(found.fleet), *_body(found), "</main></body></html>", ""))


def hash_of(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _head(fleet: FleetFacts) -> Iterator[str]:
    policy = (
        f"default-src 'none'; style-src {hash_of(STYLE)}; script-src {hash_of(SCRIPT)}; img-src data:; base-uri 'none'; form-action 'none'"
    )
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    yield '<meta name="viewport" content="width=device-width,initial-scale=1"><meta name="referrer" content="no-referrer">'
    yield f'<title>{escape_html(heading(fleet))}</title><link rel="icon" href="data:,"><style>{STYLE}</style></head><body><main>'


def _body(found: Digest) -> Iterator[str]:
    fleet = found.fleet
    yield f"<h1>{escape_html(heading(fleet))}</h1>"
    figure = read_expected(fleet)
    said, missed = escape_html(expected_share(fleet)), None if figure is None else is_over_target(fleet, figure.share)
    marked = said if missed is None else f"<b class={'bad' if missed else 'good'}>{said}</b>"
    yield f"<p class=line>{_mark_up(fleet_line(fleet)).replace(said.replace(' %', '&nbsp;%'), marked.replace(' %', '&nbsp;%'), 1)}</p>"
    yield f"<p class='quiet small'>{_mark_up(words_text(fleet))}</p>"
    if found.outcome and not found.guard_rails:  # they say it below
        yield f"<p><b>{_mark_up(published_text(found.gateways, found.outcome))}</b></p>"
    yield "<h2>What needs me?</h2>"
    asked = list_needs(found)
    if asked:
        yield f"<ol>{''.join(map(_need, asked))}</ol><p>{THEN}<br><code>{_keep_words_whole(command(found))}</code></p>"
    else:
        yield f"<p><b>{NOTHING}</b></p>"
    yield from (f"<p>{_mark_up(note)}</p>" for note in list_notes(found))
    yield f"<h2>{escape_html(title(fleet))}</h2><p>{_mark_up(expected_text(fleet))} {_mark_up(SENDER)}</p>"
    yield from _refused(found)
    yield from _changes(found)
    yield f"<p class='quiet small'>{escape_html(origin(fleet))}</p>"
    if any(fleet.lists.values()):
        yield "<h2>Topics with a state of their own</h2>"
    for name in LISTS:
        yield from _list(fleet, name)
    yield from _fleet_nights(found)
    if found.backtest is not None:
        yield from _replayed(found.backtest)
    yield from render_cards(found)
    yield from render_table(found)
    yield "<h2>What the words mean</h2><dl class=small>"
    yield from (f"<dt>{escape_html(word)}</dt><dd>{escape_html(meaning)}</dd>" for word, meaning in LEGEND)
    yield f"</dl><script>{SCRIPT}</script>"


def _mark_up(sentence: str) -> str:
    """A sentence of ours as HTML: text between backticks is to be typed, and a number keeps its sign."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape_html(sentence)).replace(" %", "&nbsp;%")


def _keep_words_whole(typed: str) -> str:
    """A command whose lines break between its words alone."""
    return " ".join(f"<span>{escape_html(word)}</span>" for word in typed.split(" "))


def _need(need: Need) -> str:
    return (
        f"<li class=note>{_mark_up(need.what)}<br><b>If nothing is done:</b> {_mark_up(need.otherwise)}<br><b>Do:</b> {_mark_up(need.way)}"
    )


def _refused(found: Digest) -> Iterator[str]:
    """The topics that the figure is about."""
    head, rows, rest = refused_rows(found.fleet, found.ranked)
    if not rows:
        return
    yield f"<div class=wide><table><thead><tr>{''.join(f'<th>{each}' for each in (TOPIC, *head[1:]))}</tr></thead><tbody>"
    for topic, cells in rows:
        yield f"<tr><td class=t>{render_name(topic.protocol, topic.name)}{''.join(f'<td>{escape_html(cell)}' for cell in cells)}</tr>"
    yield f"</tbody></table></div><p class=quiet>{rest}</p>"


def _changes(found: Digest) -> Iterator[str]:
    yield f"<h2>Why did my quota change?</h2><p>{escape_html(changes_text(found.fleet, found.changed))} {FORMULA}</p>"
    if not found.changed and not found.removed:
        known = found.fleet.has_before or any(side.before_rate is not None for topic in found.ranked for side in topic.sides)
        yield f"<p>{'No quota changes.' if known else 'The quotas before these are not known yet, so no change can be shown.'}</p>"
        return
    if found.changed:
        yield from _change_table(found.changed[:MAX_OPEN_CHANGES])
        if len(found.changed) > MAX_OPEN_CHANGES:
            more = found.changed[MAX_OPEN_CHANGES:MAX_CHANGES]
            yield f"<details><summary>{pluralise(len(more), 'smaller change')}</summary>"
            yield from _change_table(more)
            yield "</details>"
        if len(found.changed) > MAX_CHANGES:
            left = pluralise(len(found.changed) - MAX_CHANGES, "change")
            yield f"<p class=quiet>{left} left out here, all smaller; they are in report.json, and in the table of all topics below.</p>"
    if found.removed:
        yield f"<p>{pluralise(len(found.removed), 'quota')} removed: {_names(found.removed)}.</p>"


def _change_table(changed: Sequence[Topic]) -> Iterator[str]:
    yield f"<div class=wide><table class=stack><thead><tr><th>{TOPIC}<th>messages<th>bytes<th>why</tr></thead><tbody>"
    yield from (
        f"<tr><td class=t>{render_name(topic.protocol, topic.name)}{' <span class=tag>new</span>' if topic.is_new else ''}"
        f"{_change_cell(topic, 'messages')}{_change_cell(topic, 'bytes')}<td class=w>{escape_html(change_reason(topic))}</tr>"
        for topic in changed
    )
    yield "</tbody></table></div>"


def _change_cell(topic: Topic, dimension: str) -> str:
    side = topic.side(dimension)
    return f"<td data-l={dimension}>{escape_html(change_text(side)) if side is not None else 'no quota'}"


def _names(quotas: Iterable[Quota]) -> str:
    listed = list(quotas)
    more = f" and {len(listed) - MAX_LISTED:,} more, in report.json" if len(listed) > MAX_LISTED else ""
    return ", ".join(render_name(quota.protocol, quota.topic) for quota in listed[:MAX_LISTED]) + more


def _fleet_nights(found: Digest) -> Iterator[str]:
    fleet = found.fleet
    yield "<h2>All topics together, out of sample</h2>"
    if not fleet.nights7 and not fleet.nights28:
        yield "<p>Not known yet: a quota is judged on the day after its night, so the first figures come with the second night.</p>"
    else:
        for dimension in DIMENSIONS:
            if dimension in fleet.nights7 or dimension in fleet.nights28:
                yield from nights_table(dimension.capitalize(), fleet.nights7.get(dimension), fleet.nights28.get(dimension))
    if found.judged:
        yield f"<p class='quiet small'>{escape_html(found.judged, 400)}</p>"


def _replayed(found: Replayed) -> Iterator[str]:
    """The backtest's results for each contender, and for the topics that the published quotas refused most."""
    yield f"<h2>{escape_html(found.title)}</h2><div class=wide><table><thead><tr>{_heads(HEAD)}</tr></thead><tbody>"
    yield from (
        f"<tr><td>{escape_html(name)}{''.join(f'<td class=n>{escape_html(cell)}' for cell in cells)}</tr>" for name, *cells in found.rows
    )
    yield "</tbody></table></div>"
    if found.worst:
        yield f"<h3>Refused most</h3><div class=wide><table><thead><tr>{_heads(HEAD_WORST)}</tr></thead><tbody>"
        for protocol, topic, *cells in found.worst:
            yield f"<tr><td class=t>{render_name(protocol, topic)}{''.join(f'<td class=n>{escape_html(cell)}' for cell in cells)}</tr>"
        yield "</tbody></table></div>"
    yield from (f"<p class='quiet small'>{escape_html(note)}</p>" for note in found.notes)


def _heads(titles: Sequence[str]) -> str:
    return "".join(f"<th{' class=n' if at else ''}>{title}" for at, title in enumerate(titles))


def _list(fleet: FleetFacts, name: str) -> Iterator[str]:
    listed = fleet.lists[name]
    if not listed:
        return
    yield f"<details><summary>{name.capitalize()}: {count_of(fleet, name)}</summary><div class=wide><table><tbody>"
    yield from (
        f"<tr><td class=t>{render_name(protocol, topic)}<td class=w>{escape_html(reason, 400)}</tr>"
        for protocol, topic, reason in listed[:MAX_LISTED]
    )
    yield "</tbody></table></div>"
    if len(listed) > MAX_LISTED:
        yield f"<p class=quiet>{len(listed) - MAX_LISTED:,} more are in report.json.</p>"
    yield "</details>"
