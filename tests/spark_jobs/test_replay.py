"""Replaying a day through a bucket."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.replay import refused
from support.models import quota_oracle


@given(st.dictionaries(st.integers(0, 100), st.integers(1, 500), max_size=30), st.integers(0, 300), st.integers(0, 900))
def test_skipping_idle_seconds_changes_nothing(series: dict[int, int], rate: int, size: int) -> None:
    ticks = sorted(series)
    assert refused(ticks, [series[tick] for tick in ticks], rate, size) == quota_oracle.refused(series, rate, size)


@pytest.mark.parametrize(
    ("ticks", "amounts", "rate", "size", "expected"),
    [
        ([], [], 5, 5, 0),
        ([7], [9], 5, 9, 0),
        ([7], [9], 5, 5, 4),
        ([0, 1, 2], [10, 10, 10], 5, 10, 10),  # 10 pass, then 5 a second
        ([0, 10], [10, 10], 5, 10, 0),  # refilled in between, to the brim and no further
        ([0, 1], [10, 10], 0, 10, 10),  # a quota of nothing lets its burst through, once
    ],
)
def test_a_bucket_refuses_what_it_cannot_hold(ticks: list[int], amounts: list[int], rate: int, size: int, expected: int) -> None:
    assert refused(ticks, amounts, rate, size) == expected
