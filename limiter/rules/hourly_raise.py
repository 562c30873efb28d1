"""The intraday raise: the published quotas as they hold in this hour and minute, from the demand of the last ones.

A quota published at night follows growth a day late: on the day itself a topic that grows is strangled until the next night. So at each
full hour (`quotas.hourly_raise`), and every ten seconds (`quotas.surge_raise`, limiter.rules.surges), where they are switched on::

    rate  = max(published rate, hourly x last hour's mean demand, what a surge asks for), at most hourly_raise_max x the published rate
    burst = the published one, in proportion

`hourly` is a factor of the quota's own (`limiter.quota_snapshot`): how many times an hour's mean the least rate is that hardly refuses.
The published quota is the floor: without demand, or without the factor, it holds.

The naive way would store a raised quota per topic. Quotas published within the hour would then be raised by factors of the old ones. So
only the demand is stored, and the quota is raised when the rules of a key are matched: some hundred nanoseconds, for keys only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from limiter.limits import MAX_PER_SECOND
from limiter.rules.matching import group_text

if TYPE_CHECKING:
    from limiter.quota_snapshot import Quota
    from limiter.topics import TopicName

Demand = Mapping[tuple[str, str], tuple[float, float]]  # protocol, topic or group as text -> mean messages and bytes per second

SLICE: Final = 256  # quotas looked at in one go: 0.3 ms
DIGITS: Final = 3  # significant digits of a raised rate: half a percent at most, and people can read it
PLACES: Final = 6  # decimals that a rate is read to (`limits.per_second`)


class HourlyRaise:
    """What each topic asked for in the last hour, what its surge asks for now, and how far its quota may be raised for that. Immutable."""

    __slots__ = ("demand", "most", "surges")

    def __init__(self, demand: Demand, most: float, surges: Demand | None = None) -> None:
        """`most`: times the published rate. `surges`: rates wanted now, of the topics that have a surge (`Surges.wanted`)."""
        self.demand = demand
        self.most = most
        self.surges = {} if surges is None else surges

    def raise_quota(self, quota: Quota, text: str) -> Quota | None:
        """The published `quota` of the topic or group `text` as it holds in this hour; None where that is the published one."""
        place = (quota.protocol, text)
        found, surge = self.demand.get(place), self.surges.get(place)
        if found is None and surge is None:
            return None
        mean, wanted = found or (0.0, 0.0), surge or (0.0, 0.0)
        messages = raise_rate(quota.messages, quota.hourly_messages, mean[0], self.most, wanted[0])
        size = raise_rate(quota.bytes, quota.hourly_bytes, mean[1], self.most, wanted[1])
        if messages == quota.messages and size == quota.bytes:
            return None
        return replace(quota, messages=messages, bytes=size)

    def raise_all(self, quotas: Mapping[TopicName, Quota]) -> Iterator[list[tuple[Quota, Quota]]]:
        """Each quota that is raised, with what it is raised to, in slices."""
        known = list(quotas.items())
        for first in range(0, len(known), SLICE):
            found: list[tuple[Quota, Quota]] = []
            for name, quota in known[first : first + SLICE]:
                after = self.raise_quota(quota, self.text_of(name))
                if after is not None:
                    found.append((quota, after))
            yield found

    def text_of(self, name: TopicName) -> str:
        """What the demand of the topic or group `name` is counted under."""
        if name.topic.endswith(b"#"):
            group = group_text(name)
            if (name.protocol, group) in self.demand or (name.protocol, group) in self.surges:
                return group
        return name.text()

    def __repr__(self) -> str:
        return f"<HourlyRaise topics={len(self.demand)} surges={len(self.surges)} most={self.most:g}x>"


def raise_rate(
    pair: tuple[float, int] | None, hourly: float | None, demand: float, most: float, surge: float = 0.0
) -> tuple[float, int] | None:
    """A rate per second with its burst as it holds in this hour. A rate of 0 stays: it refuses everything on purpose. So does one without
    a factor: a person has set it."""
    if pair is None or hourly is None:
        return pair
    rate, burst = pair
    highest = min(most * rate, float(MAX_PER_SECOND))
    wanted = min(round(float(f"{min(max(hourly * demand, surge), highest):.{DIGITS}g}"), PLACES), highest)
    if wanted <= rate:
        return pair
    return wanted, math.ceil(burst * wanted / rate)
