"""Quota rules: from what is remembered to a rate per topic and dimension. To add one: a file here, a line in QUOTA_RULES, a test.

A rule is a function (remembered days as `daily_state.remembered` gives them, parameters) → one row per topic and dimension: `rate`
(per second, above 0), `burst` (null: taken from the arrival curve at that rate) and `reason` (a few words for the evidence). Every
rule is computed every night and replayed on the next day; a topic gets the rule that served it best, and `SIMPLE_RULE` until
another one has earned its place (`selection.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from spark_jobs.parameters import Parameters
from spark_jobs.quota_rules.formula import formula
from spark_jobs.quota_rules.yesterday_max import yesterday_max

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QuotaRule = Callable[["DataFrame", Parameters], "DataFrame"]

QUOTA_RULES: Final[dict[str, QuotaRule]] = {
    "yesterday_max": yesterday_max,
    "formula": formula,
}
SIMPLE_RULE: Final = "yesterday_max"
