"""Lines of the access log as rows: each line's fields and its fault, without its text.

The text makes a day too large for a heap, so it is dropped as soon as it is parsed; corrupt lines, which are few, are read a second time
to be kept aside (`find_corrupt_lines`). Lines are parsed with an explicit schema (PERMISSIVE) of the fields that quotas need: a later
version's fields, and those for people, cost nothing and cannot be at fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses
from pyspark.sql.types import StringType, StructField, StructType

from spark_jobs.schemas import CORRUPT, COUNTS, LINE_FIELDS, SENDER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from spark_jobs.days import Day

# Messages or bytes of one line: a second of a terabyte is no measurement, and sums of sane counts cannot overflow.
MAX_COUNT: Final = 10**12
MAX_SEQ: Final = 2**53  # lines of one run of a gateway; no gateway lives to see it
HOUR_S: Final = 3600

STRAY: Final = "stray"  # a line whose time is not in its folder's hour
ANOTHER_DAY: Final = "another day"  # a line in an hour of UTC that the day shares with the one before or after it; no fault
NOT_CORRUPT: Final = (STRAY, ANOTHER_DAY)

# Columns that are kept of a good line. `topic` is null where the line has no demand: heartbeats, consumers.
ROW: Final = ("file", "fault", "gateway", "boot", "seq", "ts", "protocol", "topic", *COUNTS)


def parse(lines: DataFrame, day: Day, schema: StructType = LINE_FIELDS) -> DataFrame:
    """(file, line) → rows of ROW, and the sender's fields where `schema` has them. See `check_fields` for `fault`; rows with a fault keep
    their file only."""
    parsed = _fields(lines, schema).select("file", "fields.*", (_no_json() | F.col(f"fields.{CORRUPT}").isNotNull()).alias("no_json"))
    return check_fields(parsed, day, F.col("no_json"))


def check_lines(rows: DataFrame, day: Day, schema: StructType = LINE_FIELDS) -> DataFrame:
    """(file, line, fields of `schema`), as `read_arrow_lines` has them → rows of ROW, as from `parse`. A row with a line is parsed here."""
    known = F.col("line").isNull()
    parsed = rows.where("line is null or trim(line) != ''").withColumn("parsed", _parse_json(schema))
    fields = [F.when(known, F.col(name)).otherwise(F.col(f"parsed.{name}")).alias(name) for name in schema.fieldNames()]
    no_json = ~known & (_no_json() | F.col(f"parsed.{CORRUPT}").isNotNull())
    return check_fields(parsed.select("file", *fields, no_json.alias("no_json")), day, F.col("no_json"))


def check_fields(rows: DataFrame, day: Day, no_json: Column | None = None) -> DataFrame:
    """Fields of lines, and `file` → rows of ROW, with the sender's fields where `rows` has them.

    `fault` is null, `json`, `version`, `fields`, `range`, `stray`, or `another day`; all but the last two count as corrupt. A line with a
    bad type keeps its good fields, so check `fault` before use.
    """
    fault = _fault(day, no_json)
    topic = F.when(~F.coalesce("heartbeat", F.lit(False)) & (F.col("operation") == "produce"), F.col("topic"))
    counts = [F.coalesce(name, F.lit(0)).cast("long").alias(name) for name in COUNTS]
    known: list[Column | str] = ["file", fault.alias("fault"), "gateway", "boot", "seq", "ts", "protocol", topic.alias("topic"), *counts]
    known += [name for name in SENDER if name in rows.columns]
    return rows.select(*known)


def find_corrupt_lines(lines: DataFrame, day: Day) -> DataFrame:
    """(file, line) → the corrupt ones as (file, line, fault)."""
    parsed = _fields(lines, LINE_FIELDS).select("file", "line", "fields.*")
    fault = _fault(day, _no_json() | F.col(CORRUPT).isNotNull())
    found = parsed.select("file", "line", fault.alias("fault"))
    return found.where(F.col("fault").isNotNull() & ~F.col("fault").isin(*NOT_CORRUPT))


def _fields(lines: DataFrame, schema: StructType) -> DataFrame:
    return lines.select("file", "line", _parse_json(schema).alias("fields"))


def _parse_json(schema: StructType) -> Column:
    with_corrupt = StructType([*schema.fields, StructField(CORRUPT, StringType())])
    return F.from_json("line", with_corrupt, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT})


def _no_json() -> Column:
    """Jackson stops after the first value: a torn line with the next one glued to it would pass as one good line."""
    return F.col("line").contains('}{"') | ~F.rtrim("line").endswith("}")


def _fault(day: Day, no_json: Column | None) -> Column:
    bare = F.expr("v is null or ts is null or gateway is null or boot is null or seq is null")
    empty = F.expr(
        "not coalesce(heartbeat, false) and (protocol is null or topic is null or operation is null or messages is null or bytes is null)"
    )
    ranges = [f"not coalesce({name}, 0L) between 0L and {MAX_COUNT}L" for name in COUNTS]
    first, last = hours_of(day.start, day.end)
    checks: Sequence[tuple[Column, str]] = (
        *([(no_json, "json")] if no_json is not None else []),
        (F.col("v") != 1, "version"),
        (bare | empty, "fields"),
        (F.expr(" or ".join([*ranges, f"not seq between 0L and {MAX_SEQ}L"])), "range"),
        (~F.col("ts").between(first, last - 1), STRAY),
        (~F.col("ts").between(day.start, day.end - 1), ANOTHER_DAY),
    )
    condition, name = checks[0]
    fault = F.when(condition, name)
    for condition, name in checks[1:]:
        fault = fault.when(condition, name)
    return fault


def hours_of(start: int, end: int) -> tuple[int, int]:
    """The hours of UTC that [start, end) overlaps, in epoch s, end exclusive."""
    return start - start % HOUR_S, -(-end // HOUR_S) * HOUR_S
