"""Tables of the states as Arrow. Where a state is on this machine, pyarrow reads and writes them; anywhere else Spark does.

The rows are few, and each query of a cold Spark takes seconds of processor time, whatever it reads: those of a night of 10,000 topics took
15 of 72 CPU-s (2 cores, 2026-11). Both ways give the same rows, in files that both read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from spark_jobs.errors import InsufficientInputError
from spark_jobs.state.state import describe_missing_table, read_table, write_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from spark_jobs.storage.location import Location

PART: Final = "part-00000.parquet"


def read_arrow(spark: SparkSession | None, table: str, schema: pa.Schema, of_spark: StructType, folders: Sequence[Location]) -> pa.Table:
    """The columns of `schema` of all rows in those data folders; `of_spark` is the schema of the whole table.

    Raises InsufficientInputError where a folder that a manifest names is gone or a file is damaged, OSError where one cannot be read.
    """
    if not folders:
        return schema.empty_table()
    if all(folder.is_local for folder in folders):
        return pa.concat_tables([_read_local(folder.child(table), schema) for folder in folders])
    assert spark is not None, "None is for what is on this machine"
    return read_table(spark, table, of_spark, list(folders)).select(*schema.names).toArrow().cast(schema)


def write_arrow(spark: SparkSession | None, rows: pa.Table, table: str, of_spark: StructType, staged: Location) -> None:
    """Write `rows` as a table of a staged data folder."""
    if not staged.is_local:
        assert spark is not None, "None is for what is on this machine"
        write_by_spark(spark, rows, table, of_spark, staged)
        return
    from pyarrow.parquet import write_table as write_parquet

    folder = staged.child(table).local
    try:
        folder.mkdir(parents=True)
        write_parquet(rows, folder / PART)
    except OSError as error:  # pyarrow's error has no path
        raise OSError(f"{folder / PART} cannot be written: {error}") from error


def write_by_spark(spark: SparkSession, rows: pa.Table, table: str, of_spark: StructType, staged: Location) -> None:
    """As `write_arrow`, anywhere. In one chunk: Spark 4.3 leaves out the rows after an empty chunk of an Arrow table, without a word."""
    write_table(spark.createDataFrame(rows.combine_chunks(), of_spark), table, of_spark, staged)


def _read_local(folder: Location, schema: pa.Schema) -> pa.Table:
    from pyarrow.parquet import ParquetFile

    try:
        names = sorted(each.name for each in folder.local.iterdir())
    except FileNotFoundError:
        raise InsufficientInputError(describe_missing_table(folder.shown)) from None
    parts = [schema.empty_table()]
    for name in names:
        if name.startswith((".", "_")):  # Spark's checksums and its mark of success
            continue
        path = folder.local / name
        try:
            with ParquetFile(path) as file:
                known = [each for each in schema.names if each in file.schema_arrow.names]
                rows = file.read(columns=known)
        except (pa.ArrowException, OSError) as error:
            text = f"{path} cannot be read ({error}); compute its day again, or remove its folder to forget it"
            damaged = not isinstance(error, OSError) or error.errno is None  # pyarrow's own word; else the system's, and it may pass
            raise (InsufficientInputError if damaged else OSError)(text) from error
        for each in schema:
            if each.name not in known:
                rows = rows.append_column(each, pa.nulls(len(rows), each.type))
        parts.append(rows.select(schema.names).cast(schema))
    return pa.concat_tables(parts)
