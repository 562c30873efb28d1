"""The quotas that each quota rule would publish tonight, before the guard rails. They are kept with the day, and the next day is their
test."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.burst import with_burst
from spark_jobs.parameters import Parameters
from spark_jobs.quota_rules import QUOTA_RULES
from spark_jobs.schemas import CANDIDATES


def candidates(memory: DataFrame, parameters: Parameters) -> DataFrame:
    """Remembered days → `schemas.CANDIDATES`: one row per topic, dimension and rule."""
    each = [rule(memory, parameters).withColumn("rule", F.lit(name)).select(*CANDIDATES.fieldNames()) for name, rule in QUOTA_RULES.items()]
    return with_burst(reduce(DataFrame.unionAll, each), memory, parameters)
