"""One card for each topic that matters: the reason of its quota, demand against quota, and the outcomes of other quotas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from spark_jobs.report.chart import render_chart
from spark_jobs.report.digest import Digest, has_moved
from spark_jobs.report.facts import SideFacts, Topic
from spark_jobs.report.markup import escape_html, nights_table, render_name
from spark_jobs.report.sentences import causes_text, change_text, dimensions_of, facts_line, gateways_text, quota_text, reason_of
from spark_jobs.report.words import UNKNOWN, factor_text, pluralise, rate_text

KEY: Final = (
    ("m", "M2 12V4H24V12z", "mean of the day"),
    ("b", "M4 3H22M13 3V12", "busiest second"),
    ("q", "M0 6H26", "quota in force"),
    ("n", "M0 6H26", "new quota"),
    ("r", "M8 12V2H18V12z", "refused"),
)


def render_cards(found: Digest) -> Iterator[str]:
    if not found.charted:
        return
    left = len(found.ranked) - len(found.charted)
    yield "<h2>Topics</h2><p class=quiet>"
    if left:
        yield f"The {len(found.charted)} topics with the biggest changes, the most refused and the most demand."
        yield f"{pluralise(left, 'topic')} without a chart here: all are in the table below, and"
        yield "<code>sluice quotas show TOPIC</code> draws any of them."
    else:
        yield "All topics, those that matter first: the biggest changes, the most refused, the most demand."
    yield "</p><ul class=key>"
    yield from (
        f'<li><svg viewBox="0 0 26 12" aria-hidden="true"><path class="{kind}" d="{path}"/></svg>{name}</li>' for kind, path, name in KEY
    )
    yield "</ul><div class=cards>"
    for topic in found.charted:
        yield from _card(topic)
    yield "</div>"


def _card(topic: Topic) -> Iterator[str]:
    tags = [name for name in (topic.status, "new" if topic.is_new else None) if name and name != "quota"]
    tagged = "".join(f" <span class=tag>{escape_html(name, 40)}</span>" for name in tags)
    yield f"<section class=card><h3>{render_name(topic.protocol, topic.name)}{tagged}</h3>"
    said = [] if topic.status == "quota" and topic.sides and topic.sides[0].forecast is not None else [f"{reason_of(topic)}."]
    said += [f"Since the night before: {moved}."] if (moved := causes_text(topic)) else []
    said += [] if topic.days is None else [f"Learned from {pluralise(topic.days, 'day')} with traffic."]
    yield f"<p class=small>{escape_html(' '.join(said))}</p>"
    for at, side in enumerate(dimensions_of(topic)):
        if at:
            yield f"<details><summary>Bytes: {escape_html(change_text(side))}</summary>"
        yield from _side(side)
        if at:
            yield "</details>"
    if topic.gateways:
        yield f"<p class='quiet small'>Gateways, by demand of 7 days: {escape_html(gateways_text(topic))}</p>"
    yield "</section>"


def _side(side: SideFacts) -> Iterator[str]:
    name = side.dimension.capitalize()
    quota, was, facts = map(escape_html, (quota_text(side), _before_text(side), facts_line(side)))
    yield f"<p class=small><b>{name} {quota}</b>; was {was}<br>{facts}</p>"
    yield render_chart(side) or f"<p class='quiet small'>Demand of past days: {UNKNOWN}.</p>"
    if side.nights7 is not None or side.nights28 is not None:
        yield from nights_table("", side.nights7, side.nights28)
    else:
        yield f"<p class='quiet small'>Refused out of sample: {UNKNOWN}; the first figures come with the night after a quota's first.</p>"


def _before_text(side: SideFacts) -> str:
    if side.before_rate is None:
        return "none" if side.before_known else UNKNOWN
    factor = side.factor()
    if factor is not None and not has_moved(factor):
        return "the same"
    return rate_text(side.dimension, side.before_rate) + (f" ({factor_text(factor)})" if factor is not None else "")
