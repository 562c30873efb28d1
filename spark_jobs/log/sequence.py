"""Sequence numbers: every line of a gateway's run has its own, so a line that came twice and a line that never came both show.

The naive way groups all lines by their number, which moves a whole day from disk to disk to find, on most days, nothing. Instead each
number is a bit: Spark's bitmaps hold 32,768 of them in 4 KB, so lines are counted in one pass and what is moved is small. Lines beyond
the bits that are set came twice. Only the stretches of a run where that happened are then grouped line by line (`once`).

The same pass counts lines and faults per file, and marks the seconds that each gateway wrote in (`completeness`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.log.parse import NOT_CORRUPT, STRAY
from spark_jobs.schemas import COUNTS, SENDER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from spark_jobs.days import Day

RUN: Final = ["gateway", "boot"]
BITS: Final = 8 * 4096  # of one of Spark's bitmaps


class FileCount(NamedTuple):
    """Lines of one file: all, corrupt ones, strays, and those of another day in an hour that the day shares."""

    rows: int
    corrupt: int
    stray: int
    another_day: int


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


class Counts(NamedTuple):
    """All that one pass over the lines of a day counts."""

    files: Mapping[str, FileCount]  # by URL
    gateways: Mapping[str, GatewayCount]
    duplicates: int  # copies beyond the first
    missing: int  # numbers between the first and the last of a run that no line has; lines lost before or after them do not show
    repeated: list[Stretch]


def count(rows: DataFrame, day: Day) -> Counts:
    """Rows of `parse.ROW` → their counts."""
    good = F.col("fault").isNull()
    second = F.when(good, F.col("ts") - day.start)  # from 0
    keys = [F.when(good, F.col(name)).alias(name) for name in RUN]
    bucket = F.when(good, F.expr("bitmap_bucket_number(seq)")).alias("bucket")
    span = F.expr(f"cast(floor(second / {BITS}) as int)").alias("span")
    pieces = (
        rows.select("file", "fault", *keys, bucket, second.alias("second"), F.when(good, F.col("seq")).alias("seq"))
        .groupBy("file", "fault", *RUN, "bucket", span)
        .agg(
            F.count("*").alias("lines"),
            F.min("seq").alias("first"),
            F.max("seq").alias("last"),
            F.expr("bitmap_construct_agg(bitmap_bit_position(coalesce(seq, 1L)))").alias("numbers"),
            F.expr(f"bitmap_construct_agg(coalesce(second % {BITS}, 0L))").alias("seconds"),
        )
        .persist()
    )
    try:
        files = _files(pieces)
        runs = pieces.where(good).groupBy(*RUN, "bucket").agg(
            F.sum("lines").alias("lines"), F.min("first").alias("first"), F.max("last").alias("last"),
            F.expr("bitmap_count(bitmap_or_agg(numbers))").alias("distinct"),
        ).collect()  # fmt: skip
        marks = pieces.where(good).groupBy("gateway", "span").agg(F.expr("bitmap_or_agg(seconds)").alias("seconds")).collect()
    finally:
        pieces.unpersist()
    ends: dict[tuple[str, str], tuple[int, int, int]] = {}
    for row in runs:
        first, last, distinct = ends.get((row.gateway, row.boot), (row.first, row.last, 0))
        ends[row.gateway, row.boot] = min(first, row.first), max(last, row.last), distinct + row.distinct
    gateways = {
        name: GatewayCount(
            sum(row.lines for row in runs if row.gateway == name),
            sum(gateway == name for gateway, _ in ends),
            _seconds([(row.span, row.seconds) for row in marks if row.gateway == name], day.seconds),
        )
        for name in sorted({gateway for gateway, _ in ends})
    }
    return Counts(
        files,
        gateways,
        sum(row.lines - row.distinct for row in runs),
        sum(last - first + 1 - distinct for first, last, distinct in ends.values()),
        sorted(Stretch(row.gateway, row.boot, row.bucket) for row in runs if row.lines > row.distinct),
    )


def _files(pieces: DataFrame) -> dict[str, FileCount]:
    found: dict[str, FileCount] = {}
    for row in pieces.groupBy("file", "fault").agg(F.sum("lines").alias("lines")).collect():
        rows, corrupt, stray, another = found.get(row.file, FileCount(0, 0, 0, 0))
        found[row.file] = FileCount(
            rows + row.lines,
            corrupt + (row.lines if row.fault is not None and row.fault not in NOT_CORRUPT else 0),
            stray + (row.lines if row.fault == STRAY else 0),
            another + (row.lines if row.fault in NOT_CORRUPT and row.fault != STRAY else 0),
        )
    return found


def _seconds(pieces: list[tuple[int, bytearray]], length: int) -> NDArray[np.bool_]:
    flags = np.zeros(-(-length // BITS) * BITS, dtype=np.bool_)
    for span, bits in pieces:
        flags[span * BITS : (span + 1) * BITS] |= np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little").astype(np.bool_)
    return flags[:length]


def once(rows: DataFrame, repeated: list[Stretch]) -> DataFrame:
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
