"""The files of a day as lines, whatever their form.

Text (`.jsonl`, open or closed) is read by Spark, in pieces of any file. Compressed files are unpacked on the workers by pyarrow, one file
by one task: Hadoop's own codec for zstd is a native library that pip's Spark lacks, and its gzip ends the job at a file that was cut off.
Here the lines before the cut count, and the cut is one corrupt line. Compacted files (Parquet) are rows already.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.log.parse import checked, parse
from spark_jobs.schemas import LINE_FIELDS, WITH_SENDER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from spark_jobs.days import Day
    from spark_jobs.log.files import LogFile

COMPACTED: Final = ".parquet"
CODECS: Final = {".jsonl.gz": "gzip", ".jsonl.zst": "zstd"}
BLOCK_BYTES: Final = 4 * 2**20  # unpacked at a time and sent on as one batch: some 10,000 lines
SMALL_BYTES: Final = 256  # unpacked at a time near damage: less than a line
LINES: Final = pa.schema([("file", pa.string()), ("line", pa.string())])


def read_rows(spark: SparkSession, files: Sequence[LogFile], day: Day, *, senders: bool = False) -> DataFrame:
    """All lines of `files` as rows of `parse.ROW`, and with `senders` who sent them; `file` is a URL, see `Location.relative`."""
    schema = WITH_SENDER if senders else LINE_FIELDS
    compacted = [file for file in files if file.form == COMPACTED]
    parts = []
    if len(compacted) < len(files):
        parts.append(parse(read_lines(spark, files), day, schema))
    if compacted:
        parts.append(checked(_compacted(spark, compacted, schema), day))
    rows = parts[0]
    for more in parts[1:]:
        rows = rows.unionByName(more)
    return rows


def read_lines(spark: SparkSession, files: Iterable[LogFile]) -> DataFrame:
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


def _compacted(spark: SparkSession, files: Sequence[LogFile], schema: StructType) -> DataFrame:
    rows = spark.read.schema(schema).parquet(*[file.location.glob for file in files])
    return rows.select("*", F.col("_metadata.file_path").alias("file"))


class Unpack:
    """(path, content) of compressed files → (file, line), in batches of about BLOCK_BYTES."""

    def __init__(self, codec: str) -> None:
        self.codec = codec

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path, content in zip(batch.column(0), batch.column(1), strict=True):
                for lines in unpacked_lines(content.as_buffer(), self.codec):
                    text = pa.array(lines, pa.binary()).cast(pa.string(), safe=False)
                    yield pa.RecordBatch.from_arrays([pa.array([path.as_py()] * len(lines), pa.string()), text], schema=LINES)


def unpacked_lines(content: pa.Buffer, codec: str) -> Iterator[list[bytes]]:
    """The lines of a compressed file, some thousand at a time. A file that is cut off or damaged ends with a line that is no JSON."""
    rest = b""
    for block in _blocks(content, codec):
        *lines, rest = (rest + block).split(b"\n")
        if lines:
            yield lines
    if rest:
        yield [rest]


def _blocks(content: pa.Buffer, codec: str) -> Iterator[bytes]:
    """What can be unpacked of `content`. A read that meets the damage returns nothing at all, so that one is made again in small pieces."""
    done = 0
    damage = ""
    for size in (BLOCK_BYTES, SMALL_BYTES):
        with pa.CompressedInputStream(pa.BufferReader(content), codec) as stream:
            for skipped in range(0, done, BLOCK_BYTES):
                stream.read(min(BLOCK_BYTES, done - skipped))
            try:
                while block := stream.read(size):
                    done += len(block)
                    yield block
            except OSError as error:
                damage = str(error)
                continue
            return
    yield f"<{codec}: {damage}>".encode()
