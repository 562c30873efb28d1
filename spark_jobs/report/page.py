"""The report as one HTML file: nothing is fetched, and everything is there without its one small script.

A topic's name is what some client chose to call it. All text goes through `t`, which escapes; names never become a link, an id or a class.
The policy in the head lets a browser run this script and use this style (by their hashes) and nothing else, should something slip through.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from limiter.quota_snapshot import Quota
from spark_jobs.report.cards import cards
from spark_jobs.report.digest import MAX_CHANGES, MAX_LISTED, MAX_REFUSED, Digest
from spark_jobs.report.facts import DIMENSIONS, LISTS, Fleet, Topic
from spark_jobs.report.markup import name_of, nights_table, t
from spark_jobs.report.replayed import HEAD, HEAD_WORST, Replayed
from spark_jobs.report.sentences import (
    LEGEND,
    LOOK_FIRST,
    change_reason,
    change_text,
    count_of,
    expected_text,
    fleet_line,
    heading,
    horizons,
    look_text,
    origin,
    over,
    refused_text,
    warnings,
)
from spark_jobs.report.style import SCRIPT, STYLE
from spark_jobs.report.table import table
from spark_jobs.report.words import UNKNOWN, pluralise, share, three

MAX_OPEN_CHANGES: Final = 15  # changes that stand there at once; the others open on a click (a guess: one screen)


def page(found: Digest) -> str:
    """The whole file."""
    return "\n".join((*_head(found.fleet), *_body(found), "</main></body></html>", ""))


def hash_of(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _head(fleet: Fleet) -> Iterator[str]:
    policy = (
        f"default-src 'none'; style-src {hash_of(STYLE)}; script-src {hash_of(SCRIPT)}; img-src data:; base-uri 'none'; form-action 'none'"
    )
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    yield '<meta name="viewport" content="width=device-width,initial-scale=1"><meta name="referrer" content="no-referrer">'
    yield f'<title>{t(heading(fleet))}</title><link rel="icon" href="data:,"><style>{STYLE}</style></head><body><main>'


def _body(found: Digest) -> Iterator[str]:
    fleet = found.fleet
    yield f"<h1>{t(heading(fleet))}</h1>"
    yield f"<p class=line>{t(fleet_line(fleet)).replace(' %', '&nbsp;%')}</p>"
    if found.outcome:
        yield f"<p><b>{t(found.outcome, 400)}</b></p>"
    if found.judged:
        yield f"<p class='quiet small'>{t(found.judged, 400)}</p>"
    yield from _tiles(fleet)
    yield "<h2>What needs me?</h2>"
    needs = warnings(fleet, found.guard_rails)
    yield from (f"<p class=note>{t(sentence)}</p>" for sentence in needs)
    if not needs:
        yield "<p>Nothing: no rail was tripped, no gateway is missing, and no more was refused than meant.</p>"
    if found.first:
        yield f"<p>{LOOK_FIRST}</p><ol>"
        yield from (f"<li><b>{name_of(topic.protocol, topic.name)}</b>: {t(look_text(topic), 600)}" for topic in found.first)
        yield "</ol>"
    yield f"<h2>What will be refused tomorrow?</h2><p>{t(expected_text(fleet)).replace(' %', '&nbsp;%')}</p>"
    yield from _refused(found)
    yield from _changes(found)
    yield f"<p class='quiet small'>{t(origin(fleet))}</p>"
    if any(fleet.lists.values()):
        yield "<h2>Topics with a state of their own</h2>"
    for name in LISTS:
        yield from _list(fleet, name)
    yield from _fleet_nights(found)
    if found.backtest is not None:
        yield from _replayed(found.backtest)
    yield from cards(found)
    yield from table(found)
    yield "<h2>What the words mean</h2><dl class=small>"
    yield from (f"<dt>{t(word)}</dt><dd>{t(meaning)}</dd>" for word, meaning in LEGEND)
    yield f"</dl><script>{SCRIPT}</script>"


def _tiles(fleet: Fleet) -> Iterator[str]:
    unknown = " class=unknown"
    k, size = fleet.k["messages"], fleet.k["bytes"]
    bytes_k = f"; bytes {three(size)}" if size is not None and size != k else ""
    missing = len(fleet.missing_gateways) if fleet.missing_gateways is not None else None
    shown = horizons(fleet)[::-1]
    tiles = [
        *((f"<b{_verdict(fleet, part)}>{t(share(part))}</b>", f"refused, {name}; target {share(fleet.target)}") for name, part in shown),
        (f"<b{unknown if k is None else ''}>{t(UNKNOWN if k is None else three(k))}</b>", f"k, the safety factor{bytes_k}"),
        (f"<b>{fleet.topics:,}</b>", "topics with a quota"),
        *((f"<b>{count_of(fleet, name)}</b>", name) for name in LISTS),
        (f"<b{' class=bad' if missing else ''}>{'?' if missing is None else missing}</b>", "gateways missing"),
    ]
    yield "<ul class=tiles>" + "".join(f"<li>{value}<span>{t(label)}</span></li>" for value, label in tiles) + "</ul>"


def _verdict(fleet: Fleet, part: float | None) -> str:
    missed = over(fleet, part)
    return " class=unknown" if part is None else "" if missed is None else " class=bad" if missed else " class=good"


def _refused(found: Digest) -> Iterator[str]:
    """The topics of which the most messages are refused."""
    if not found.refused:
        return
    yield "<div class=wide><table><thead><tr><th>topic<th>refused, by the last 7 nights</tr></thead><tbody>"
    yield from (
        f"<tr><td class=t>{name_of(topic.protocol, topic.name)}<td class=w>{t(refused_text(topic))}</tr>"
        for topic in found.refused[:MAX_REFUSED]
    )
    yield "</tbody></table></div>"
    if len(found.refused) > MAX_REFUSED:
        left = pluralise(len(found.refused) - MAX_REFUSED, "topic")
        yield f"<p class=quiet>{left} with fewer refused messages are in the table of all topics below.</p>"


def _changes(found: Digest) -> Iterator[str]:
    yield "<h2>Why did my quota change?</h2><p class=quiet>The changes that are worth the most messages come first.</p>"
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
    yield "<div class=wide><table class=stack><thead><tr><th>topic<th>messages<th>bytes<th>why</tr></thead><tbody>"
    yield from (
        f"<tr><td class=t>{name_of(topic.protocol, topic.name)}{' <span class=tag>new</span>' if topic.is_new else ''}"
        f"{_change_cell(topic, 'messages')}{_change_cell(topic, 'bytes')}<td class=w>{t(change_reason(topic))}</tr>"
        for topic in changed
    )
    yield "</tbody></table></div>"


def _change_cell(topic: Topic, dimension: str) -> str:
    side = topic.side(dimension)
    return f"<td data-l={dimension}>{t(change_text(side)) if side is not None else 'no quota'}"


def _names(quotas: Iterable[Quota]) -> str:
    listed = list(quotas)
    more = f" and {len(listed) - MAX_LISTED:,} more, in report.json" if len(listed) > MAX_LISTED else ""
    return ", ".join(name_of(quota.protocol, quota.topic) for quota in listed[:MAX_LISTED]) + more


def _fleet_nights(found: Digest) -> Iterator[str]:
    fleet = found.fleet
    yield "<h2>All topics together, out of sample</h2>"
    if not fleet.nights7 and not fleet.nights28:
        yield "<p>Not known yet: a quota is judged on the day after its night, so the first figures come with the second night.</p>"
    else:
        for dimension in DIMENSIONS:
            if dimension in fleet.nights7 or dimension in fleet.nights28:
                yield from nights_table(dimension.capitalize(), fleet.nights7.get(dimension), fleet.nights28.get(dimension))


def _replayed(found: Replayed) -> Iterator[str]:
    """What the backtest says of each contender, and of the topics that the published quotas refused most."""
    yield f"<h2>{t(found.title)}</h2><div class=wide><table><thead><tr>{_heads(HEAD)}</tr></thead><tbody>"
    yield from (f"<tr><td>{t(name)}{''.join(f'<td class=n>{t(cell)}' for cell in cells)}</tr>" for name, *cells in found.rows)
    yield "</tbody></table></div>"
    if found.worst:
        yield f"<h3>Refused most</h3><div class=wide><table><thead><tr>{_heads(HEAD_WORST)}</tr></thead><tbody>"
        for protocol, topic, *cells in found.worst:
            yield f"<tr><td class=t>{name_of(protocol, topic)}{''.join(f'<td class=n>{t(cell)}' for cell in cells)}</tr>"
        yield "</tbody></table></div>"
    yield from (f"<p class='quiet small'>{t(note)}</p>" for note in found.notes)


def _heads(titles: Sequence[str]) -> str:
    return "".join(f"<th{' class=n' if at else ''}>{title}" for at, title in enumerate(titles))


def _list(fleet: Fleet, name: str) -> Iterator[str]:
    listed = fleet.lists[name]
    if not listed:
        return
    yield f"<details><summary>{name.capitalize()}: {count_of(fleet, name)}</summary><div class=wide><table><tbody>"
    yield from (
        f"<tr><td class=t>{name_of(protocol, topic)}<td class=w>{t(reason, 400)}</tr>" for protocol, topic, reason in listed[:MAX_LISTED]
    )
    yield "</tbody></table></div>"
    if len(listed) > MAX_LISTED:
        yield f"<p class=quiet>{len(listed) - MAX_LISTED:,} more are in report.json.</p>"
    yield "</details>"
