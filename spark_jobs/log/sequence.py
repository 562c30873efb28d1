"""Sequence numbers: every line of a gateway's run has its own, so a line that came twice and a line that never came both show.

The naive way groups all lines by their number, which moves a whole day from disk to disk to find, on most days, nothing. Instead each
number is a bit: Spark's bitmaps hold 32,768 of them in 4 KB, so lines are counted in one pass and little is moved. Lines beyond the
bits that are set came twice. Only the stretches of a run where that happened are then grouped line by line (`drop_duplicates`).

The same pass counts lines and faults per file, and marks the seconds that each gateway wrote in (`completeness`). Spark makes pieces of
it, which the driver adds up: a bit a line is little (6 MB for 50 M lines, and 8 KB for a file that has few), and a query more for each of
the three sums cost 10,000 topics' first night more than the sums (each query of a cold Spark takes seconds of processor time). Spark
adds up more than MOST_PIECES itself, and the driver gets a row for each run of a gateway and for each file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pyspark import StorageLevel
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.log.parse import NOT_CORRUPT, STRAY
from spark_jobs.schemas import COUNTS, SENDER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from spark_jobs.days import Day

RUN: Final = ["gateway", "boot"]
BITS: Final = 8 * 4096  # bits of one of Spark's bitmaps
MOST_PIECES: Final = 20_000  # pieces that the driver adds up: 8 KB each, and as much again while they come in


class FileCount(NamedTuple):
    """Lines of one file: all, corrupt ones, strays, and those of another day in an hour that the day shares."""

    rows: int
    corrupt: int
    stray: int
    another_day: int


NO_LINES: Final = FileCount(0, 0, 0, 0)


class Stretch(NamedTuple):
    """BITS numbers of one run of a gateway, from `bucket`, in which lines came twice."""

    gateway: str
    boot: str
    bucket: int


class GatewayCount(NamedTuple):
    """One gateway's day: its good lines (copies included), runs, and the seconds it wrote in, one flag per second of the day."""

    lines: int
    boots: int
    seconds: NDArray[np.bool_]


class LineCounts(NamedTuple):
    """All that one pass over the lines of a day counts."""

    files: Mapping[str, FileCount]  # by URL
    gateways: Mapping[str, GatewayCount]
    duplicates: int  # copies beyond the first
    missing: int  # numbers between the first and the last of a run that no line has; lines lost before or after them do not show
    repeated: list[Stretch]


def count(rows: DataFrame, day: Day, *, many: bool = False) -> LineCounts:
    """Rows of `parse.ROW` → their counts. `many`: there are more pieces than the driver should add up."""
    pieces = _group_pieces(rows, day)
    found = _add_up_by_spark(pieces) if many else _add_up(pieces)
    runs: dict[tuple[str, str], _Run] = {}
    for gateway, boot, run in found.runs:
        known = runs.get((gateway, boot), _Run(0, run.first, run.last, 0))
        runs[gateway, boot] = known.merge(run)
    whole: dict[str, NDArray[np.bool_]] = {}
    for gateway, span, marks in found.marks:
        flags = whole.setdefault(gateway, np.zeros(-(-day.seconds // BITS) * BITS, dtype=np.bool_))
        flags[span * BITS : (span + 1) * BITS] |= np.unpackbits(np.frombuffer(marks, np.uint8), bitorder="little").view(bool)
    lines, boots = Counter[str](), Counter[str]()
    for (gateway, _), run in runs.items():
        lines[gateway] += run.lines
        boots[gateway] += 1
    return LineCounts(
        found.files,
        {name: GatewayCount(lines[name], boots[name], whole[name][: day.seconds]) for name in sorted(whole)},
        sum(run.lines - run.distinct for run in runs.values()),
        sum(run.last - run.first + 1 - run.distinct for run in runs.values()),
        sorted(found.repeated),
    )


def _group_pieces(rows: DataFrame, day: Day) -> DataFrame:
    """The rows by file, fault, run, and BITS numbers or seconds: how many lines, and which numbers and seconds."""
    good = F.col("fault").isNull()
    second = F.when(good, F.col("ts") - day.start)  # from 0
    keys = [F.when(good, F.col(name)).alias(name) for name in RUN]
    bucket = F.when(good, F.expr("bitmap_bucket_number(seq)")).alias("bucket")
    span = F.expr(f"cast(floor(second / {BITS}) as int)").alias("span")
    return (
        rows.select("file", "fault", *keys, bucket, second.alias("second"), F.when(good, F.col("seq")).alias("seq"))
        .groupBy("file", "fault", *RUN, "bucket", span)
        .agg(
            F.count("*").alias("lines"),
            F.min("seq").alias("first"),
            F.max("seq").alias("last"),
            F.expr("bitmap_construct_agg(bitmap_bit_position(coalesce(seq, 1L)))").alias("numbers"),
            F.expr(f"bitmap_construct_agg(coalesce(second % {BITS}, 0L))").alias("seconds"),
        )
    )


class _Sums(NamedTuple):
    """The sums of the pieces."""

    files: dict[str, FileCount]
    runs: Iterable[tuple[str, str, _Run]]  # gateway, boot, and counts of the run, in one or several parts
    marks: Iterable[tuple[str, int, bytes]]  # gateway, span, bitmap of its seconds; in one or several parts
    repeated: list[Stretch]


def _add_up(pieces: DataFrame) -> _Sums:
    files: dict[str, FileCount] = {}
    stretches: dict[Stretch, _Numbers] = {}
    marks: list[tuple[str, int, bytes]] = []
    for row in pieces.collect():  # toLocalIterator does not say which file it cannot read
        files[row.file] = _add_lines(files.get(row.file, NO_LINES), row.fault, row.lines)
        if row.fault is not None:
            continue
        piece = _Numbers(row.lines, row.first, row.last, int.from_bytes(row.numbers, "little"))
        stretch = Stretch(row.gateway, row.boot, row.bucket)
        stretches[stretch] = piece.merge(stretches[stretch]) if stretch in stretches else piece
        marks.append((row.gateway, row.span, bytes(row.seconds)))
    runs = [(at.gateway, at.boot, _Run(each.lines, each.first, each.last, each.distinct)) for at, each in stretches.items()]
    return _Sums(files, runs, marks, [at for at, each in stretches.items() if each.lines > each.distinct])


def _add_up_by_spark(pieces: DataFrame) -> _Sums:
    """As `_add_up`, on the workers; the driver's part does not grow with the lines."""
    pieces = pieces.persist(StorageLevel.DISK_ONLY)
    try:
        files: dict[str, FileCount] = {}
        for row in pieces.groupBy("file", "fault").agg(F.sum("lines").alias("lines")).collect():
            files[row.file] = _add_lines(files.get(row.file, NO_LINES), row.fault, row.lines)
        good = pieces.where("fault is null")
        of_gateways = good.groupBy("gateway", "span").agg(F.expr("bitmap_or_agg(seconds)").alias("seconds"))
        marks = [(row.gateway, row.span, bytes(row.seconds)) for row in of_gateways.collect()]
        sums = [F.sum("lines").alias("lines"), F.min("first").alias("first"), F.max("last").alias("last")]
        stretches = good.groupBy(*RUN, "bucket").agg(*sums, F.expr("bitmap_count(bitmap_or_agg(numbers))").alias("distinct"))
        twice = F.when(F.col("lines") > F.col("distinct"), F.col("bucket"))
        of_runs = stretches.groupBy(*RUN).agg(*sums, F.sum("distinct").alias("distinct"), F.collect_list(twice).alias("twice"))
        runs, repeated = [], []
        for row in of_runs.collect():
            runs.append((row.gateway, row.boot, _Run(row.lines, row.first, row.last, row.distinct)))
            repeated += [Stretch(row.gateway, row.boot, bucket) for bucket in row.twice]
        return _Sums(files, runs, marks, repeated)
    finally:
        pieces.unpersist()


class _Numbers(NamedTuple):
    """The lines of one stretch: how many, the first and the last number, and a bit for each number."""

    lines: int
    first: int
    last: int
    bits: int

    @property
    def distinct(self) -> int:
        return self.bits.bit_count()

    def merge(self, other: _Numbers) -> _Numbers:
        return _Numbers(self.lines + other.lines, min(self.first, other.first), max(self.last, other.last), self.bits | other.bits)


class _Run(NamedTuple):
    """One run of a gateway: its lines, copies included, its first and last number, and how many different ones."""

    lines: int
    first: int
    last: int
    distinct: int

    def merge(self, other: _Run) -> _Run:
        return _Run(
            self.lines + other.lines, min(self.first, other.first), max(self.last, other.last), self.distinct + other.distinct
        )  # fmt: skip


def _add_lines(before: FileCount, fault: str | None, lines: int) -> FileCount:
    """A file's count with so many lines more."""
    return FileCount(
        before.rows + lines,
        before.corrupt + (lines if fault is not None and fault not in NOT_CORRUPT else 0),
        before.stray + (lines if fault == STRAY else 0),
        before.another_day + (lines if fault in NOT_CORRUPT and fault != STRAY else 0),
    )


def drop_duplicates(rows: DataFrame, repeated: list[Stretch]) -> DataFrame:
    """Good rows of `parse.ROW` → the same, each number of a run once. Of lines that differ under one number the smallest stays: any choice
    will do, but always the same one."""
    if not repeated:
        return rows
    spark = rows.sparkSession
    stretches = spark.createDataFrame(repeated, "gateway string, boot string, bucket long")
    marked = rows.withColumn("bucket", F.expr("bitmap_bucket_number(seq)"))
    single = marked.join(F.broadcast(stretches), [*RUN, "bucket"], "left_anti").drop("bucket")
    several = marked.join(F.broadcast(stretches), [*RUN, "bucket"], "left_semi")
    kept = ["ts", "protocol", "topic", *COUNTS, *[name for name in SENDER if name in rows.columns], "file", "fault"]
    smallest = F.min(F.struct(*kept)).alias("kept")
    return single.unionByName(several.groupBy(*RUN, "seq").agg(smallest).select(*RUN, "seq", "kept.*"))
