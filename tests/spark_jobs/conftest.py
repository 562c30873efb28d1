"""One Spark session for all tests: starting one takes seconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from spark_jobs.session import spark_session

    with spark_session("local[2]", small=True) as session:
        yield session
