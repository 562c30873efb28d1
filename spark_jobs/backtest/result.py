"""The result of a backtest: per contender and topic, and for each contender in all. Plain values; `-o json` prints `to_json`."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_CLIENTS_SHOWN: Final = 5  # worst clients of a topic, and in all


@dataclass(slots=True)
class Outcome:
    """One contender on one topic, over `days` days; or (topic "") on all topics.

    `reserved` is rate x observed seconds, `unused` the part of it that did not pass; 0 where no limit per topic holds. `blackout` is the
    most seconds with demand in a row in which nothing passed; None in the quick answer, which cannot tell. `clients`: refused messages of
    each.
    """

    contender: str
    protocol: str
    topic: str
    days: int = 0
    offered: int = 0  # messages
    offered_bytes: int = 0
    refused: int = 0  # messages; those that a rule holds first (`delay`, `block`) included
    refused_bytes: int = 0
    held: int = 0
    limited_seconds: int | None = 0
    blackout: int | None = 0
    blackout_at: str = ""  # the day of it, and in a total the topic
    reserved: float = 0.0  # messages
    unused: float = 0.0
    reserved_bytes: float = 0.0
    unused_bytes: float = 0.0
    clients: dict[str, int] = field(default_factory=dict)

    @property
    def refused_share(self) -> float | None:
        return self.refused / self.offered if self.offered else None

    def add(self, other: Outcome, where: str) -> None:
        """Add another day of the same topic, or another topic; the worse blackout of the two was at `where`."""
        self.offered += other.offered
        self.offered_bytes += other.offered_bytes
        self.refused += other.refused
        self.refused_bytes += other.refused_bytes
        self.held += other.held
        if other.limited_seconds is None or self.limited_seconds is None:
            self.limited_seconds = self.blackout = None
        else:
            self.limited_seconds += other.limited_seconds
            if other.blackout is not None and self.blackout is not None and other.blackout > self.blackout:
                self.blackout, self.blackout_at = other.blackout, where
        self.reserved += other.reserved
        self.unused += other.unused
        self.reserved_bytes += other.reserved_bytes
        self.unused_bytes += other.unused_bytes
        for client, refused in other.clients.items():
            self.clients[client] = self.clients.get(client, 0) + refused

    def to_json(self) -> dict[str, Any]:
        worst = Counter(self.clients).most_common(MAX_CLIENTS_SHOWN)
        found = asdict(self) | {"refused_share": self.refused_share, "clients": [{"client": name, "refused": n} for name, n in worst]}
        for name in ("reserved", "unused", "reserved_bytes", "unused_bytes"):
            found[name] = round(found[name])
        return found


@dataclass(slots=True)
class Backtest:
    """A whole backtest. `topics` are by contender, the most refused first; `totals` are by contender, in the order asked for."""

    way: str  # exact: the log through the limiter; quick: the daily states
    first: str
    last: str
    days: list[str] = field(default_factory=list)  # days that were there
    totals: dict[str, Outcome] = field(default_factory=dict)
    topics: list[Outcome] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lines: int = 0

    def to_json(self) -> dict[str, Any]:
        """The shape that the report reads: `from`, `to`, `totals` by contender; and all else."""
        return {
            "way": self.way, "from": self.first, "to": self.last, "days": self.days, "lines": self.lines, "notes": self.notes,
            "totals": {name: total.to_json() for name, total in self.totals.items()},
            "topics": [outcome.to_json() for outcome in self.topics],
        }  # fmt: skip


def sum_outcomes(way: str, first: str, last: str, by_day: Iterable[tuple[str, list[Outcome]]]) -> Backtest:
    """Add up some days' outcomes (day, one for each contender and topic)."""
    found = Backtest(way, first, last)
    topics: dict[tuple[str, str, str], Outcome] = {}
    for day, outcomes in by_day:
        found.days.append(day)
        seen: set[str] = set()
        for each in outcomes:
            key = (each.contender, each.protocol, each.topic)
            topic = topics.setdefault(key, Outcome(*key))
            topic.add(each, day)
            topic.days += 1
            total = found.totals.setdefault(each.contender, Outcome(each.contender, "", ""))
            total.add(each, f"{day} {each.topic}")
            if each.contender not in seen:
                seen.add(each.contender)
                total.days += 1
    order = list(found.totals)
    found.topics = sorted(topics.values(), key=lambda each: (order.index(each.contender), -each.refused, each.protocol, each.topic))
    return found
