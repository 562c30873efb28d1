"""What every quota rule would publish tonight, before the guard rails. Kept with the day, so that the next day can tell which was right."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.burst import with_burst
from spark_jobs.parameters import Parameters
from spark_jobs.quota_rules import QUOTA_RULES
from spark_jobs.schemas import CANDIDATES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def candidates(memory: DataFrame, parameters: Parameters) -> DataFrame:
    """Remembered days → `schemas.CANDIDATES`: one row per topic, dimension and rule."""
    each = [
        with_burst(rule(memory, parameters), memory, parameters).withColumn("rule", F.lit(name)).select(*CANDIDATES.fieldNames())
        for name, rule in QUOTA_RULES.items()
    ]
    return reduce(lambda left, right: left.unionByName(right), each)
