"""What publishing a snapshot of quotas would change, and whether that is believable. Pure: two snapshots in, a plan out.

Guard rails (`docs/design/quotas.md` 5) stand between a nightly job gone wrong and every topic at once. Shares mean little for a few topics,
so below FEW topics only the rails per topic count. The first publication has nothing to be compared with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from limiter.limits import SECOND, Rate
from limiter.quota_snapshot import Quota, Snapshot
from limiter.units import format_byte_rate, format_rate, format_size

FEW: Final = 20  # live quotas; below it one topic is a large share (guess)
SLACK: Final = 1.01  # times the rail; quotas are rounded to whole messages, so 1 % over it does not count

Pair = tuple[float, int] | None


@dataclass(frozen=True, slots=True)
class Rails:
    """How much may change at once. Shares are 0..1. A rate may grow by the factor `ratio` at most, or shrink by it."""

    changed_share: float = 0.5  # guesses, all three; the nightly job itself keeps to x2 and x0.8 a topic
    total_share: float = 0.3
    ratio: float = 2.0


@dataclass(frozen=True, slots=True)
class Difference:
    """One topic's quota before and after; None where it has none."""

    protocol: str
    topic: str
    before: Quota | None
    after: Quota | None

    @property
    def kind(self) -> str:
        return "added" if self.before is None else "removed" if self.after is None else "changed"

    def pairs(self, dimension: str) -> tuple[Pair, Pair]:
        """(rate, burst) before and after, of "messages" or "bytes"."""
        return _pair(self.before, dimension), _pair(self.after, dimension)

    def factor(self) -> float:
        """The factor (at least 1) by which the rate that moves most grows or shrinks; infinite from or to nothing."""
        return max(_factor(*self.pairs(dimension)) for dimension in ("messages", "bytes"))

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"protocol": self.protocol, "topic": self.topic, "change": self.kind}
        for dimension in ("messages", "bytes"):
            before, after = self.pairs(dimension)
            if before != after:
                found[dimension] = {"before": _shown(before), "after": _shown(after)}
        reason = (self.after.evidence if self.after is not None else {}).get("reason")
        return {**found, "reason": reason} if reason else found


@dataclass(frozen=True, slots=True)
class QuotaPlan:
    """All differences, the largest change first, and the rails they break (sentences)."""

    differences: tuple[Difference, ...]
    tripped: tuple[str, ...]
    live: int  # quotas in force
    new: int  # quotas in the snapshot


def plan(live: Snapshot, new: Snapshot, rails: Rails) -> QuotaPlan:
    """What publishing `new` in place of `live` would change."""
    before = {(quota.protocol, quota.topic): quota for quota in live.quotas}
    after = {(quota.protocol, quota.topic): quota for quota in new.quotas}
    found = [
        Difference(*key, before.get(key), after.get(key))
        for key in sorted({*before, *after})
        if _dimensions(before.get(key)) != _dimensions(after.get(key))
    ]
    found.sort(key=lambda each: -each.factor())
    tripped = tuple(sentence for rail in _RAILS for sentence in rail(live, new, found, rails)) if before else ()
    return QuotaPlan(tuple(found), tripped, len(before), len(after))


def shown_rate(dimension: str, each_second: float | None) -> str | None:
    """A rate as limits are written: `500/s`, `2.5/s`, `5MiB/s`; None stays None."""
    if each_second is None:
        return None
    exact = Fraction(f"{each_second:.6f}") or Fraction(each_second)  # rates are whole, or have a few places
    write = format_byte_rate if dimension == "bytes" else format_rate
    return write(Rate(exact.numerator, exact.denominator * SECOND))


def shown_burst(dimension: str, tokens: int | None) -> str | None:
    """A burst: `900`, or bytes as `2MiB`."""
    return None if tokens is None else format_size(tokens) if dimension == "bytes" else str(tokens)


def _removals(live: Snapshot, new: Snapshot, found: list[Difference], rails: Rails) -> Iterator[str]:
    del found, rails
    if not new.quotas:
        yield f"all {len(live.quotas)} quotas would be removed"


def _share(live: Snapshot, new: Snapshot, found: list[Difference], rails: Rails) -> Iterator[str]:
    del new
    touched = sum(1 for each in found if each.before is not None)
    if len(live.quotas) >= FEW and touched > rails.changed_share * len(live.quotas):
        yield f"{touched} of {len(live.quotas)} quotas would change, more than {rails.changed_share:.0%}"


def _totals(live: Snapshot, new: Snapshot, found: list[Difference], rails: Rails) -> Iterator[str]:
    del found
    if len(live.quotas) < FEW:
        return
    for dimension in ("messages", "bytes"):
        old, now = (sum((_pair(quota, dimension) or (0.0, 0))[0] for quota in each.quotas) for each in (live, new))
        if old and abs(now - old) > rails.total_share * old:
            moved = f"from {shown_rate(dimension, old)} to {shown_rate(dimension, now)}"
            yield f"the sum of all {dimension} rates would go {moved}, by more than {rails.total_share:.0%}"


def _steps(live: Snapshot, new: Snapshot, found: list[Difference], rails: Rails) -> Iterator[str]:
    del live, new
    for each in found:
        for dimension in ("messages", "bytes"):
            before, after = each.pairs(dimension)
            if before is None or after is None or _factor(before, after) <= rails.ratio * SLACK:
                continue
            step = f"{dimension} would go from {shown_rate(dimension, before[0])} to {shown_rate(dimension, after[0])}"
            yield f"{each.protocol} {each.topic}: {step}, by more than a factor of {rails.ratio:g}"


_RAILS: Final[tuple[Callable[[Snapshot, Snapshot, list[Difference], Rails], Iterator[str]], ...]] = (_removals, _share, _totals, _steps)


def _pair(quota: Quota | None, dimension: str) -> Pair:
    if quota is None:
        return None
    return quota.messages if dimension == "messages" else quota.bytes


def _dimensions(quota: Quota | None) -> tuple[Pair, Pair] | None:
    """The part of a quota that limits. Its evidence changes nightly and limits nothing."""
    return None if quota is None else (quota.messages, quota.bytes)


def _factor(before: Pair, after: Pair) -> float:
    if before is None or after is None:
        return 1.0 if before == after else float("inf")
    low, high = sorted((before[0], after[0]))
    return 1.0 if low == high else high / low if low else float("inf")


def _shown(pair: Pair) -> dict[str, Any] | None:
    return None if pair is None else {"rate": pair[0], "burst": pair[1]}
