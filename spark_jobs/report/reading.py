"""The way from the free-form evidence of a snapshot to typed facts. Nothing raises, whatever its shape: a value that cannot be read is
None."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from limiter.quota_snapshot import Quota, Snapshot
from spark_jobs.report.facts import (
    ALTERNATIVES,
    DIMENSIONS,
    LISTS,
    MAX_NUMBER,
    PUBLISHED,
    DayFacts,
    FleetFacts,
    NightFacts,
    OutcomeFacts,
    SideFacts,
    Topic,
    mapping,
    number,
    words,
)

HOURS: Final = 24
MOVED: Final = 1.02  # times; a factor that moved less is no reason for a change (a guess)


def split_by_dimension(value: object) -> dict[str, float | None]:
    """A number for each dimension; one alone is that of messages."""
    found = value if isinstance(value, dict) else {"messages": value}
    return {dimension: number(found.get(dimension)) for dimension in DIMENSIONS}


def _million(parts: float | None) -> float | None:
    return None if parts is None else parts / 1e6


def read_topics(snapshot: Snapshot, before: Snapshot | None) -> tuple[Topic, ...]:
    """The topics of `snapshot`, in its order."""
    earlier = {(quota.protocol, quota.topic): quota for quota in before.quotas} if before is not None else {}
    return tuple(_topic(quota, earlier.get((quota.protocol, quota.topic)), before is not None) for quota in snapshot.quotas)


def _topic(quota: Quota, before: Quota | None, has_before: bool) -> Topic:  # noqa: FBT001
    evidence = quota.evidence
    sides = tuple(_sides(quota, before, evidence, has_before))
    shares = sorted(((str(name), part) for name, value in mapping(evidence.get("gateways")).items() if (part := number(value)) is not None))
    days = number(evidence.get("days"))
    return Topic(
        protocol=quota.protocol,
        name=quota.topic,
        status=words(evidence.get("status")),
        reason=words(evidence.get("reason")),
        days=None if days is None else int(days),
        would_refuse=number(evidence.get("would_refuse")),
        sides=sides,
        gateways=tuple(sorted(shares, key=lambda found: -found[1])),
        is_new=has_before and before is None,
    )


def _sides(quota: Quota, before: Quota | None, evidence: Mapping[str, Any], has_before: bool) -> Iterator[SideFacts]:  # noqa: FBT001
    for dimension in DIMENSIONS:
        facts = _facts_of(evidence, dimension)
        pair = quota.messages if dimension == "messages" else quota.bytes
        old = None if before is None else before.messages if dimension == "messages" else before.bytes
        if pair is None and old is None and not facts.get("series"):
            continue
        series = tuple(read_series(facts.get("series")))
        yield SideFacts(
            dimension=dimension,
            pair=pair,
            before=old,
            before_rate=old[0] if old is not None else series[-1].quota if series and not has_before else None,
            before_known=has_before or bool(series),
            causes=_causes(facts, before, dimension),
            forecast=number(facts.get("forecast")),
            peakiness=number(facts.get("peakiness")),
            k=number(facts.get("k")),
            family=words(facts.get("family")),
            hourly=quota.hourly_messages if dimension == "messages" else quota.hourly_bytes,
            lower=number(facts.get("lower")),
            computed=number(facts.get("target")),
            computed_before=None if before is None else number(_facts_of(before.evidence, dimension).get("target")),
            mean=number(facts.get("mean", facts.get("p50"))),
            percentile_99=number(facts.get("p99")),
            busiest=number(facts.get("max")),
            reason=words(evidence.get("reason_bytes")) or words(facts.get("reason"))
            if dimension == "bytes"
            else words(evidence.get("reason")),
            nights7=read_nights(facts.get("nights7")),
            nights28=read_nights(facts.get("nights28")),
            series=series,
            refused_hours=read_hours(facts.get("refused_hours")),
        )


def _facts_of(evidence: Mapping[str, Any], dimension: str) -> Mapping[str, Any]:
    return evidence if dimension == "messages" else mapping(evidence.get("bytes"))


def _causes(facts: Mapping[str, Any], before: Quota | None, dimension: str) -> tuple[tuple[str, float], ...]:
    """The factors of the rate that moved by more than MOVED since the snapshot before."""
    old = _facts_of(before.evidence, dimension) if before is not None else {}
    pairs = ((name, number(facts.get(name)), number(old.get(name))) for name in ("forecast", "peakiness", "k"))
    moved = [(name, min(MAX_NUMBER, now / was)) for name, now, was in pairs if now and was and not 1 / MOVED < now / was < MOVED]
    return tuple(sorted(moved, key=lambda found: -max(found[1], 1 / found[1])))


def read_series(value: object) -> Iterator[DayFacts]:
    """Rows [day, mean, quota, refused, busiest second]; a row of another shape is left out."""
    for row in value if isinstance(value, list) else []:
        if isinstance(row, list) and len(row) >= 2 and isinstance(row[0], str):
            mean, quota, refused, busiest = (number(found) for found in (*row[1:5], None, None, None)[:4])
            yield DayFacts(row[0], mean, quota, refused, busiest)


def read_hours(value: object) -> tuple[float, ...]:
    """A number for each hour of the day; () for anything else."""
    found = [number(each) for each in value] if isinstance(value, list) else []
    known = [each for each in found if each is not None]
    return tuple(known) if len(known) == len(found) == HOURS else ()


def read_nights(value: object) -> NightFacts | None:
    """`nights7` or `nights28`; None where there are none yet."""
    found = mapping(value)
    nights = number(found.get("nights"))
    if not found or nights == 0:
        return None
    outcomes = {name: _outcome(mapping(found.get(name))) for name in ALTERNATIVES}
    return NightFacts(None if nights is None else int(nights), number(found.get("offered")), {PUBLISHED: _outcome(found), **outcomes})


def _outcome(found: Mapping[str, Any]) -> OutcomeFacts:
    return OutcomeFacts(number(found.get("refused")), number(found.get("reserved")))


def read_fleet(snapshot: Snapshot, before: Snapshot | None, topics: tuple[Topic, ...]) -> FleetFacts:
    """The snapshot's facts of all topics together."""
    night = snapshot.night
    missing = night.get("missing_gateways")
    return FleetFacts(
        computed_at=snapshot.computed_at,
        date=snapshot.date,
        zone=words(night.get("time_zone")),
        code=snapshot.code,
        sha256=snapshot.sha256(),
        previous_sha256=words(night.get("previous_sha256")) or (before.sha256() if before is not None else None),
        target=_million(number(night.get("target_refused_ppm", snapshot.parameters.get("target_refused_ppm")))),
        realised={dimension: _million(found) for dimension, found in split_by_dimension(night.get("realised_ppm")).items()},
        k=split_by_dimension(night.get("k")),
        families={dimension: words(mapping(night.get("family")).get(dimension)) for dimension in DIMENSIONS},
        evidence=split_by_dimension(mapping(night.get("evidence"))),
        lists={name: _listed(night.get(name)) for name in LISTS},
        missing_gateways=tuple(str(name) for name in missing) if isinstance(missing, list) else None,
        remarks=tuple(str(each) for each in remarks) if isinstance(remarks := night.get("remarks"), list) else (),
        observed_seconds=number(night.get("observed_seconds")),
        topics=len(topics),
        has_before=before is not None,
        nights7={dimension: found for dimension in DIMENSIONS if (found := pool_nights(topics, dimension, "nights7")) is not None},
        nights28={dimension: found for dimension in DIMENSIONS if (found := pool_nights(topics, dimension, "nights28")) is not None},
        promise=_promise(mapping(night.get("promise_ppm")).get("messages")),
        lowered=_million(number(night.get("lowered_ppm"))),
        refused_days=_refused_days(topics),
        short=sum(topic.is_short() for topic in topics),
        k_before=split_by_dimension(None if before is None else before.night.get("k")),
        capacity={each: number(snapshot.parameters.get(f"capacity_{each}")) or None for each in DIMENSIONS},
        ceiling={each: number(snapshot.parameters.get(f"ceiling_{each}")) or None for each in DIMENSIONS},
        lowered_topics=dict(_lowered(night.get("lowered_topics"))),
        pins=tuple(sorted(_pins(topics), key=lambda each: (-each[1], each[0]))),
    )


def _pins(topics: tuple[Topic, ...]) -> Iterator[tuple[str, float]]:
    for topic in topics:
        side = topic.side("messages")
        if topic.status == "pinned" and side is not None and side.rate is not None and (side.reason or "").startswith("pinned"):
            yield topic.name, side.rate


def _lowered(value: object) -> Iterator[tuple[tuple[str, str], tuple[float, str]]]:
    for each in map(mapping, value if isinstance(value, list) else []):
        refused = number(each.get("refused"))
        if refused is not None:
            yield (str(each.get("protocol", "")), str(each.get("topic", ""))), (refused, str(each.get("worst", "")))


def _refused_days(topics: tuple[Topic, ...]) -> tuple[tuple[str, float], ...]:
    found: dict[str, float] = {}
    for topic in topics:
        side = topic.side("messages")
        for day in () if side is None else side.series:
            if day.refused is not None:
                found[day.day] = found.get(day.day, 0.0) + day.refused
    return tuple(sorted(found.items()))


def _promise(value: object) -> tuple[float, float] | None:
    ends = [_million(number(each)) for each in value] if isinstance(value, list) else []
    return (ends[0], ends[1]) if len(ends) == 2 and ends[0] is not None and ends[1] is not None else None


def _listed(value: object) -> tuple[tuple[str, str, str], ...] | None:
    """Entries {protocol, topic, reason}; one that is a text alone (`2026-11-20T08:00/T09:00:orders`) is the topic's place."""
    if not isinstance(value, list):
        return None
    named = [{"topic": found} if isinstance(found, str) else found for found in value]
    return tuple(
        (str(found.get("protocol", "")), str(found.get("topic", "")), str(found.get("reason", "")))
        for found in named
        if isinstance(found, dict)
    )


def pool_nights(topics: tuple[Topic, ...], dimension: str, name: str) -> NightFacts | None:
    """All topics' nights added up. An alternative counts where every topic that was offered anything knows it, else it is None."""
    found = [nights for topic in topics if (side := topic.side(dimension)) is not None and (nights := getattr(side, name)) is not None]
    if not found:
        return None
    offered = [nights.offered or 0.0 for nights in found]
    return NightFacts(
        nights=max((nights.nights for nights in found if nights.nights is not None), default=None),
        offered=math.fsum(offered),
        outcomes={
            each: OutcomeFacts(
                _sum([nights.outcomes[each].refused for nights in found]), _sum([nights.outcomes[each].reserved for nights in found])
            )
            for each in (PUBLISHED, *ALTERNATIVES)
        },
    )


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) if len(known) == len(values) else None
