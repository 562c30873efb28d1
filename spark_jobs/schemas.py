"""Schemas of everything that is read or written, as constants. A change of meaning, or a column that cannot be null,
is a change of format: raise `STATE_FORMAT` (`state/manifest.py`). A new column that may be null is read as null from states without it."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import ArrayType, BooleanType, DoubleType, FloatType, LongType, StringType, StructField, StructType

KEY: Final = ["protocol", "topic"]

CORRUPT: Final = "_corrupt_record"


def _fields(**types: str) -> list[StructField]:
    names = {"s": StringType, "l": LongType, "d": DoubleType, "b": BooleanType}
    return [StructField(name, names[kind]()) for name, kind in types.items()]


# Of a line of the access log (`common/log_files/columns.py`), what quotas need: the other fields are not parsed.
COUNTS: Final = (
    "messages", "bytes", "refused_messages", "refused_bytes", "delayed_messages", "dropped_messages", "max_100ms_messages",
)  # fmt: skip
LINE_FIELDS: Final = StructType([
    *_fields(v="l", ts="l", gateway="s", boot="s", seq="l", heartbeat="b", protocol="s", topic="s", operation="s"),
    *_fields(**dict.fromkeys(COUNTS, "l")),
])  # fmt: skip

SENDER: Final = ("client", "user", "group")
WITH_SENDER: Final = StructType([*LINE_FIELDS.fields, *_fields(**dict.fromkeys(SENDER, "s"))])  # fields that a backtest needs

# Daily state v2: one row per topic and dimension of one day, made by `topic_day.make_topic_rows` (there: the same as an Arrow schema).
TOPICS: Final = StructType([
    *_fields(day="s", protocol="s", topic="s", dimension="s", total="l", messages="l", passed="l", refused="l", delayed="l", storm="l"),
    *_fields(active_seconds="l", limited_seconds="l", excluded_seconds="l", max="l", p50="d", p99="d", largest="l", peak_100ms="l"),
    StructField("hours", ArrayType(LongType())),
    StructField("gateways", ArrayType(StructType(_fields(gateway="s", total="l")))),
    StructField("refused_hours", ArrayType(LongType())),  # null where nothing was refused, and in states from before 2026-11-29
    *_fields(need="d"),
    StructField("overloaded", ArrayType(DoubleType())),  # null in states of the same format from before 2026-11-26
    *_fields(first_step="l"),
    StructField("losses", ArrayType(FloatType())),
])  # fmt: skip

# How the quotas of the night before fared on this day, and how others would have: written with the day that judges.
OUTCOMES: Final = StructType(_fields(
    day="s", protocol="s", topic="s", dimension="s", family="s", rate="d", burst="l", offered="l", refused="d", reserved="d"
))  # fmt: skip
