"""A small day without Spark: its lines read by Arrow and added up by numpy in this process, as the workers do it (`arrow_lines`, `usage`).

A JVM costs thirty seconds of processor time before it has read a line, and a small day has a second's work. But lines can be odd in many
ways, and Spark alone decides which are corrupt, duplicates or of an incident. So this module knows good lines only: it raises
NeedsSparkError at the first line that is not plain, nothing is written, and Spark reads the day. Both make the same table (a test).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_jobs.errors import NeedsSparkError
from spark_jobs.log.arrow_lines import ARROW_TYPES, count_lines, cut_into_pieces, gather_blocks, parse_fields, read_whole_lines
from spark_jobs.log.parse import MAX_COUNT, MAX_SEQ, hours_of
from spark_jobs.log.read import CODECS, COMPACTED
from spark_jobs.log.sequence import FileCount, GatewayCount, LineCounts, Stretch
from spark_jobs.log.usage import PLACE, TopicRows, make_quota_filter
from spark_jobs.schemas import COUNTS, KEY, LINE_FIELDS
from spark_jobs.state.tables import PART

if TYPE_CHECKING:
    from pathlib import Path

    from spark_jobs.days import Day
    from spark_jobs.log.files import StoredLogFile

FIELDS: Final = pa.schema([(field.name, ARROW_TYPES[field.dataType.simpleString()]) for field in LINE_FIELDS.fields])
NAMES: Final = (*KEY, "gateway", "boot", "operation")  # columns of few different texts in many lines


class PlainDay(NamedTuple):
    """The good lines of a day, each there once, and their counts."""

    rows: pa.Table
    counts: LineCounts

    def write(self, folder: Path, day: Day, observed: NDArray[np.bool_], storm_share_ppm: int) -> None:
        """Write the table `topics` of the day into `folder`, which exists."""
        from pyarrow.parquet import ParquetWriter

        make = TopicRows(day, observed, (), storm_share_ppm, make_quota_filter(), few=True)
        path = folder / PART
        try:
            with ParquetWriter(path, make.schema) as file:
                for table in make.make_tables(iter(self._sort_by_topic().to_batches())):
                    file.write_table(table)
        except OSError as error:  # pyarrow's has no path
            raise OSError(f"--state: {path} cannot be written: {error}") from error

    def _sort_by_topic(self) -> pa.Table:
        """The lines of topics, brought together by topic, as `usage.select_lines` has them."""
        asked = pc.and_(pc.invert(pc.fill_null(self.rows["heartbeat"], False)), pc.equal(self.rows["operation"], "produce"))
        rows = self.rows.filter(asked)
        codes = [rows[name].combine_chunks() for name in KEY]
        place = codes[0].indices.to_numpy().astype(np.int64) * (len(codes[1].dictionary) + 1) + codes[1].indices.to_numpy()
        order = pa.array(np.argsort(place, kind="stable"))
        columns = {name: rows[name].cast(pa.string()) for name in (*KEY, "gateway")}
        columns |= {PLACE: pa.array(place), "second": rows["ts"], **{name: pc.fill_null(rows[name], 0) for name in COUNTS}}
        return pa.table(columns).take(order).combine_chunks()


def read_plain_day(files: Sequence[StoredLogFile], day: Day) -> PlainDay:
    """The lines of local files, many small ones at a time. Raises NeedsSparkError."""
    if any(file.form == COMPACTED for file in files):
        raise NeedsSparkError("compacted files")
    parts, by_file, elsewhere = [], Counter[str](), Counter[tuple[str, str]]()
    blocks = ((piece.url, block) for piece in cut_into_pieces(files, CODECS) for block in read_whole_lines(piece))
    for together in gather_blocks(blocks):
        table = parse_fields(b"".join(block for _, block in together), FIELDS)
        if table is None:
            raise NeedsSparkError(f"lines that are not plain in {together[0][0]}")
        files_of_lines = [(url, count_lines(block)) for url, block in together]
        for url, lines in files_of_lines:
            by_file[url] += lines
        parts.append(_keep_day(_encode_names(table), day, files_of_lines, elsewhere))
    rows = pa.concat_tables([*parts, _encode_names(FIELDS.empty_table())]).unify_dictionaries().combine_chunks()
    counted = {url: FileCount(lines, 0, elsewhere[url, "stray"], elsewhere[url, "another day"]) for url, lines in by_file.items()}
    return PlainDay(rows, LineCounts(counted, *_count_gateways(rows, day)))


def _encode_names(table: pa.Table) -> pa.Table:
    for name in NAMES:
        table = table.set_column(table.schema.get_field_index(name), name, table[name].cast(pa.string()).dictionary_encode())
    return table


def _keep_day(table: pa.Table, day: Day, files: Sequence[tuple[str, int]], elsewhere: Counter[tuple[str, str]]) -> pa.Table:
    """The lines of the day; the others are counted. `files`: each file and its number of lines, in their order. Raises NeedsSparkError for
    a line that `parse.check_fields` might find at fault."""
    bare = ("v", "ts", "gateway", "boot", "seq")
    demand = table.filter(pc.invert(pc.fill_null(table["heartbeat"], False)))
    whole = all(table[name].null_count == 0 for name in bare)
    whole = whole and all(demand[name].null_count == 0 for name in (*KEY, "operation", "messages", "bytes"))
    ranges = [*[(name, 0, MAX_COUNT) for name in COUNTS], ("seq", 0, MAX_SEQ), ("v", 1, 1)]
    if not whole or not all(_is_within(table[name], least, most) for name, least, most in ranges):
        raise NeedsSparkError("a line that lacks something, or is out of range")
    ts = table["ts"].to_numpy()
    first, last = hours_of(day.start, day.end)
    stray, own = (ts < first) | (ts >= last), (ts >= day.start) & (ts < day.end)
    if own.all():
        return table
    place = np.repeat(np.arange(len(files)), [lines for _, lines in files])
    for fault, lines_at in (("stray", stray), ("another day", ~stray & ~own)):
        for at in place[lines_at].tolist():
            elsewhere[files[at][0], fault] += 1
    return table.filter(pa.array(own))


def _is_within(column: pa.ChunkedArray, least: int, most: int) -> bool:
    found = pc.min_max(column).as_py()
    return found["min"] is None or (found["min"] >= least and found["max"] <= most)


def _count_gateways(rows: pa.Table, day: Day) -> tuple[dict[str, GatewayCount], int, int, list[Stretch]]:
    """The gateways' counts, duplicates, missing numbers and repeated stretches. Raises NeedsSparkError where a number came twice."""
    names, boots = (rows[name].combine_chunks() for name in ("gateway", "boot"))
    gateway, boot = names.indices.to_numpy(), boots.indices.to_numpy()
    seq, second = rows["seq"].to_numpy(), rows["ts"].to_numpy() - day.start
    found, missing = {}, 0
    for number, name in enumerate(names.dictionary.to_pylist()):
        own = np.flatnonzero(gateway == number)
        if not len(own):
            continue
        runs = np.unique(boot[own])
        for run in runs:
            numbers = np.sort(seq[own[boot[own] == run]])
            if (numbers[1:] == numbers[:-1]).any():
                raise NeedsSparkError("lines that came twice")
            missing += int(numbers[-1] - numbers[0]) + 1 - len(numbers)
        marks = np.zeros(day.seconds, dtype=np.bool_)
        marks[second[own]] = True
        found[name] = GatewayCount(len(own), len(runs), marks)
    return {name: found[name] for name in sorted(found)}, 0, missing, []
