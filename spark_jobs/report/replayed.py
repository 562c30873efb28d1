"""A backtest (`spark_jobs.backtest`, its `to_json`) as the report shows it: each contender in all, and the topics that it refused most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from spark_jobs.report.facts import NAMES, PUBLISHED, mapping, number, words
from spark_jobs.report.words import MAX_NAME_CHARS, UNKNOWN, amount_text, clean_text, factor_text, pluralise, share_text

MAX_WORST: Final = 10  # topics in the table of those refused most; the rest is in the backtest's own output (a guess)
HEAD: Final = ("quota", "refused", "of bytes", "longest blackout", "reserved")
HEAD_WORST: Final = ("topic", "refused", "longest blackout", "worst client")


@dataclass(frozen=True, slots=True)
class Replayed:
    """`rows` as HEAD names them, `worst` as HEAD_WORST does with (protocol, topic) first."""

    title: str
    rows: tuple[tuple[str, ...], ...]
    worst: tuple[tuple[str, str, str, str, str], ...]
    notes: tuple[str, ...]


def read_replayed(found: Mapping[str, Any] | None) -> Replayed | None:
    """The backtest for the report; None where there is none, or one without totals."""
    totals = mapping(mapping(found).get("totals"))
    if found is None or not totals:
        return None
    days = [clean_text(found[name], 20) for name in ("from", "to") if found.get(name)]
    how = "from the daily states" if found.get("way") == "quick" else "with the limiter's own code"
    topics = [mapping(each) for each in found["topics"]] if isinstance(found.get("topics"), list) else []
    ours = [each for each in topics if each.get("contender") == PUBLISHED and number(each.get("refused"))]
    notes = found.get("notes")
    return Replayed(
        title=f"Replayed {how}" + (f", {' to '.join(days)}" if days else ""),
        rows=tuple((NAMES.get(name, clean_text(name, 60)), *_figures(mapping(each))) for name, each in totals.items()),
        worst=tuple(_worst(each) for each in sorted(ours, key=lambda each: -(number(each.get("refused")) or 0.0))[:MAX_WORST]),
        notes=tuple(clean_text(note, 400) for note in notes) if isinstance(notes, list) else (),
    )


def _figures(each: Mapping[str, Any]) -> tuple[str, ...]:
    reserved = _part(each, "reserved", "offered")
    return (
        share_text(_part(each, "refused", "offered")),
        share_text(_part(each, "refused_bytes", "offered_bytes")),
        _blackout(each),
        UNKNOWN if reserved is None else factor_text(reserved) if reserved else "no limit per topic",
    )


def _part(each: Mapping[str, Any], part: str, whole: str) -> float | None:
    found, of = number(each.get(part)), number(each.get(whole))
    return found / of if found is not None and of else None


def _blackout(each: Mapping[str, Any]) -> str:
    """Seconds with demand in a row in which nothing passed, and where."""
    seconds = number(each.get("blackout"))
    if seconds is None:
        return UNKNOWN
    where = words(each.get("blackout_at"))
    return f"{seconds:,.0f} s" + (f" ({clean_text(where, MAX_NAME_CHARS)})" if where and seconds else "")


def _worst(each: Mapping[str, Any]) -> tuple[str, str, str, str, str]:
    clients = each.get("clients")
    first = mapping(clients[0]) if isinstance(clients, list) and clients else {}
    named = f"{clean_text(first.get('client', ''), 60)}: {amount_text('messages', number(first.get('refused')))}" if first else UNKNOWN
    more = f" and {pluralise(len(clients) - 1, 'other')}" if isinstance(clients, list) and len(clients) > 1 else ""
    refused = share_text(_part(each, "refused", "offered"))
    return str(each.get("protocol", "")), str(each.get("topic", "")), refused, _blackout(each), named + more
