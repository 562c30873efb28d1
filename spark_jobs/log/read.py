"""The files of a day as rows, whatever their form and place.

Python's workers read and parse the text of a local log where Spark runs on this machine (`arrow_lines`). Elsewhere Spark reads it, in
pieces of any file, and parses it; Python unpacks compressed files, one file in one task (`unpack`). Compacted files (Parquet) are rows
already.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.log.arrow_lines import read_arrow_lines
from spark_jobs.log.parse import check_fields, check_lines, parse
from spark_jobs.log.unpack import Unpack
from spark_jobs.schemas import LINE_FIELDS, WITH_SENDER
from spark_jobs.session import local_cores

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from spark_jobs.days import Day
    from spark_jobs.log.files import StoredLogFile

COMPACTED: Final = ".parquet"
CODECS: Final = {".jsonl.gz": "gzip", ".jsonl.zst": "zstd"}


def read_rows(spark: SparkSession, files: Sequence[StoredLogFile], day: Day, *, senders: bool = False) -> DataFrame:
    """All lines of `files` as rows of `parse.ROW`, with `senders` also the sender's fields; `file` is a URL, see `Location.relative`."""
    schema = WITH_SENDER if senders else LINE_FIELDS
    compacted = [file for file in files if file.form == COMPACTED]
    text = [file for file in files if file.form != COMPACTED]
    parts = []
    if text and all(file.location.is_local for file in text) and local_cores(spark.sparkContext.master or "") is not None:
        parts.append(check_lines(read_arrow_lines(spark, text, CODECS, schema), day, schema))
    elif text:
        parts.append(parse(read_lines(spark, text), day, schema))
    if compacted:
        parts.append(check_fields(_read_compacted(spark, compacted, schema), day))
    rows = parts[0]
    for more in parts[1:]:
        rows = rows.unionByName(more)
    return rows


def read_lines(spark: SparkSession, files: Iterable[StoredLogFile]) -> DataFrame:
    """The lines of those of `files` that are text, as (file, line). Blank lines are left out."""
    files = list(files)
    plain = [file.location.glob for file in files if file.form not in CODECS and file.form != COMPACTED]
    parts = []
    if plain:
        text = spark.read.text(plain, lineSep="\n")
        parts.append(text.select(F.col("_metadata.file_path").alias("file"), F.col("value").alias("line")))
    for form, codec in CODECS.items():
        packed = [file.location.glob for file in files if file.form == form]
        if packed:
            whole = spark.read.format("binaryFile").load(packed).select(F.col("_metadata.file_path").alias("path"), "content")
            parts.append(whole.mapInArrow(Unpack(codec), "file string, line string"))
    lines = parts[0]
    for more in parts[1:]:
        lines = lines.unionAll(more)
    return lines.where("trim(line) != ''")


def _read_compacted(spark: SparkSession, files: Sequence[StoredLogFile], schema: StructType) -> DataFrame:
    rows = spark.read.schema(schema).parquet(*[file.location.glob for file in files])
    return rows.select("*", F.col("_metadata.file_path").alias("file"))
