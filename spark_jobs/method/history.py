"""What the outcomes of the last nights say, topic by topic: the numbers under `evidence` that are out of sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_jobs.method.memory import Floats, Memory
from spark_jobs.method.outcomes import ORACLE, PUBLISHED
from spark_jobs.method.remember import calendar

SHOWN: Final = ("yesterday_max", ORACLE, "half", "double")
SERIES_DAYS: Final = 28


class History:
    """The outcomes of one dimension as arrays (topics x days), by family; NaN where there was no rate."""

    def __init__(self, table: pa.Table, dimension: str, keys: Sequence[tuple[str, str]], last: str) -> None:
        self.days = calendar(min(pc.min(table["day"]).as_py() or last, last), last)[-SERIES_DAYS:]
        own = table.filter(pc.and_(pc.equal(table["dimension"], dimension), pc.greater_equal(table["day"], self.days[0])))
        known = pa.array([f"{protocol}\0{topic}" for protocol, topic in keys], pa.string())
        row = _places(pc.binary_join_element_wise(own["protocol"], own["topic"], "\0"), known)
        column = _places(own["day"], pa.array(self.days, pa.string()))
        family = own["family"].to_numpy()
        self._shape = (len(keys), len(self.days))
        self._own = {name: own[name].to_numpy().astype(np.float64) for name in ("rate", "offered", "refused", "reserved")}
        self._rows = {name: np.flatnonzero((family == name) & (row >= 0)) for name in set(family.tolist())}
        self._row, self._column = row, column

    def of(self, family: str, what: str) -> Floats:
        """`what`: rate, offered, refused or reserved."""
        found = np.full(self._shape, np.nan)
        at = self._rows.get(family, np.zeros(0, np.int64))
        found[self._row[at], self._column[at]] = self._own[what][at]
        return found

    def rates_on(self, day: str) -> Floats:
        """What was in force on `day`; NaN without a quota."""
        return self.of(PUBLISHED, "rate")[:, self.days.index(day)] if day in self.days else np.full(self._shape[0], np.nan)

    def nights(self, count: int) -> list[dict[str, Any]]:
        """Per topic: what the published quotas of the last `count` nights refused and reserved, and the others on the same nights."""
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
        found = []
        for at in range(self._shape[0]):
            entry: dict[str, Any] = {"nights": int(known[at].sum()), "offered": int(sums["offered"][at])}
            entry |= {what: _short(sums[what][at]) for what in ("refused", "reserved")}
            entry |= {name: {what: _short(values[at]) for what, values in each.items()} for name, each in others.items()}
            found.append(entry)
        return found

    def series(self, memory: Memory) -> list[list[list[Any]]]:
        """Per topic, a row for each of the last days: day, mean demand per second, rate in force, refused, busiest second."""
        rates, refused = self.of(PUBLISHED, "rate"), self.of(PUBLISHED, "refused")
        count = min(memory.days, len(self.days))
        found: list[list[list[Any]]] = []
        for at in range(self._shape[0]):
            lines = []
            for back in range(count, 0, -1):
                numbers = (memory.mean[at, -back], rates[at, -back], refused[at, -back], memory.busiest[at, -back])
                mean, rate, lost, busiest = (None if np.isnan(each) else _short(float(each)) for each in numbers)
                lines.append([self.days[-back], mean, rate, lost, busiest])
            found.append(lines)
        return found


def _places(values: pa.ChunkedArray, known: pa.Array) -> NDArray[np.int64]:
    """The place of each value in `known`; -1 where it is not there."""
    return np.asarray(pc.fill_null(pc.index_in(values, value_set=known), -1).to_numpy(), np.int64)


def _short(number: float) -> float | int:
    """Six significant digits: evidence is read by people."""
    found = float(f"{number:.6g}")
    return int(found) if found == int(found) else found
