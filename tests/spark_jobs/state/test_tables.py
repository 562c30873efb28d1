"""Tables of the states: pyarrow on this machine and Spark anywhere else read and write the same rows."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyarrow.parquet import write_table as write_parquet

from spark_jobs.errors import InsufficientInputError
from spark_jobs.method.outcomes import OUTCOMES
from spark_jobs.schemas import OUTCOMES as OUTCOMES_SCHEMA
from spark_jobs.schemas import TOPICS as TOPICS_SCHEMA
from spark_jobs.state.state import read_table
from spark_jobs.state.tables import read_arrow, write_arrow, write_by_spark
from spark_jobs.state.topic_day import TOPICS
from spark_jobs.storage.location import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_SPARK: Any = None  # of this machine nothing is asked of it


def outcomes(count: int) -> pa.Table:
    rows = [
        {"day": "2026-11-20", "protocol": "rocketmq", "topic": f"t{at}", "dimension": "bytes", "family": "published",
         "rate": at / 3, "burst": at, "offered": 10**12 + at, "refused": 0.1 * at, "reserved": 1e17 / 3}
        for at in range(count)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, OUTCOMES)


def folder(path: Path) -> Location:
    return Location.of("state", path)


def test_what_was_written_is_read_without_spark(tmp_path: Path) -> None:
    write_arrow(NO_SPARK, outcomes(5), "outcomes", OUTCOMES_SCHEMA, folder(tmp_path / "dt=2026-11-20" / "data-1"))
    write_arrow(NO_SPARK, outcomes(0), "outcomes", OUTCOMES_SCHEMA, folder(tmp_path / "dt=2026-11-21" / "data-2"))
    places = [folder(tmp_path / "dt=2026-11-20" / "data-1"), folder(tmp_path / "dt=2026-11-21" / "data-2")]
    assert read_arrow(NO_SPARK, "outcomes", OUTCOMES, OUTCOMES_SCHEMA, places).equals(outcomes(5))
    assert read_arrow(NO_SPARK, "outcomes", OUTCOMES, OUTCOMES_SCHEMA, []).equals(OUTCOMES.empty_table())


def test_a_column_that_an_older_file_lacks_is_null(tmp_path: Path) -> None:
    (tmp_path / "outcomes").mkdir()
    write_parquet(outcomes(2).drop_columns(["refused"]), tmp_path / "outcomes" / "part-0.parquet")
    found = read_arrow(NO_SPARK, "outcomes", OUTCOMES, OUTCOMES_SCHEMA, [folder(tmp_path)])
    assert (found["refused"].to_pylist(), found["rate"].to_pylist()) == ([None, None], outcomes(2)["rate"].to_pylist())


def test_a_table_that_is_gone_is_insufficient_input(tmp_path: Path) -> None:
    with pytest.raises(InsufficientInputError, match="its day's manifest names it and it is gone"):
        read_arrow(NO_SPARK, "outcomes", OUTCOMES, OUTCOMES_SCHEMA, [folder(tmp_path)])


def test_a_damaged_file_is_named_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "outcomes").mkdir()
    (tmp_path / "outcomes" / "part-0.parquet").write_bytes(b"PAR1 torn")
    with pytest.raises(InsufficientInputError, match=r"part-0\.parquet cannot be read .*compute its day again"):
        read_arrow(NO_SPARK, "outcomes", OUTCOMES, OUTCOMES_SCHEMA, [folder(tmp_path)])


def test_a_file_that_cannot_be_read_for_now_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> None:
        raise OSError(errno.EIO, "Input/output error", str(path))

    monkeypatch.setattr(pyarrow.parquet, "ParquetFile", fail)
    (tmp_path / "outcomes").mkdir()
    (tmp_path / "outcomes" / "part-0.parquet").touch()
    with pytest.raises(OSError, match=r"part-0\.parquet cannot be read .*Input/output error"):
        read_arrow(NO_SPARK, "outcomes", OUTCOMES, OUTCOMES_SCHEMA, [folder(tmp_path)])


@pytest.mark.spark
@pytest.mark.slow
def test_spark_and_pyarrow_read_what_the_other_has_written(spark: SparkSession, tmp_path: Path) -> None:
    """Also rows after an empty chunk, such as those of a rule that no topic had on that day."""
    topic = {
        "day": "2026-11-20", "protocol": "rocketmq", "topic": "orders", "dimension": "messages", "total": 5, "peak_100ms": None, "p50": 0.1,
        "hours": [1, 2], "gateways": [{"gateway": "one", "total": 5}], "first_step": -3, "losses": [0.5, 0.25],
    }  # fmt: skip
    for table, rows, schema, of_spark in (
        ("outcomes", outcomes(5), OUTCOMES, OUTCOMES_SCHEMA),
        ("topics", pa.Table.from_pylist([topic], TOPICS), TOPICS, TOPICS_SCHEMA),
    ):
        by_us, by_spark = folder(tmp_path / "us" / table), folder(tmp_path / "spark" / table)
        chunks = pa.concat_tables([schema.empty_table(), rows.slice(0, 1), schema.empty_table(), rows.slice(1)])
        write_arrow(spark, chunks, table, of_spark, by_us)
        write_by_spark(spark, chunks, table, of_spark, by_spark)
        assert read_table(spark, table, of_spark, [by_us]).toArrow().cast(schema).sort_by("topic").equals(rows)
        assert read_arrow(spark, table, schema, of_spark, [by_spark]).sort_by("topic").equals(rows)
    older = folder(tmp_path / "older" / "topics")
    older.child("topics").local.mkdir(parents=True)
    write_parquet(pa.Table.from_pylist([topic], TOPICS).drop_columns(["overloaded"]), older.child("topics").local / "part-0.parquet")
    found = read_table(spark, "topics", TOPICS_SCHEMA, [older]).toArrow()
    assert (found["overloaded"].to_pylist(), found["losses"].to_pylist()) == ([None], [[0.5, 0.25]])
