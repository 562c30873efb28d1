"""What publishing would change. Its rails: `test_quota_rails.py`."""

from __future__ import annotations

import pytest

from limiter.quota_snapshot import Quota, Snapshot
from spark_jobs.nights.plan import plan, show_burst, show_rate
from spark_jobs.nights.rails import Rails


def snapshot(**rates: float) -> Snapshot:
    quotas = tuple(Quota("rocketmq", topic, (rate, int(rate) or 1)) for topic, rate in rates.items())
    return Snapshot("2026-11-21T01:00:00Z", "0.1.0", quotas=quotas)


@pytest.mark.parametrize(
    ("live", "new", "kinds"),
    [
        ({}, {}, []),
        ({"a": 1}, {"a": 1}, []),
        ({}, {"a": 1}, ["added"]),
        ({"a": 1, "b": 1}, {"a": 1}, ["removed"]),
        ({"a": 10}, {"a": 11}, ["changed"]),
    ],
)
def test_differences(live: dict[str, float], new: dict[str, float], kinds: list[str]) -> None:
    assert [each.kind for each in plan(snapshot(**live), snapshot(**new), Rails()).differences] == kinds


@pytest.mark.parametrize(
    ("dimension", "each_second", "shown"),
    [("bytes", 26214400.0, "25MiB/s"), ("messages", 2000000.0, "2000000/s"), ("messages", 2.5, "2.5/s"), ("messages", 0.0, "0/s")],
)
def test_rates_are_written_as_limits_are(dimension: str, each_second: float, shown: str) -> None:
    assert show_rate(dimension, each_second) == shown


def test_bursts_of_bytes_are_sizes() -> None:
    assert (show_burst("bytes", 2097152), show_burst("messages", 2097152), show_burst("bytes", None)) == ("2MiB", "2097152", None)
