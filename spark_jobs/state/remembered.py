"""The rows of remembered days, some days at a time: all rows of 200,000 topics and sixty days would take ten times a driver's memory.

Few rows are read once and kept, so that a small state elsewhere is asked for once and not for each pass.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

MOST_ROWS: Final = 400_000  # rows read at a time, and kept where there are no more: some 200 MB

Key = tuple[str, str]  # protocol, topic
Read = Callable[[Sequence[str], Sequence[str]], pa.Table]  # days, and names of columns → their rows


class Remembered:
    """One table of several days. `read` reads it; `rows_a_day`: about how many rows a day has."""

    def __init__(self, read: Read, days: Sequence[str], rows_a_day: int, kept: Sequence[str] = ()) -> None:
        """`kept`: the columns that are read once, where there are few rows; others are read each time."""
        self._read = read
        self._days = days
        self._step = max(MOST_ROWS // max(rows_a_day, 1), 1)
        self._kept = kept if len(days) <= self._step else ()
        self._known: pa.Table | None = None

    def read_tables(self, names: Sequence[str], days: Collection[str] | None = None) -> Iterator[pa.Table]:
        """The columns `names` of all days, or of those of `days`; each day is in one table. Without a day
        there is one table without rows."""
        wanted = [day for day in self._days if days is None or day in days]
        if wanted and set(names) <= set(self._kept):
            if self._known is None:
                self._known = self._read(self._days, self._kept)
            found = self._known.select(list(names))
            yield found if days is None else found.filter(pc.is_in(self._known["day"], pa.array(wanted, pa.string())))
            return
        for first in range(0, max(len(wanted), 1), self._step):
            yield self._read(wanted[first : first + self._step], names)


class TopicPlaces:
    """The place of a row's topic among `keys`."""

    def __init__(self, keys: Sequence[Key]) -> None:
        self._known = pa.array([f"{protocol}\0{topic}" for protocol, topic in keys], pa.string())

    def find(self, rows: pa.Table) -> NDArray[np.int64]:
        """The place of each row's topic; -1 where it is not there."""
        return find_places(pc.binary_join_element_wise(rows["protocol"], rows["topic"], "\0"), self._known)


def find_places(values: pa.ChunkedArray, known: pa.Array) -> NDArray[np.int64]:
    """The place of each value in `known`; -1 where it is not there."""
    return np.asarray(pc.fill_null(pc.index_in(values, value_set=known), -1).to_numpy(), np.int64)
