"""The content of a report, in order: the biggest changes first, and charts for the topics that matter.

All three forms (HTML, Markdown, JSON) are written from one `Digest`, so they say the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest
from typing import Any, Final

from limiter.quota_snapshot import Quota, Snapshot
from spark_jobs.report.facts import LISTS, PUBLISHED, FleetFacts, NightFacts, SideFacts, Topic, mapping, number
from spark_jobs.report.reading import read_fleet, read_topics
from spark_jobs.report.replayed import Replayed, read_replayed
from spark_jobs.report.tomorrow import read_expected
from spark_jobs.report.words import rate_text

MAX_CHARTS: Final = 200  # topics shown with charts; about 12 kB each, so 2.4 MB of the page (measured 2026-11)
FIRST: Final = 3  # topics to look at first: the work of one person in a morning (a guess)
FIRST_PART: Final = 0.01  # part of all refused messages: with less a topic is none of them (a guess)
MAX_CHANGES: Final = 100  # changes at the top of the page; more than anybody reads (a guess)
MAX_LISTED: Final = 100  # topics of one list (held, learning, ...) on the page (a guess)
MAX_ROWS: Final = 10_000  # rows of the table of all topics; about 500 bytes each, so 5 MB (measured 2026-11)
SAME: Final = 1.0005  # a rate that moved less than this is no change: rates have six digits, and three are shown


@dataclass(frozen=True, slots=True)
class Digest:
    """A report before it is written. Orders: `changed` by the messages that the change is worth, `refused` by the messages refused,
    `ranked` by what matters, `removed` by name."""

    fleet: FleetFacts
    ranked: tuple[Topic, ...]  # all topics
    changed: tuple[Topic, ...]
    refused: tuple[Topic, ...]
    removed: tuple[Quota, ...]
    outcome: str | None  # a sentence about what was done with the snapshot
    judged: str | None  # a sentence about what the snapshot would have refused on past days
    guard_rails: tuple[str, ...]
    backtest: Replayed | None
    backtest_totals: Mapping[str, Any]  # totals as in the backtest
    gateways: tuple[str, ...] = ()  # names of those that have the snapshot
    command: tuple[str, ...] = ()  # words of the night's command
    ratio: float = 2.0  # a quota falls to 1/ratio in one publication
    slowed: Mapping[tuple[str, str], tuple[float, float]] = field(default_factory=dict)  # falls that take more nights: messages, to where

    @property
    def charted(self) -> tuple[Topic, ...]:
        return self.ranked[:MAX_CHARTS]

    @property
    def first(self) -> tuple[Topic, ...]:
        """The topics to look at first: in turn of those that were refused more than the target, and of those that changed."""
        target, least = self.fleet.target or 0.0, FIRST_PART * sum(topic.refused() for topic in self.refused)
        orders = [topic for topic in self.refused if topic.refused() >= least and _share(topic) > target], self.changed
        found: dict[tuple[str, str], Topic] = {}
        for topic in chain.from_iterable(zip_longest(*orders)):
            if topic is not None and len(found) < FIRST:
                found.setdefault((topic.protocol, topic.name), topic)
        return tuple(found.values())

    @property
    def rows(self) -> tuple[Topic, ...]:
        return self.ranked[:MAX_ROWS]


def digest(snapshot: Snapshot, before: Snapshot | None, plan: Mapping[str, Any] | None, backtest: Mapping[str, Any] | None) -> Digest:
    """Read a snapshot, the one before, its plan and a backtest. Unknown members of `plan` and `backtest` are left out."""
    topics = read_topics(snapshot, before)
    now = {(quota.protocol, quota.topic) for quota in snapshot.quotas}
    asked = plan or {}
    rails, gateways, words = (asked.get(name) for name in ("guard_rails", "gateways", "command"))
    return Digest(
        fleet=add_held(read_fleet(snapshot, before, topics), asked.get("held"), topics),
        ranked=rank_topics(topics),
        changed=tuple(sorted((topic for topic in topics if has_changed(topic)), key=_by_change)),
        refused=tuple(sorted((topic for topic in topics if topic.refused() > 0), key=_by_refused)),
        removed=tuple(quota for quota in before.quotas if (quota.protocol, quota.topic) not in now) if before is not None else (),
        outcome=str(asked["outcome"]) if asked.get("outcome") else None,
        judged=str(asked["judged"]) if asked.get("judged") else None,
        guard_rails=tuple(str(sentence) for sentence in rails) if isinstance(rails, list) else (),
        backtest=read_replayed(backtest),
        backtest_totals=mapping(mapping(backtest).get("totals")),
        gateways=tuple(map(str, gateways)) if isinstance(gateways, list) else (),
        command=tuple(map(str, words)) if isinstance(words, list) else (),
        ratio=max(number(asked.get("ratio")) or 2.0, 1.01),
        slowed=dict(_list_slowed(asked.get("held"))),
    )


def _list_slowed(held: object) -> Iterator[tuple[tuple[str, str], tuple[float, float]]]:
    for each in map(mapping, held if isinstance(held, list) else []):
        wanted, at = number(each.get("wanted")), number(each.get("held"))
        if each.get("dimension") == "messages" and wanted is not None and at is not None and wanted < at:
            yield (str(each.get("protocol", "")), str(each.get("topic", ""))), (at, wanted)


def add_held(fleet: FleetFacts, held: object, topics: tuple[Topic, ...]) -> FleetFacts:
    """`fleet` with the topics that publishing holds at a rail besides those that the night held, and with the state of each topic."""
    listed = list(fleet.lists["held"] or ())
    known = {(protocol, topic) for protocol, topic, _ in listed}
    for each in map(mapping, held if isinstance(held, list) else []):
        key = str(each.get("protocol", "")), str(each.get("topic", ""))
        if key[1] and key not in known:
            dimension = str(each.get("dimension", "messages"))
            wanted, at = (rate_text(dimension, number(each.get(name))) for name in ("wanted", "held"))
            listed.append((*key, f"{dimension}: wanted {wanted}, {at} after this night"))
    lists = {**fleet.lists, "held": tuple(listed)} if listed else fleet.lists
    return replace(fleet, lists=lists, states=count_states(topics, lists))


def count_states(topics: tuple[Topic, ...], lists: Mapping[str, tuple[tuple[str, str, str], ...] | None]) -> dict[str, int]:
    """How many topics are in each state, each in one: a pin is a pin, whatever a rail does to the other dimension."""
    listed = {name: {(protocol, topic) for protocol, topic, _ in lists[name] or ()} for name in ("pinned", "held", "learning")}
    own = {(topic.protocol, topic.name): topic.status for topic in topics}
    found = Counter(
        next((name for name in ("pinned", "kept", "held") if status == name or key in listed.get(name, ())), "computed")
        for key, status in own.items()
    )
    return {**found, "learning": len(listed["learning"].difference(own))}


def has_changed(topic: Topic) -> bool:
    """Whether a rate moved, or the topic is new."""
    return topic.is_new or has_moved(topic.move())


def has_moved(factor: float) -> bool:
    return factor > SAME or factor < 1 / SAME


def rank_topics(topics: tuple[Topic, ...]) -> tuple[Topic, ...]:
    """All topics, those that matter first: in turn the biggest change, the most refused, the most demand, each topic once."""
    orders = (
        sorted((topic for topic in topics if has_changed(topic)), key=_by_change),
        sorted((topic for topic in topics if topic.refused() > 0), key=_by_refused),
        sorted(topics, key=lambda topic: (-topic.demand(), topic.protocol, topic.name)),
    )
    found: dict[tuple[str, str], Topic] = {}
    for at in range(len(topics)):
        for order in orders:
            if at < len(order):
                found.setdefault((order[at].protocol, order[at].name), order[at])
    return tuple(found.values())


def _by_change(topic: Topic) -> tuple[float, float, str, str]:
    """The change that is worth the most messages first: a topic of a message a minute that doubles is no news beside a large one's half."""
    return -topic.moved_messages(), -topic.move(), topic.protocol, topic.name


def _by_refused(topic: Topic) -> tuple[float, str, str]:
    return -topic.refused(), topic.protocol, topic.name


def _share(topic: Topic) -> float:
    nights = topic.judged()
    return 0.0 if nights is None else nights.refused() or 0.0


def to_json(found: Digest) -> dict[str, Any]:
    """The JSON twin. Every topic is in it; `series` only where the page has a chart: the snapshot has all others."""
    fleet = found.fleet
    charted = {(topic.protocol, topic.name) for topic in found.charted}
    return {
        "version": 1,
        "date": fleet.date,
        "computed_at": fleet.computed_at,
        "time_zone": fleet.zone,
        "code": fleet.code,
        "sha256": fleet.sha256,
        "previous_sha256": fleet.previous_sha256,
        "outcome": found.outcome,
        "judged": found.judged,
        "guard_rails": list(found.guard_rails),
        "remarks": list(fleet.remarks),
        "target_refused": fleet.target,
        "realised": dict(fleet.realised),
        "expected": None if (figure := read_expected(fleet)) is None else figure._asdict(),
        "promise": None if fleet.promise is None else list(fleet.promise),
        "k": dict(fleet.k),
        "evidence": dict(fleet.evidence),
        "topics_with_quota": fleet.topics,
        "missing_gateways": None if fleet.missing_gateways is None else list(fleet.missing_gateways),
        "observed_seconds": fleet.observed_seconds,
        **{name: _listed(fleet, name) for name in LISTS},
        "fleet": {
            dimension: {name: nights_json(nights[dimension]) for name, nights in _windows(fleet) if dimension in nights}
            for dimension in ("messages", "bytes")
        },
        "backtest": dict(found.backtest_totals) or None,
        "look_at_first": [{"protocol": topic.protocol, "topic": topic.name} for topic in found.first],
        "changes": [topic_json(topic, series=False, brief=True) for topic in found.changed],
        "removed": [{"protocol": quota.protocol, "topic": quota.topic} for quota in found.removed],
        "topics": [topic_json(topic, series=(topic.protocol, topic.name) in charted) for topic in found.ranked],
        "left_out": {"charts_and_series_of_topics": max(0, fleet.topics - MAX_CHARTS)},
    }


def _windows(fleet: FleetFacts) -> tuple[tuple[str, Mapping[str, NightFacts]], ...]:
    return ("nights7", fleet.nights7), ("nights28", fleet.nights28)


def _listed(fleet: FleetFacts, name: str) -> list[dict[str, str]] | None:
    found = fleet.lists[name]
    return None if found is None else [dict(zip(("protocol", "topic", "reason"), each, strict=True)) for each in found]


def topic_json(topic: Topic, *, series: bool, brief: bool = False) -> dict[str, Any]:
    """One topic; `brief` has the change and its reason only."""
    found: dict[str, Any] = {"protocol": topic.protocol, "topic": topic.name, "new": topic.is_new, "reason": topic.reason}
    for side in topic.sides:
        found[side.dimension] = change_json(side) if brief else side_json(side, series=series)
    if not brief:
        found |= {"status": topic.status, "days": topic.days, "would_refuse": topic.would_refuse, "gateways": dict(topic.gateways)}
    return found


def change_json(side: SideFacts) -> dict[str, Any]:
    factor = side.factor()
    finite = factor is not None and factor != float("inf")
    return {
        "rate": side.rate,
        "burst": side.pair[1] if side.pair is not None else None,
        "rate_before": side.before_rate,
        "burst_before": side.before[1] if side.before is not None else None,
        "factor": float(f"{factor:.6g}") if finite else None,
    }


def side_json(side: SideFacts, *, series: bool) -> dict[str, Any]:
    found = change_json(side) | {
        "forecast": side.forecast,
        "peakiness": side.peakiness,
        "k": side.k,
        "family": side.family,
        "hourly": side.hourly,
        "mean": side.mean,
        "p99": side.percentile_99,
        "max": side.busiest,
        "reason": side.reason,
        "nights7": nights_json(side.nights7),
        "nights28": nights_json(side.nights28),
        "refused_hours": list(side.refused_hours),
    }
    if series:
        found["series"] = [[day.day, day.mean, day.quota, day.refused, day.busiest] for day in side.series]
    return found


def nights_json(nights: NightFacts | None) -> dict[str, Any] | None:
    if nights is None:
        return None
    others = {name: {"refused": found.refused, "reserved": found.reserved} for name, found in nights.outcomes.items()}
    return {"nights": nights.nights, "offered": nights.offered, **others.pop(PUBLISHED), **others}
