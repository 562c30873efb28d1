"""Sequence numbers: every line of a gateway's run has its own, so a line that came twice and a line that never came both show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

IDENTITY = ["gateway", "boot", "seq"]


def once(rows: DataFrame) -> DataFrame:
    """Each (gateway, boot, seq) once, with `copies`. Of lines that differ under one number the smallest text stays: any choice will
    do, but always the same one."""
    columns = [name for name in rows.columns if name not in IDENTITY]
    smallest = F.min(F.struct("line", *[name for name in columns if name != "line"])).alias("kept")
    return rows.groupBy(*IDENTITY).agg(smallest, F.count("*").alias("copies")).select(*IDENTITY, "kept.*", "copies")


def gaps(rows: DataFrame) -> DataFrame:
    """Per (gateway, boot) of rows that are there `once`: `lines`, `duplicates` (copies beyond the first) and `missing` numbers
    between the first and the last. Lines lost before the first or after the last of the day do not show."""
    return rows.groupBy("gateway", "boot").agg(
        F.count("*").alias("lines"),
        F.sum(F.col("copies") - 1).alias("duplicates"),
        (F.max("seq") - F.min("seq") + 1 - F.count("*")).alias("missing"),
    )
