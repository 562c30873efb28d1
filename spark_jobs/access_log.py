"""The lines of the access log as rows (which files a day is made of: `log/files.py`).

Lines are read as text and parsed with an explicit schema (PERMISSIVE), so the text of a bad line is still there to be kept aside.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from spark_jobs.log.files import LogFile
from spark_jobs.paths import day_start
from spark_jobs.schemas import CORRUPT, LINE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MAX_COUNT: Final = (
    10**12
)  # messages or bytes of one line: a second of a terabyte is no measurement, and sums of sane counts cannot overflow


def read_lines(spark: SparkSession, files: Iterable[LogFile]) -> DataFrame:
    """The lines of `files` as (file, line); `file` is a URL, see `Location.relative`. Blank lines are left out."""
    lines = spark.read.text([file.location.glob for file in files], lineSep="\n")
    return lines.select(F.col("_metadata.file_path").alias("file"), F.col("value").alias("line")).where("trim(line) != ''")


def parse(lines: DataFrame, date: str) -> DataFrame:
    """Each line's fields, and its `fault`: null, `json`, `version`, `fields`, `range`, or `stray` (not of this
    day).

    All but `stray` count as corrupt. A line with a bad type keeps its good fields, so check `fault` before use.
    """
    start = day_start(date)
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    rows = lines.select("file", "line", F.from_json("line", LINE, options).alias("fields")).select("file", "line", "fields.*")
    # Jackson stops after the first value: a torn line with the next one glued to it would pass as one good line.
    glued = F.col("line").contains('}{"') | ~F.rtrim("line").endswith("}")
    counts = ["messages", "bytes", "refused_messages", "refused_bytes", "dropped_messages", "max_100ms_messages"]
    bare = F.expr("v is null or ts is null or gateway is null or boot is null or seq is null")
    empty = F.expr(
        "not coalesce(heartbeat, false) and (protocol is null or topic is null or operation is null or messages is null or bytes is null)"
    )
    range_ = F.expr(" or ".join(f"not coalesce({name}, 0) between 0 and {MAX_COUNT}" for name in counts))
    fault = (
        F.when(F.col(CORRUPT).isNotNull() | glued, "json")
        .when(F.col("v") != 1, "version")
        .when(bare | empty, "fields")
        .when(range_, "range")
        .when(~F.col("ts").between(start, start + 86_399), "stray")
    )
    return rows.withColumn("fault", fault).drop(CORRUPT)
