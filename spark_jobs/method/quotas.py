"""The quotas of the snapshot, made of the night's decisions, with their evidence; and the lists of topics that are not simply computed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from typing import Any, Final, NamedTuple

import numpy as np

from limiter.quota_snapshot import JSON, MAX_PER_SECOND, Quota, Snapshot
from limiter.topics import parse_topic
from spark_jobs.method.decide import Decided
from spark_jobs.method.history import History
from spark_jobs.method.memory import Floats, Ints, Memory, find_greatest, mean_of
from spark_jobs.method.pins import Pin
from spark_jobs.parameters import Parameters
from spark_jobs.report.words import TIMES, number_text, rate_text

NIGHTS: Final = (7, 28)
UNITS: Final = {"messages": "messages", "bytes": "bytes"}


class ToldDimension(NamedTuple):
    """One dimension of the night: its memory, the decision, and the outcomes of earlier nights."""

    memory: Memory
    decided: Decided
    history: History
    k: float
    family: str
    week_ago: Floats  # rates in force on the same day a week before the one to come; NaN: none
    refused_days: Ints  # days on which nothing of the topic passed and some of it was refused
    refused_hours: Ints  # topics x hours of the day: refused over the last seven days


class Quotas:
    """The quotas of the night, made one by one when they are asked for: their evidence as Python's objects is 20 KB a topic."""

    def __init__(
        self,
        keys: Sequence[tuple[str, str]],
        told: Mapping[str, Facts],
        pins: Sequence[Pin],
        previous: Snapshot | None,
        date: str,
        parameters: Parameters,
        shares: Sequence[Mapping[str, float]],
    ) -> None:
        self._keys, self._told, self._shares = keys, told, shares
        self._pins = {(pin.protocol, pin.topic): pin for pin in pins if pin.holds_after(date)}
        known = set(keys)
        others = [
            Quota(*key, pin.messages, pin.bytes, {"status": "pinned", "reason": f"pinned: {pin.reason}", "would_refuse": None})
            for key, pin in self._pins.items()
            if key not in known
        ]
        if previous is not None:
            others += keep_unseen_quotas(previous, {(quota.protocol, quota.topic) for quota in others} | known, parameters.remember_days)
        self._others = sorted(others, key=_key)

    def list_topics(self) -> dict[str, JSON]:
        """`learning`, `held`, `pinned`: lists of {protocol, topic, reason}."""
        lists: dict[str, list[JSON]] = {"learning": [], "held": [], "pinned": []}
        for at, key in enumerate(self._keys):
            pin = self._pins.get(key)
            status, reason = self._told["messages"].status(at) if pin is None else ("pinned", pin.reason)
            if status in lists:
                lists[status].append(_make_entry(key, reason))
        own = set(self._keys)
        lists["pinned"] += [_make_entry(key, pin.reason) for key, pin in sorted(self._pins.items()) if key not in own]
        return {name: list(each) for name, each in lists.items()}

    def __iter__(self) -> Iterator[Quota]:
        """In order of protocol and topic."""
        return merge(self._make_quotas(), self._others, key=_key)

    def _make_quotas(self) -> Iterator[Quota]:
        for at, key in enumerate(self._keys):
            found = {dimension: each.make_evidence(at) for dimension, each in self._told.items()}
            quota = _make_quota(key, at, self._told, found, self._pins.get(key), self._shares[at])
            if quota is not None:
                yield quota


def _key(quota: Quota) -> tuple[str, str]:
    return quota.protocol, quota.topic


def keep_unseen_quotas(previous: Snapshot, known: set[tuple[str, str]], remember_days: int) -> list[Quota]:
    """Quotas of topics that no remembered day has seen: as they are, marked; deleting one is an operator's choice. A known topic that is
    only written otherwise there has its quota already."""
    note: JSON = f"kept: not seen for {remember_days} days; delete it by hand if the topic is gone"
    return [
        Quota(
            each.protocol,
            each.topic,
            each.messages,
            each.bytes,
            {**each.evidence, "status": "kept", "reason": note, "would_refuse": None, "week_ago": None},
        )
        for each in previous.quotas
        if (each.protocol, each.topic) not in known and (each.protocol, parse_topic(each.protocol, each.topic).text()) not in known
    ]


def round_rate(rate: float) -> float:
    """Six significant digits, and at most six decimals: the gateway reads back the same number."""
    return min(round(float(f"{rate:.6g}"), 6), float(MAX_PER_SECOND))


class Facts:
    """The evidence of one dimension, made for each topic when it is asked for. It keeps one value a topic of each, and four of each day."""

    def __init__(self, dimension: str, told: ToldDimension) -> None:
        memory = told.memory
        self.decided = told.decided
        self._dimension, self._k, self._family, self._week_ago = dimension, told.k, told.family, told.week_ago
        self._nights = {count: told.history.sum_nights(count) for count in NIGHTS}
        self._series = told.history.collect_series(memory)
        self._days, self._top = memory.count_active_days(), find_greatest(memory.busiest)
        self._p99, self._mean = mean_of(memory.p99[:, -7:]), mean_of(memory.mean[:, -7:])
        self._refused_days, self._refused_hours = told.refused_days, told.refused_hours

    def make_evidence(self, at: int) -> dict[str, Any]:
        decided = self.decided
        status, reason = self.status(at)
        seven = self._nights[7][at]
        return {
            "days": int(self._days[at]), "largest": int(decided.largest[at]),
            "mean": _number(self._mean[at]), "p99": _number(self._p99[at]), "max": _number(self._top[at]),
            "forecast": _number(decided.shape.level[at]), "peakiness": _number(decided.shape.peakiness[at]),
            "lower": _number(decided.lower[at]), "target": _number(decided.wanted[at]), "upper": _number(decided.upper[at]),
            "k": _number(self._k), "family": self._family, "status": status, "reason": reason, "week_ago": _number(self._week_ago[at]),
            "would_refuse": round(seven["refused"] / seven["offered"], 6) if seven["offered"] else None,
            "nights7": seven, "nights28": self._nights[28][at], "series": self._series[at],
            "refused_hours": self._refused_hours[at].tolist() if self._refused_hours[at].any() else [],
        }  # fmt: skip

    def status(self, at: int) -> tuple[str, str]:
        """The topic's status, and its reason."""
        dimension, decided = self._dimension, self.decided
        if decided.learning[at]:
            days, refused = int(self._days[at]), int(self._refused_days[at])
            if not days and refused:
                return "learning", f"learning: only refused, on {refused} day{'' if refused == 1 else 's'}; the rule of the file stands"
            return "learning", f"learning: seen on {days} day{'' if days == 1 else 's'}; the rule of the file stands"
        if np.isnan(decided.rates[at]):
            return "learning", "learning: nothing is known of it yet; the rule of the file stands"
        level, peak, wanted = (float(each[at]) for each in (decided.shape.level, decided.shape.peakiness, decided.wanted))
        reason = (
            f"{rate_text(dimension, level)} expected {TIMES} {number_text(peak)} for its busiest seconds "
            f"{TIMES} {number_text(self._k)} for safety"
        )
        if self._family != "quota":
            reason = f"{self._family} at the same reserve as the method"
        now = rate_text(dimension, float(decided.rates[at]))
        if decided.cut[at]:
            return "held" if decided.held[
                at
            ] else "quota", f"{reason} = {rate_text(dimension, wanted)}; {self._describe_cut(at)} leaves it {now}"
        if decided.held[at]:
            return "held", f"{reason} = {rate_text(dimension, wanted)}; one night may move it no further than to {now}"
        if decided.kept[at]:
            reason += f" = {rate_text(dimension, wanted)}; the quota of {now} is near enough, and stays"
        elif decided.rates[at] < wanted * (1 - 1e-9):
            reason += f" = {rate_text(dimension, wanted)}; {self._describe_cut(at)} leaves it {now}"
        return "quota", reason

    def _describe_cut(self, at: int) -> str:
        decided = self.decided
        if decided.ceiling and decided.rates[at] >= decided.ceiling * (1 - 1e-9):
            return f"the ceiling of {rate_text(self._dimension, decided.ceiling)}"
        if not decided.capacity:
            return "the ceiling or the capacity"
        whole = f"the capacity of {rate_text(self._dimension, decided.capacity)}"
        return f"{whole}, less the {rate_text(self._dimension, decided.fixed)} of pins," if decided.fixed else whole


def _make_quota(
    key: tuple[str, str],
    at: int,
    told: Mapping[str, Facts],
    found: Mapping[str, dict[str, Any]],
    pin: Pin | None,
    shares: Mapping[str, float],
) -> Quota | None:
    """The quota of one topic; None while it is learning and not pinned. Marks `found` where a pin wins."""
    pairs: dict[str, tuple[float, int] | None] = {}
    hourly: dict[str, float | None] = {}
    for dimension, each in told.items():
        rate, burst, factor = (float(values[at]) for values in (each.decided.rates, each.decided.bursts, each.decided.hourly))
        pairs[dimension] = None if np.isnan(rate) else (round_rate(rate), int(min(max(burst, 1), MAX_PER_SECOND)))
        hourly[dimension] = None if np.isnan(rate) or not 0 < factor < 1e6 else float(f"{factor:.6g}")
    if pin is not None:
        for dimension, pinned in (("messages", pin.messages), ("bytes", pin.bytes)):
            if pinned is not None:
                pairs[dimension], hourly[dimension] = (round_rate(pinned[0]), pinned[1]), None
                found[dimension]["status"], found[dimension]["reason"] = "pinned", f"pinned: {pin.reason}"
        if found["messages"]["status"] != "pinned":
            found["messages"]["status"] = "pinned"
    if pairs["messages"] is None and pairs["bytes"] is None:
        return None
    evidence: dict[str, Any] = dict(found["messages"])
    evidence["reason_bytes"] = found["bytes"]["reason"]
    evidence["bytes"] = found["bytes"]
    evidence["gateways"] = {name: round(share, 4) for name, share in shares.items()}
    return Quota(*key, pairs["messages"], pairs["bytes"], evidence, hourly["messages"], hourly["bytes"])


def _make_entry(key: tuple[str, str], reason: str) -> JSON:
    return {"protocol": key[0], "topic": key[1], "reason": reason}


def _number(value: float) -> float | int | None:
    if np.isnan(value):
        return None
    short = float(f"{value:.6g}")
    return int(short) if short == int(short) else short
