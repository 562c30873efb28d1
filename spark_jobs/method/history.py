"""The outcomes of the last nights, topic by topic: the numbers under `evidence` that are out of sample."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import isnan
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_jobs.method.memory import Floats, Memory
from spark_jobs.method.missing import list_days_back
from spark_jobs.method.outcomes import ORACLE, PUBLISHED
from spark_jobs.method.remember import list_days
from spark_jobs.state.remembered import TopicPlaces, find_places

SHOWN: Final = ("yesterday_max", ORACLE, "half", "double")
SERIES_DAYS: Final = 28


class History:
    """The outcomes of one dimension as arrays (topics x days), by family; NaN where there was no rate."""

    def __init__(self, tables: Iterable[pa.Table], dimension: str, keys: Sequence[tuple[str, str]], last: str) -> None:
        """`tables`: rows of OUTCOMES, each with whole days."""
        days = list_days_back(last, SERIES_DAYS)
        known, first = TopicPlaces(keys), last
        self._arrays = {(PUBLISHED, what): np.full((len(keys), len(days)), np.nan) for what in ("rate", "offered", "refused", "reserved")}
        self._arrays |= {(name, what): np.full((len(keys), len(days)), np.nan) for name in SHOWN for what in ("refused", "reserved")}
        for table in tables:
            first = min(pc.min(table["day"]).as_py() or last, first)
            own = table.filter(pc.and_(pc.equal(table["dimension"], dimension), pc.greater_equal(table["day"], days[0])))
            row, column = known.find(own), find_places(own["day"], pa.array(days, pa.string()))
            for name in (PUBLISHED, *SHOWN):
                at = np.flatnonzero(pc.equal(own["family"], name).to_numpy() & (row >= 0) & (column >= 0))
                for (family, what), filled in self._arrays.items():
                    if family == name:
                        filled[row[at], column[at]] = own[what].to_numpy()[at]
        self.days = days[-len(list_days(first, last)) :]

    def of(self, family: str, what: str) -> Floats:
        """`what`: refused or reserved; of the published quotas also rate and offered."""
        return self._arrays[family, what][:, -len(self.days) :]

    def rates_on(self, day: str) -> Floats:
        """The rates in force on `day`; NaN without a quota."""
        rates = self.of(PUBLISHED, "rate")
        return rates[:, self.days.index(day)].copy() if day in self.days else np.full(len(rates), np.nan)

    def sum_nights(self, count: int) -> TopicHistories:
        """Per topic: refused and reserved by the published quotas of the last `count` nights, and by the others on the same nights."""
        recent = slice(-count, None)
        published = {what: self.of(PUBLISHED, what)[:, recent] for what in ("offered", "refused", "reserved")}
        known: NDArray[np.bool_] = ~np.isnan(published["offered"])
        sums = {what: np.where(known, values, 0.0).sum(axis=1) for what, values in published.items()}
        others = {
            name: {
                what: np.where(known, np.nan_to_num(self.of(name, what)[:, recent]), 0.0).sum(axis=1) for what in ("refused", "reserved")
            }
            for name in SHOWN
        }
        nights = known.sum(axis=1)

        def of(at: int) -> dict[str, Any]:
            entry: dict[str, Any] = {"nights": int(nights[at]), "offered": int(sums["offered"][at])}
            entry |= {what: _round_number(sums[what][at]) for what in ("refused", "reserved")}
            return entry | {name: {what: _round_number(values[at]) for what, values in each.items()} for name, each in others.items()}

        return TopicHistories(len(nights), of)

    def collect_series(self, memory: Memory) -> TopicHistories:
        """Per topic, a row for each of the last days: day, mean demand per second, rate in force, refused, busiest second."""
        count = min(memory.days, len(self.days))
        days = self.days[len(self.days) - count :]
        own = (memory.mean, self.of(PUBLISHED, "rate"), self.of(PUBLISHED, "refused"), memory.busiest)
        columns = [values[:, values.shape[1] - count :].copy() for values in own]

        def of(at: int) -> list[list[Any]]:
            rows = zip(*(values[at].tolist() for values in columns), strict=True)
            return [[day, *(None if isnan(each) else _round_number(each) for each in row)] for day, row in zip(days, rows, strict=True)]

        return TopicHistories(len(memory.keys), of)


class TopicHistories(Sequence[Any]):
    """Each topic's history, made when it is asked for: Python's objects take ten times as much memory as the arrays."""

    def __init__(self, count: int, of: Callable[[int], Any]) -> None:
        self._count, self._of = count, of

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, at: Any) -> Any:
        if not 0 <= at < self._count:
            raise IndexError(at)
        return self._of(at)


def _round_number(number: float) -> float | int:
    """Six significant digits: evidence is read by people."""
    found = float(f"{number:.6g}")
    return int(found) if found == int(found) else found
