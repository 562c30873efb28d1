"""Gateways: each one's share of each topic's demand, and the factors for a day without some of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.method.memory import Floats, Ints
from spark_jobs.method.remember import combine_chunks, drop_only_refused, list_days
from spark_jobs.state.manifest import Manifest
from spark_jobs.state.remembered import Remembered, TopicPlaces

SHARE_DAYS: Final = 7
GATEWAYS: Final = ("day", "protocol", "topic", "dimension", "passed", "refused", "gateways")  # columns
MAX_SHARE: Final = 0.9  # a topic that had more than this at the missing gateways is not known that day: its level would be a tenfold guess


class GatewayShares(Sequence[dict[str, float]]):
    """Per topic: gateway -> its share of the counted demand of some days. As arrays: 200,000 topics at 25 gateways are 5 M shares."""

    def __init__(self, topics: int) -> None:
        self._count = topics
        self._numbers: dict[str, int] = {}  # gateway -> its number, in order of `_names`
        self._names: list[str] = []
        self._topic = self._gateway = self._total = np.zeros(0, np.int64)

    def add(self, row: Ints, gateways: pa.ListArray) -> None:
        """Add the column `gateways` of rows of these topics."""
        owner = np.repeat(row, np.asarray(pc.fill_null(pc.list_value_length(gateways), 0)).astype(np.int64))
        shares = gateways.flatten()
        names = shares.field("gateway").dictionary_encode()
        numbers = np.array([self._numbers.setdefault(name, len(self._numbers)) for name in names.dictionary.to_pylist()], np.int64)
        self._names = list(self._numbers)
        topic = np.concatenate([self._topic, owner])
        gateway = np.concatenate([self._gateway, numbers[names.indices.to_numpy(zero_copy_only=False)]])
        total = np.concatenate([self._total, shares.field("total").to_numpy(zero_copy_only=False)])
        order = np.lexsort((gateway, topic))
        topic, gateway, total = topic[order], gateway[order], total[order]
        first = np.flatnonzero(np.concatenate([[True], (topic[1:] != topic[:-1]) | (gateway[1:] != gateway[:-1])])) if len(topic) else order
        self._topic, self._gateway = topic[first], gateway[first]
        self._total = np.add.reduceat(total, first) if len(first) else total

    def of_gateway(self, name: str) -> Floats:
        """The gateway's share of each topic."""
        whole, own = (np.zeros(self._count, np.int64) for _ in range(2))
        np.add.at(whole, self._topic, self._total)
        at = self._gateway == self._numbers.get(name, -1)
        own[self._topic[at]] = self._total[at]
        return np.divide(own, whole, out=np.zeros(self._count), where=whole > 0)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> dict[str, float]: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[dict[str, float]]: ...

    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice):
            return [self[each] for each in range(*at.indices(self._count))]
        if not 0 <= at < self._count:
            raise IndexError(at)
        first, last = np.searchsorted(self._topic, [at, at + 1])
        whole = int(self._total[first:last].sum())
        if not whole:
            return {}
        own = zip(self._gateway[first:last].tolist(), self._total[first:last].tolist(), strict=True)
        return dict(sorted((self._names[gateway], total / whole) for gateway, total in own))


def compute_gateway_shares(topics: Remembered, last: str, keys: Sequence[tuple[str, str]], dimension: str = "messages") -> GatewayShares:
    """Per topic: gateway -> its share of the counted demand of the seven days up to `last`. A day on which the topic was only refused does
    not count."""
    places, found = TopicPlaces(keys), GatewayShares(len(keys))
    for rows in topics.read_tables(GATEWAYS, set(list_days_back(last, SHARE_DAYS))):
        own = drop_only_refused(rows.filter(pc.equal(rows["dimension"], dimension)))
        found.add(places.find(own), combine_chunks(own["gateways"]))
    return found


def list_days_back(last: str, count: int) -> list[str]:
    """The `count` days up to `last`."""
    from datetime import date, timedelta

    first = date.fromisoformat(last) - timedelta(days=count - 1)
    return list_days(first.isoformat(), last)


def compute_missing_factors(
    topics: Remembered, days: Sequence[Manifest], dimension: str, keys: Sequence[tuple[str, str]]
) -> Mapping[str, Floats]:
    """For each day without some gateways (--allow-partial): the factor of each topic's demand, from the share that those gateways had on
    the seven days up to the newest one that had them; NaN where that was nearly all."""
    found = {}
    shares: dict[str, GatewayShares] = {}
    for at, day in enumerate(days):
        if not day.missing_gateways or not at:
            continue
        lost = np.zeros(len(keys))
        for name in day.missing_gateways:
            before = next((each for each in reversed(days[:at]) if each.has_gateway(name)), None)
            if before is None:  # forgotten: its share is not known any more
                continue
            usual, here = before.gateways[name]["seconds"], day.gateways.get(name, {}).get("seconds", 0)
            if before.date not in shares:
                shares[before.date] = compute_gateway_shares(topics, before.date, keys, dimension)
            lost += (1 - min(here / usual, 1.0)) * shares[before.date].of_gateway(name)
        found[day.date] = np.where(lost > MAX_SHARE, np.nan, 1 / np.maximum(1 - lost, 1 - MAX_SHARE))
    return found
