"""Sorts the lines of an hour by topic and second within bounded memory, and writes them as one Parquet file.

All of an hour at once would take a gigabyte for five million lines. So RUN_ROWS at a time are sorted and put aside as a run, and the runs
are merged: of each a batch is in memory, and what is not above the least of the batches' last rows is sorted and written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import ipc

from common.log_files.columns import LINE

RUN_ROWS: Final = 250_000  # lines; sorted at once: 60 MB, and as much again while they are sorted (measured 2026-11)
BATCH_ROWS: Final = 16_384  # lines of a run that are in memory while runs are merged
GROUP_ROWS: Final = 131_072  # lines of a row group: what a reader of one topic reads at least (a guess)

Key = tuple[str, int]  # topic ("": a heartbeat) and second


class Sorter:
    """Takes tables of lines in any order; `write` makes the file."""

    def __init__(self, scratch: Path) -> None:
        """`scratch` is an empty folder for the runs."""
        self.rows = 0
        self.runs: list[Path] = []
        self._scratch = scratch
        self._tables: list[Any] = []
        self._waiting = 0

    def add(self, table: Any) -> None:
        self._tables.append(table)
        self._waiting += table.num_rows
        self.rows += table.num_rows
        if self._waiting >= RUN_ROWS:
            self._put_aside()

    def _take(self) -> Any:
        table = in_order(pa.concat_tables(self._tables) if self._tables else LINE.empty_table())
        self._tables, self._waiting = [], 0
        return table

    def _put_aside(self) -> None:
        path = self._scratch / f"run-{len(self.runs)}"
        with ipc.new_file(path, LINE, options=ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(self._take(), max_chunksize=BATCH_ROWS)
        self.runs.append(path)

    def write(self, path: Path, metadata: dict[str, str]) -> None:
        """All lines, sorted, as a Parquet file at `path`. Raises OSError."""
        schema = LINE.with_metadata(metadata)
        sorting = pq.SortingColumn.from_ordering(schema, [("topic", "ascending"), ("ts", "ascending")], null_placement="at_start")
        with pq.ParquetWriter(path, schema, compression="zstd", sorting_columns=sorting) as writer:
            if not self.runs:
                writer.write_table(self._take(), row_group_size=GROUP_ROWS)
                return
            if self._tables:
                self._put_aside()
            _merge([Run(each) for each in self.runs], writer)


class Run:
    """One sorted run, of which a part is in memory."""

    def __init__(self, path: Path) -> None:
        self._file = ipc.open_file(pa.memory_map(str(path)))
        self._next = 0
        self.rows = LINE.empty_table()
        self.fill()

    def fill(self) -> None:
        """Have rows in memory while there are some."""
        while not self.rows.num_rows and self._next < self._file.num_record_batches:
            self.rows = pa.Table.from_batches([self._file.get_batch(self._next)], LINE)
            self._next += 1

    @property
    def last(self) -> Key:
        """The key of the last row in memory, after which all that is not there comes."""
        row = self.rows.slice(self.rows.num_rows - 1, 1)
        return row["topic"][0].as_py() or "", row["ts"][0].as_py()

    @property
    def read_to_the_end(self) -> bool:
        return bool(self._next == self._file.num_record_batches)

    def take(self, bound: Key | None) -> Any:
        """The rows in memory up to `bound`; None: all of them."""
        count = self.rows.num_rows if bound is None else _count_to(self.rows, bound)
        taken = self.rows.slice(0, count)
        self.rows = self.rows.slice(count)
        self.fill()
        return taken


def _count_to(rows: Any, bound: Key) -> int:
    topics = pc.fill_null(rows["topic"], "")
    within = pc.or_(
        pc.less(topics, bound[0]), pc.and_(pc.equal(topics, bound[0]), pc.less_equal(rows["ts"], pa.scalar(bound[1], pa.int64())))
    )
    return int(pc.sum(within).as_py() or 0)


def _merge(runs: list[Run], writer: Any) -> None:
    waiting: list[Any] = []
    count = 0
    while runs := [run for run in runs if run.rows.num_rows]:
        unread = [run.last for run in runs if not run.read_to_the_end]
        bound = min(unread) if unread else None
        part = in_order(pa.concat_tables([run.take(bound) for run in runs]))
        waiting.append(part)
        count += part.num_rows
        if count >= GROUP_ROWS:
            whole = pa.concat_tables(waiting)
            writer.write_table(whole.slice(0, GROUP_ROWS))
            waiting = [whole.slice(GROUP_ROWS)]
            count -= GROUP_ROWS
    if count:
        writer.write_table(pa.concat_tables(waiting))


def in_order(table: Any) -> Any:
    """`table` by topic (heartbeats first) and second; lines of the same second stay as they come."""
    if table.num_rows < 2:
        return table
    coded = pc.fill_null(table["topic"], "").combine_chunks().dictionary_encode()
    names = coded.dictionary
    ranks = np.empty(len(names), np.int64)
    ranks[pc.sort_indices(names).to_numpy(zero_copy_only=False)] = np.arange(len(names))
    rank = ranks[coded.indices.to_numpy(zero_copy_only=False)]
    return table.take(pa.array(np.lexsort((table["ts"].to_numpy(), rank))))
