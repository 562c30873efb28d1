"""Rails of a publication: how far one quota may move at once, and the inputs that nobody believes. Pure.

A rail is measured from the live quota or from that of the same day a week ago (`week_ago` of the evidence), whichever is further, as the
job's own (`spark_jobs/method/rails.py`): from the live one alone a topic that rests on the week-end would come back on Monday with a fifth
too little, and a fleet of them would be taken each Saturday for a log that was not there.

A topic beyond its rail is **held** at it and listed; all others are published as computed. One topic that moves far is an ordinary night,
and a rail that stops everything because of it would stop most nights. **Faults** are of the whole input, and stop everything: all or most
quotas would vanish, or the sum of the rates collapses. Those are the marks of a log that was not there. A sum that falls because somebody
has lowered the capacity or the ceiling is none: it is compared with what these leave. Nor is one that falls to what it was a week ago.
Shares mean little for a few topics, so below FEW only the loss of all of them is a fault. The first publication has nothing to be compared
with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, floor, inf
from typing import Any, Final, NamedTuple

from limiter.quota_snapshot import Quota, Snapshot

FEW: Final = 20  # live quotas; below it one topic is a large share (guess)
SLACK: Final = 1.01  # times the rail; rates have few digits, so 1 % over it does not count
DIMENSIONS: Final = ("messages", "bytes")
THE_LOG: Final = "whether the access log that it is computed from is whole"

Pair = tuple[float, int] | None


@dataclass(frozen=True, slots=True)
class Rails:
    """How much may change at once. Shares are 0..1. A rate is held where it would grow by more than the factor `ratio`, or shrink by it."""

    changed_share: float = 1.0  # share of live quotas that may change; before a week-end most of them do
    removed_share: float = 0.5  # share of live quotas that may go; a guess
    total_share: float = 0.5  # share by which the sum of all rates may fall; a guess: twice what the job's own step of x0.8 can do
    ratio: float = 2.0  # factor of a rate; a guess: the nightly job itself keeps to x2 and x0.8 a topic


@dataclass(frozen=True, slots=True)
class HeldRate:
    """A rate (per second, of `dimension`) that was not to move so far: before, as computed, and as it is published."""

    protocol: str
    topic: str
    dimension: str
    before: float
    wanted: float
    held: float

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("protocol", "topic", "dimension", "before", "wanted", "held")}


def hold(live: Snapshot, new: Snapshot, rails: Rails) -> tuple[Snapshot, tuple[HeldRate, ...]]:
    """`new` with each rate within its rail, and the held rates. `new` itself where there are none."""
    before = {(quota.protocol, quota.topic): quota for quota in live.quotas}
    held: list[HeldRate] = []
    quotas: list[Quota] = []
    for quota in new.quotas:
        known = before.get((quota.protocol, quota.topic))
        quotas.append(quota if known is None else _hold_rates(known, quota, rails.ratio, held))
    return (replace(new, quotas=tuple(quotas)) if held else new), tuple(held)


def find_faults(live: Snapshot, new: Snapshot, rails: Rails, changed: int, removed: int) -> Iterator[str]:
    """Why `new`, as computed, is not believable as a whole: sentences with their way out. `changed` of the live quotas would change,
    `removed` go.
    """
    count = len(live.quotas)
    if not count:
        return
    if not new.quotas:
        way = "only `sluice quotas apply FILE --ignore-guard-rails --reason TEXT` publishes this"
        yield f"all {count} quotas would be removed (look first {THE_LOG}; {way})"
        return
    if count < FEW:
        return
    if removed > rails.removed_share * count:
        way = describe_way_out(THE_LOG, "--max-removed", removed / count)
        yield f"{removed} of {count} quotas would be removed, more than {rails.removed_share:.0%} {way}"
    if changed > rails.changed_share * count:
        way = describe_way_out(THE_LOG, "--max-changed", changed / count)
        yield f"{changed} of {count} quotas would change, more than {rails.changed_share:.0%} {way}"
    for dimension in DIMENSIONS:
        found = sum_rates(live, new, dimension)
        if found.new < (1 - rails.total_share) * found.expected:
            above = "" if found.usual == found.live else f", and to {found.usual:g} as a week ago"
            above += "" if found.expected == found.usual else f", and to {found.expected:g} by capacity and ceiling"
            way = describe_way_out(THE_LOG, "--max-total", 1 - found.new / found.expected)
            yield (
                f"the sum of all {dimension} rates would fall from {found.live:g} to {found.new:g} per second{above}, "
                f"by more than {rails.total_share:.0%} {way}"
            )


def describe_way_out(look: str, option: str, share: float) -> str:
    """The first thing to look at, and the option (a whole percentage above `share`) that lets it pass."""
    return f"(look first {look}; {option} {min(100, floor(round(100 * share, 6)) + 1)} lets this pass)"


class Sums(NamedTuple):
    """Rates per second of all topics together, but for those that a person has pinned."""

    live: float
    new: float
    usual: float  # the live rates, or those of the same day a week ago where these are lower
    expected: float  # part of `usual` that the capacity and the ceiling of `new` leave


def sum_rates(live: Snapshot, new: Snapshot, dimension: str) -> Sums:
    """The sums of one dimension. Pins come off a capacity first; the others share the rest."""
    by_hand = {(quota.protocol, quota.topic) for quota in new.quotas if is_pinned(quota, dimension)}
    last_week = {(quota.protocol, quota.topic): week_ago(quota, dimension) for quota in new.quotas}
    before, after = ([quota for quota in each.quotas if (quota.protocol, quota.topic) not in by_hand] for each in (live, new))
    ceiling, capacity = (_parameter(new, f"{name}_{dimension}") for name in ("ceiling", "capacity"))
    old = sum(_rate(quota, dimension) for quota in before)
    lesser = [min(_rate(quota, dimension), last_week.get((quota.protocol, quota.topic)) or inf) for quota in before]
    usual = sum(lesser)
    expected = sum(min(rate, ceiling) for rate in lesser) if ceiling else usual
    if capacity:
        taken = sum(_rate(quota, dimension) for quota in new.quotas if (quota.protocol, quota.topic) in by_hand)
        expected = min(expected, max(capacity - taken, 0.0))
    return Sums(old, sum(_rate(quota, dimension) for quota in after), usual, expected)


def describe_lowered(live: Snapshot, new: Snapshot, publish: Snapshot, rails: Rails) -> Iterator[str]:
    """Sentences about sums that a capacity or a ceiling lowers so far that the rails take more than one publication for it."""
    for dimension in DIMENSIONS:
        found = sum_rates(live, new, dimension)
        if (1 - rails.total_share) * found.expected <= found.new < (1 - rails.total_share) * found.usual:
            now = sum_rates(live, publish, dimension).new
            yield (
                f"capacity or ceiling lowers the sum of all {dimension} rates from {found.live:g} to {found.new:g} per second; "
                f"no topic falls below 1/{rails.ratio:g} at once, so it is {now:g} this time, and less with the next"
            )


def _rate(quota: Quota, dimension: str) -> float:
    return (get_pair(quota, dimension) or (0.0, 0))[0]


def _parameter(snapshot: Snapshot, name: str) -> float:
    """A parameter that `snapshot` was computed with; 0 where it is not known."""
    found = snapshot.parameters.get(name)
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) and found > 0 else 0.0


def get_pair(quota: Quota | None, dimension: str) -> Pair:
    """(rate per second, burst in tokens) of "messages" or "bytes"."""
    if quota is None:
        return None
    return quota.messages if dimension == "messages" else quota.bytes


def _evidence(quota: Quota, dimension: str) -> dict[str, Any]:
    found: Any = quota.evidence if dimension == "messages" else quota.evidence.get("bytes")
    return found if isinstance(found, dict) else {}


def is_pinned(quota: Quota, dimension: str = "messages") -> bool:
    """Whether a person has set it (`pins.yaml`): then no rail holds it."""
    return _evidence(quota, dimension).get("status") == "pinned"


def week_ago(quota: Quota, dimension: str) -> float | None:
    """The rate that was in force on the same day a week before the one `quota` is for; None where there was none, or nothing says so."""
    found = _evidence(quota, dimension).get("week_ago")
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) and found > 0 else None


def compute_factor(before: Pair, after: Pair) -> float:
    """The factor (at least 1) between two rates; infinite from or to nothing."""
    if before is None or after is None:
        return 1.0 if before == after else float("inf")
    low, high = sorted((before[0], after[0]))
    return 1.0 if low == high else high / low if low else float("inf")


def _hold_rates(before: Quota, quota: Quota, ratio: float, held: list[HeldRate]) -> Quota:
    """`quota` within the rails around `before`; each held rate is added to `held`."""
    texts = []
    for dimension in DIMENSIONS:
        old, new = get_pair(before, dimension), get_pair(quota, dimension)
        if is_pinned(quota, dimension):
            continue
        if old is None or new is None or old[0] == 0:  # from 0 every step is infinite: let it go
            continue
        last_week = week_ago(quota, dimension)
        least, most = (rate if last_week is None else further(rate, last_week) for rate, further in ((old[0], min), (old[0], max)))
        if least <= new[0] * ratio * SLACK and new[0] <= most * ratio * SLACK:
            continue
        grows = new[0] > most
        rate = float(f"{most * ratio if grows else least / ratio:.6g}")
        burst = max(1, min(ceil(old[1] * ratio * most / old[0]), max(int(old[1] / ratio * least / old[0]), new[1])))
        held.append(HeldRate(quota.protocol, quota.topic, dimension, old[0], new[0], rate))
        of = " of a week ago" if (most if grows else least) != old[0] else ""
        texts.append(f"{dimension}: one night may at most {describe_step(ratio, grows)} the quota{of}")
        quota = replace(quota, messages=(rate, burst)) if dimension == "messages" else replace(quota, bytes=(rate, burst))
    if not texts:
        return quota
    reason = "; ".join([*filter(None, [str(quota.evidence.get("reason") or "")]), *texts])
    status = "pinned" if quota.evidence.get("status") == "pinned" else "held"
    return replace(quota, evidence={**quota.evidence, "status": status, "reason": reason})


def describe_step(ratio: float, grows: bool) -> str:  # noqa: FBT001 - one way or the other
    """The most that a publication may do to a rate, as a verb."""
    if ratio == 2:
        return "double" if grows else "halve"
    return f"multiply by {ratio:g}" if grows else f"divide by {ratio:g}"
