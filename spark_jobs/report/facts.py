"""The facts of a snapshot, typed. Evidence is free-form JSON, of this version or an older one: a missing value is None, never 0.

Rates are messages or bytes per second, amounts messages or bytes, shares parts of 1. `messages` and `bytes` are the two dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

DIMENSIONS: Final = ("messages", "bytes")
PUBLISHED: Final = "published"  # the quota as it was in force
ALTERNATIVES: Final = ("half", "double", "yesterday_max", "oracle")  # names in `nights7` and `nights28`
NAMES: Final = {
    PUBLISHED: "as published",
    "half": "half of k",
    "double": "twice k",
    "yesterday_max": "yesterday's max",
    "oracle": "oracle",
}
RULES: Final = {
    "yesterday_max": "yesterday's max",
    "max_7": "max of 7 days",
    "mean_7": "mean of 7 days",
    "p99": "99th percentile",
}  # simple ones
LISTS: Final = ("held", "learning", "pinned", "excluded")  # lists of topics in `night`

ROUNDING: Final = 1.01  # times: factors are shown with three digits, so that much is no cause
SHORT: Final = 0.999  # part of the needed rate; rates have six digits
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
class OutcomeFacts:
    """Refused and reserved (rate x seconds) by one way to set the quota, in messages or bytes."""

    refused: float | None
    reserved: float | None


@dataclass(frozen=True, slots=True)
class NightFacts:
    """The last nights out of sample: every quota judged on the day after the one it was learned from."""

    nights: int | None
    offered: float | None
    outcomes: Mapping[str, OutcomeFacts]  # PUBLISHED and ALTERNATIVES

    def refused(self, name: str = PUBLISHED) -> float | None:
        """Refused, as a share of the offered messages."""
        return self._of_offered(self.outcomes[name].refused)

    def reserved(self, name: str = PUBLISHED) -> float | None:
        """Reserved, as a multiple of the offered messages."""
        return self._of_offered(self.outcomes[name].reserved)

    def _of_offered(self, amount: float | None) -> float | None:
        if amount is None or self.offered is None:
            return None
        return min(MAX_NUMBER, amount / self.offered) if self.offered else None


@dataclass(frozen=True, slots=True)
class DayFacts:
    """One day of a topic: mean demand and busiest second, the quota in force (per second), and the refused messages or bytes."""

    day: str
    mean: float | None
    quota: float | None
    refused: float | None
    busiest: float | None


@dataclass(frozen=True, slots=True)
class SideFacts:
    """One dimension of a topic's quota, with its evidence. `pair` None: this dimension has no quota."""

    dimension: str
    pair: Pair | None
    before: Pair | None
    before_rate: float | None  # rate of `before`, else the quota in force on the last day of `series`
    before_known: bool  # False: nothing says whether there was a quota before
    causes: tuple[tuple[str, float], ...]  # (forecast, peakiness or k; new over old), where it moved, the largest move first
    forecast: float | None
    peakiness: float | None
    k: float | None
    family: str | None
    hourly: float | None
    lower: float | None  # the least rate that needs no change: with less the topic has less than it needs
    computed: float | None  # forecast x peakiness x k: the rate if nothing held or lowered it
    computed_before: float | None  # the same of the night before
    mean: float | None  # mean of the last days; snapshots before 0.3 have the median of the load instead
    percentile_99: float | None
    busiest: float | None
    reason: str | None
    nights7: NightFacts | None
    nights28: NightFacts | None
    series: tuple[DayFacts, ...]
    refused_hours: tuple[float, ...] = ()  # refused in each hour of the day, by the log, over the last seven days; () where none were

    @property
    def rate(self) -> float | None:
        return None if self.pair is None else self.pair[0]

    def rest(self) -> float:
        """The rest of the change beside its causes: the factors and this make up the change. 1.0 where they do without it."""
        factor = self.factor()
        if not factor or factor == math.inf or not self.causes:
            return 1.0
        found = factor / math.prod(moved for _, moved in self.causes)
        return 1.0 if 1 / ROUNDING < found < ROUNDING else found

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
    sides: tuple[SideFacts, ...]
    gateways: tuple[tuple[str, float], ...]  # share of the demand, the largest first
    is_new: bool  # there was a snapshot before, without this topic

    def side(self, dimension: str) -> SideFacts | None:
        return next((side for side in self.sides if side.dimension == dimension), None)

    def move(self) -> float:
        """The largest change of a rate as a factor of at least 1; 1.0 where nothing is known to have changed."""
        return max(
            (max(found, 1 / found if found else math.inf) for side in self.sides if (found := side.factor()) is not None), default=1.0
        )

    def moved_messages(self) -> float:
        """Messages per second that the change is worth."""
        side = self.side("messages")
        if side is None or side.rate is None:
            return 0.0
        return abs(side.rate - (0.0 if self.is_new else side.rate if side.before_rate is None else side.before_rate))

    def judged(self) -> NightFacts | None:
        """The longest time over which its messages were judged."""
        side = self.side("messages")
        return None if side is None else side.nights28 or side.nights7

    def refused(self) -> float:
        """Messages that the published quotas refused in that time."""
        nights = self.judged()
        return 0.0 if nights is None else nights.outcomes[PUBLISHED].refused or 0.0

    def is_short(self) -> bool:
        """Whether its rate of messages is below its need."""
        side = self.side("messages")
        return side is not None and side.rate is not None and side.lower is not None and side.rate < SHORT * side.lower

    def rate_of(self, dimension: str) -> float:
        side = self.side(dimension)
        return 0.0 if side is None else side.rate or 0.0

    def computed(self) -> float:
        """Messages per second that were computed for it, whatever a capacity or a rail left it."""
        side = self.side("messages")
        return 0.0 if side is None else side.computed or side.rate or 0.0

    def demand(self) -> float:
        """Messages per second, as far as is known; to put big topics before small ones."""
        side = self.side("messages")
        if side is None:
            return 0.0
        return side.forecast or (side.series[-1].mean if side.series else None) or side.mean or 0.0


@dataclass(frozen=True, slots=True)
class FleetFacts:
    """The snapshot as a whole. Counts are None where the snapshot does not say."""

    computed_at: str
    date: str | None  # the last day it learned from
    zone: str | None
    code: str
    sha256: str
    previous_sha256: str | None
    target: float | None  # share that may be refused
    realised: Mapping[str, float | None]  # dimension -> share refused on the last day
    k: Mapping[str, float | None]
    families: Mapping[str, str | None]  # dimension -> the rule that all quotas follow: "quota" is the method, others are in RULES
    evidence: Mapping[str, float | None]  # dimension -> evidence behind the guard's choice of a rule: nights x topics
    lists: Mapping[str, tuple[tuple[str, str, str], ...] | None]  # entries of LISTS: (protocol, topic, reason)
    missing_gateways: tuple[str, ...] | None
    remarks: tuple[str, ...]  # sentences of the night about its options: pins above the capacity
    observed_seconds: float | None
    topics: int
    has_before: bool
    nights7: Mapping[str, NightFacts] = field(default_factory=dict)  # dimension -> all topics together
    nights28: Mapping[str, NightFacts] = field(default_factory=dict)
    promise: tuple[float, float] | None = None  # range of the share that nine of ten months of such nights refuse
    lowered: float | None = None  # share of the last days' messages that quotas lowered by a capacity, a ceiling or pins would have refused
    refused_days: tuple[tuple[str, float], ...] = ()  # messages refused on each of the days of `nights28`, of all topics
    short: int = 0  # topics with less than they need
    k_before: Mapping[str, float | None] = field(default_factory=dict)
    capacity: Mapping[str, float | None] = field(default_factory=dict)  # dimension -> all quotas together, at most; None: no bound
    ceiling: Mapping[str, float | None] = field(default_factory=dict)  # dimension -> each quota, at most
    lowered_topics: Mapping[tuple[str, str], tuple[float, str]] = field(default_factory=dict)  # of `lowered`: messages a day, worst day
    pins: tuple[tuple[str, float], ...] = ()  # topics with a pin of messages, and its rate, the largest first
    states: Mapping[str, int] = field(default_factory=dict)  # topics by state: each topic has one

    def judged(self) -> NightFacts | None:
        """The longest time over which the messages of all topics were judged."""
        found = self.nights28.get("messages") or self.nights7.get("messages")
        return None if found is None or found.refused() is None else found

    def refused_so_far(self) -> float | None:
        """The share of the messages refused in that time, or on the last day where that is all there is."""
        found = self.judged()
        return self.realised["messages"] if found is None else found.refused()

    def offered_a_day(self) -> float | None:
        found = self.judged()
        return None if found is None or found.offered is None else found.offered / max(found.nights or 1, 1)
