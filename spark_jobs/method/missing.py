"""Gateways: how each topic's demand is divided among them, and what a day without some of them has to be multiplied with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.method.memory import Floats
from spark_jobs.method.remember import calendar
from spark_jobs.state.manifest import Manifest

SHARE_DAYS: Final = 7
MAX_SHARE: Final = 0.9  # a topic that had more than this at the missing gateways is not known that day: its level would be a tenfold guess


def gateway_shares(topics: pa.Table, last: str, keys: Sequence[tuple[str, str]], dimension: str = "messages") -> list[dict[str, float]]:
    """Per topic: gateway -> its share of the counted demand of the seven days up to `last`."""
    days = set(calendar_back(last, SHARE_DAYS))
    own = topics.filter(pc.and_(pc.equal(topics["dimension"], dimension), pc.is_in(topics["day"], pa.array(sorted(days)))))
    place = {key: at for at, key in enumerate(keys)}
    sums: list[dict[str, int]] = [{} for _ in keys]
    for protocol, topic, gateways in zip(own["protocol"].to_pylist(), own["topic"].to_pylist(), own["gateways"].to_pylist(), strict=True):
        found = sums[place[protocol, topic]]
        for each in gateways or ():
            found[each["gateway"]] = found.get(each["gateway"], 0) + each["total"]
    return [{name: part / whole for name, part in sorted(each.items())} if (whole := sum(each.values())) else {} for each in sums]


def calendar_back(last: str, count: int) -> list[str]:
    """The `count` days up to `last`."""
    from datetime import date, timedelta

    first = date.fromisoformat(last) - timedelta(days=count - 1)
    return calendar(first.isoformat(), last)


def factors(topics: pa.Table, days: Sequence[Manifest], dimension: str, keys: Sequence[tuple[str, str]]) -> Mapping[str, Floats]:
    """For each day without some gateways (--allow-partial): what each topic's demand is multiplied with, by the share that those gateways
    had on the seven days up to the newest one that had them; NaN where that was nearly all."""
    found = {}
    shares: dict[str, list[dict[str, float]]] = {}
    for at, day in enumerate(days):
        if not day.missing_gateways or not at:
            continue
        lost = np.zeros(len(keys))
        for name in day.missing_gateways:
            before = next((each for each in reversed(days[:at]) if each.had(name)), None)
            if before is None:  # forgotten: its share is not known any more
                continue
            usual, here = before.gateways[name]["seconds"], day.gateways.get(name, {}).get("seconds", 0)
            if before.date not in shares:
                shares[before.date] = gateway_shares(topics, before.date, keys, dimension)
            lost += (1 - min(here / usual, 1.0)) * np.array([share.get(name, 0.0) for share in shares[before.date]])
        found[day.date] = np.where(lost > MAX_SHARE, np.nan, 1 / np.maximum(1 - lost, 1 - MAX_SHARE))
    return found
