"""What a snapshot says, as typed facts. Evidence is free-form JSON, of this version or an older one: what is missing is None, never 0.

Rates are messages or bytes per second, amounts messages or bytes, shares parts of 1. `messages` and `bytes` are the two dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from limiter.quota_snapshot import Quota, Snapshot

DIMENSIONS: Final = ("messages", "bytes")
PUBLISHED: Final = "published"  # the quota as it was in force
ALTERNATIVES: Final = ("half", "double", "yesterday_max", "oracle")  # names in `nights7` and `nights28`
NAMES: Final = {
    PUBLISHED: "as published",
    "half": "half of k",
    "double": "twice k",
    "yesterday_max": "yesterday's maximum",
    "oracle": "oracle",
}
LISTS: Final = ("held", "learning", "pinned", "excluded")  # lists of topics in `night`

MAX_NUMBER: Final = 1e18  # messages or bytes; beyond it evidence is taken for a mistake: 10^15 per second is the largest rate of a quota

Pair = tuple[float, int]


def number(value: object) -> float | None:
    """`value` where it is a number that can be shown: not negative, and no larger than MAX_NUMBER; else None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_NUMBER:
        return None
    return float(value)


def mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def words(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one way to set the quota would have refused and reserved (rate x seconds), in messages or bytes."""

    refused: float | None
    reserved: float | None


@dataclass(frozen=True, slots=True)
class Nights:
    """The last nights out of sample: every quota judged on the day after the one it was learned from."""

    nights: int | None
    offered: float | None
    outcomes: Mapping[str, Outcome]  # PUBLISHED and ALTERNATIVES

    def refused(self, name: str = PUBLISHED) -> float | None:
        """Refused, as a share of what was offered."""
        return self._of_offered(self.outcomes[name].refused)

    def reserved(self, name: str = PUBLISHED) -> float | None:
        """Reserved, as a multiple of what was offered."""
        return self._of_offered(self.outcomes[name].reserved)

    def _of_offered(self, amount: float | None) -> float | None:
        if amount is None or self.offered is None:
            return None
        return min(MAX_NUMBER, amount / self.offered) if self.offered else None


@dataclass(frozen=True, slots=True)
class Day:
    """One day of a topic: mean demand and busiest second, the quota in force (per second), and what was refused."""

    day: str
    mean: float | None
    quota: float | None
    refused: float | None
    busiest: float | None


@dataclass(frozen=True, slots=True)
class Side:
    """One dimension of a topic's quota, with its evidence. `pair` None: this dimension has no quota."""

    dimension: str
    pair: Pair | None
    before: Pair | None
    before_rate: float | None  # of `before`, else the quota in force on the last day of `series`
    forecast: float | None
    peakiness: float | None
    k: float | None
    family: str | None
    hourly: float | None
    percentile_50: float | None
    percentile_99: float | None
    busiest: float | None
    reason: str | None
    nights7: Nights | None
    nights28: Nights | None
    series: tuple[Day, ...]

    @property
    def rate(self) -> float | None:
        return None if self.pair is None else self.pair[0]

    def factor(self) -> float | None:
        """New rate over the old one; None where one of them is not there."""
        if self.pair is None or self.before_rate is None:
            return None
        if self.before_rate == 0:
            return 1.0 if self.pair[0] == 0 else math.inf
        return self.pair[0] / self.before_rate


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic: its quota now, its quota before, and the evidence."""

    protocol: str
    name: str
    status: str | None
    reason: str | None
    days: int | None  # remembered days with traffic
    would_refuse: float | None
    sides: tuple[Side, ...]
    gateways: tuple[tuple[str, float], ...]  # share of the demand, the largest first
    is_new: bool  # there was a snapshot before, without this topic

    def side(self, dimension: str) -> Side | None:
        return next((side for side in self.sides if side.dimension == dimension), None)

    def move(self) -> float:
        """The largest change of a rate as a factor of at least 1; 1.0 where nothing is known to have changed."""
        return max(
            (max(found, 1 / found if found else math.inf) for side in self.sides if (found := side.factor()) is not None), default=1.0
        )

    def demand(self) -> float:
        """Messages per second, as far as is known; to put big topics before small ones."""
        side = self.side("messages")
        if side is None:
            return 0.0
        return side.forecast or (side.series[-1].mean if side.series else None) or side.percentile_50 or 0.0

    def refused7(self) -> float:
        """What the last nights refused in the worse dimension, as a share; 0 where that is not known."""
        return max(((side.nights7.refused() or 0.0) for side in self.sides if side.nights7 is not None), default=0.0)


@dataclass(frozen=True, slots=True)
class Fleet:
    """The snapshot as a whole. Counts are None where the snapshot does not say."""

    computed_at: str
    date: str | None  # the last day it learned from
    zone: str | None
    code: str
    sha256: str
    previous_sha256: str | None
    target_ppm: float | None
    realised_ppm: float | None
    k: Mapping[str, float | None]
    lists: Mapping[str, tuple[tuple[str, str, str], ...] | None]  # of LISTS: (protocol, topic, reason)
    missing_gateways: tuple[str, ...] | None
    observed_seconds: float | None
    topics: int
    has_before: bool
    nights7: Mapping[str, Nights] = field(default_factory=dict)  # dimension -> all topics together
    nights28: Mapping[str, Nights] = field(default_factory=dict)


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


def _sides(quota: Quota, before: Quota | None, evidence: Mapping[str, Any], has_before: bool) -> Iterator[Side]:  # noqa: FBT001
    for dimension in DIMENSIONS:
        facts = evidence if dimension == "messages" else mapping(evidence.get("bytes"))
        pair = quota.messages if dimension == "messages" else quota.bytes
        old = None if before is None else before.messages if dimension == "messages" else before.bytes
        if pair is None and old is None and not facts.get("series"):
            continue
        series = tuple(read_series(facts.get("series")))
        yield Side(
            dimension=dimension,
            pair=pair,
            before=old,
            before_rate=old[0] if old is not None else series[-1].quota if series and not has_before else None,
            forecast=number(facts.get("forecast")),
            peakiness=number(facts.get("peakiness")),
            k=number(facts.get("k")),
            family=words(facts.get("family")),
            hourly=quota.hourly_messages if dimension == "messages" else quota.hourly_bytes,
            percentile_50=number(facts.get("p50")),
            percentile_99=number(facts.get("p99")),
            busiest=number(facts.get("max")),
            reason=words(evidence.get("reason_bytes")) or words(facts.get("reason"))
            if dimension == "bytes"
            else words(evidence.get("reason")),
            nights7=read_nights(facts.get("nights7")),
            nights28=read_nights(facts.get("nights28")),
            series=series,
        )


def read_series(value: object) -> Iterator[Day]:
    """Rows [day, mean, quota, refused, busiest second]; a row of another shape is left out."""
    for row in value if isinstance(value, list) else []:
        if isinstance(row, list) and len(row) >= 2 and isinstance(row[0], str):
            mean, quota, refused, busiest = (number(found) for found in (*row[1:5], None, None, None)[:4])
            yield Day(row[0], mean, quota, refused, busiest)


def read_nights(value: object) -> Nights | None:
    """`nights7` or `nights28`; None where there are none yet."""
    found = mapping(value)
    nights = number(found.get("nights"))
    if not found or nights == 0:
        return None
    outcomes = {name: _outcome(mapping(found.get(name))) for name in ALTERNATIVES}
    return Nights(None if nights is None else int(nights), number(found.get("offered")), {PUBLISHED: _outcome(found), **outcomes})


def _outcome(found: Mapping[str, Any]) -> Outcome:
    return Outcome(number(found.get("refused")), number(found.get("reserved")))


def read_fleet(snapshot: Snapshot, before: Snapshot | None, topics: tuple[Topic, ...]) -> Fleet:
    """What the snapshot says of all topics together."""
    night = snapshot.night
    missing = night.get("missing_gateways")
    k = mapping(night.get("k"))
    return Fleet(
        computed_at=snapshot.computed_at,
        date=snapshot.date,
        zone=words(night.get("time_zone")),
        code=snapshot.code,
        sha256=snapshot.sha256(),
        previous_sha256=words(night.get("previous_sha256")) or (before.sha256() if before is not None else None),
        target_ppm=number(night.get("target_refused_ppm", snapshot.parameters.get("target_refused_ppm"))),
        realised_ppm=number(night.get("realised_ppm")),
        k={dimension: number(k.get(dimension)) for dimension in DIMENSIONS},
        lists={name: _listed(night.get(name)) for name in LISTS},
        missing_gateways=tuple(str(name) for name in missing) if isinstance(missing, list) else None,
        observed_seconds=number(night.get("observed_seconds")),
        topics=len(topics),
        has_before=before is not None,
        nights7={dimension: found for dimension in DIMENSIONS if (found := pooled(topics, dimension, "nights7")) is not None},
        nights28={dimension: found for dimension in DIMENSIONS if (found := pooled(topics, dimension, "nights28")) is not None},
    )


def _listed(value: object) -> tuple[tuple[str, str, str], ...] | None:
    if not isinstance(value, list):
        return None
    return tuple(
        (str(found.get("protocol", "")), str(found.get("topic", "")), str(found.get("reason", "")))
        for found in value
        if isinstance(found, dict)
    )


def pooled(topics: tuple[Topic, ...], dimension: str, name: str) -> Nights | None:
    """All topics' nights added up. An alternative counts where every topic that was offered anything knows it, else it is None."""
    found = [nights for topic in topics if (side := topic.side(dimension)) is not None and (nights := getattr(side, name)) is not None]
    if not found:
        return None
    offered = [nights.offered or 0.0 for nights in found]
    return Nights(
        nights=max((nights.nights for nights in found if nights.nights is not None), default=None),
        offered=math.fsum(offered),
        outcomes={
            each: Outcome(
                _sum([nights.outcomes[each].refused for nights in found]), _sum([nights.outcomes[each].reserved for nights in found])
            )
            for each in (PUBLISHED, *ALTERNATIVES)
        },
    )


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) if len(known) == len(values) else None
