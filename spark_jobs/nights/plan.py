"""The changes that publishing a snapshot of quotas would make, within its rails (`rails.py`). Pure: two snapshots in, a plan out."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from limiter.limits import SECOND, Rate
from limiter.quota_snapshot import Quota, Snapshot
from limiter.units import format_byte_rate, format_rate, format_size
from spark_jobs.nights.rails import DIMENSIONS, HeldRate, Pair, Rails, compute_factor, describe_lowered, find_faults, get_pair, hold


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
        return get_pair(self.before, dimension), get_pair(self.after, dimension)

    def factor(self) -> float:
        """The factor (at least 1) by which the rate that moves most grows or shrinks; infinite from or to nothing."""
        return max(compute_factor(*self.pairs(dimension)) for dimension in DIMENSIONS)

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"protocol": self.protocol, "topic": self.topic, "change": self.kind}
        for dimension in DIMENSIONS:
            before, after = self.pairs(dimension)
            if before != after:
                found[dimension] = {"before": _pair_to_json(before), "after": _pair_to_json(after)}
        reason = (self.after.evidence if self.after is not None else {}).get("reason")
        return {**found, "reason": reason} if reason else found


@dataclass(frozen=True, slots=True)
class QuotaPlan:
    """The snapshot to publish, all its differences, the largest change first, the held rates, and the faults that stop it (sentences)."""

    publish: Snapshot
    differences: tuple[Difference, ...]
    held: tuple[HeldRate, ...]
    tripped: tuple[str, ...]
    live: int  # quotas in force
    new: int  # quotas in the snapshot
    lowered: tuple[str, ...] = ()  # sentences about sums that a capacity or a ceiling lowers further than the rails let them fall at once

    def to_json(self) -> dict[str, Any]:
        return {
            "changes": [each.to_json() for each in self.differences],
            "held": [each.to_json() for each in self.held],
            "guard_rails": list(self.tripped),
            "lowered": list(self.lowered),
            "live": self.live,
            "new": self.new,
        }


def plan(live: Snapshot, new: Snapshot, rails: Rails | None) -> QuotaPlan:
    """Plan to publish `new` in place of `live`; `rails` None: nothing is held, and nothing stops it."""
    publish, held = (new, ()) if rails is None else hold(live, new, rails)
    found = find_differences(live, publish)
    touched = [each for each in found if each.before is not None]
    removed = sum(1 for each in touched if each.after is None)
    tripped = () if rails is None else tuple(find_faults(live, new, rails, len(touched), removed))
    falls = () if rails is None else tuple(describe_lowered(live, new, publish, rails))
    return QuotaPlan(publish, found, held, tripped, len(live.quotas), len(new.quotas), falls)


def find_differences(live: Snapshot, new: Snapshot) -> tuple[Difference, ...]:
    """The topics whose rates or bursts differ, the largest change first."""
    before = {(quota.protocol, quota.topic): quota for quota in live.quotas}
    after = {(quota.protocol, quota.topic): quota for quota in new.quotas}
    found = [
        Difference(*key, before.get(key), after.get(key))
        for key in sorted({*before, *after})
        if _get_pairs(before.get(key)) != _get_pairs(after.get(key))
    ]
    return tuple(sorted(found, key=lambda each: -each.factor()))


def show_rate(dimension: str, each_second: float | None) -> str | None:
    """A rate as limits are written: `500/s`, `2.5/s`, `5MiB/s`; None stays None."""
    if each_second is None:
        return None
    exact = Fraction(f"{each_second:.6f}") or Fraction(each_second)  # rates are whole, or have a few places
    write = format_byte_rate if dimension == "bytes" else format_rate
    return write(Rate(exact.numerator, exact.denominator * SECOND))


def describe_held(held: HeldRate) -> str:
    """`rocketmq orders: messages would go from 100/s to 300/s, held at 200/s`."""
    before, wanted, at = (show_rate(held.dimension, rate) for rate in (held.before, held.wanted, held.held))
    return f"{held.protocol} {held.topic}: {held.dimension} would go from {before} to {wanted}, held at {at}"


def show_burst(dimension: str, tokens: int | None) -> str | None:
    """A burst: `900`, or bytes as `2MiB`."""
    return None if tokens is None else format_size(tokens) if dimension == "bytes" else str(tokens)


def _get_pairs(quota: Quota | None) -> tuple[Pair, Pair] | None:
    """The part of a quota that limits. Its evidence changes nightly and limits nothing."""
    return None if quota is None else (quota.messages, quota.bytes)


def _pair_to_json(pair: Pair) -> dict[str, Any] | None:
    return None if pair is None else {"rate": pair[0], "burst": pair[1]}
