"""The range that a report promises: from how much past nights differed, and honest about months of few events."""

from __future__ import annotations

import numpy as np
import pytest

from spark_jobs.method.promise import LEAST_NIGHTS, LONG_NIGHTS, promise


def test_nights_alike_promise_what_they_did() -> None:
    assert promise([(0.001, 1000.0)] * 28) == pytest.approx((0.001, 0.001))


def test_a_month_of_one_event_promises_little() -> None:
    found = promise([(0.0, 1000.0)] * 27 + [(0.028, 1000.0)])
    assert found is not None
    low, high = found
    assert low < 0.0003 < 0.001 < 0.004 < high < 0.03


def test_what_is_not_known_is_not_promised() -> None:
    assert promise([]) is None
    assert promise([(0.001, 1000.0)] * (LEAST_NIGHTS - 1)) is None
    assert promise([(0.0, 1000.0)] * 28) is None, "no night has refused anything"
    assert promise([(0.001, 1000.0)] * 27 + [(0.5, 0.0)]) == pytest.approx((0.001, 0.001)), "a night without traffic"
    assert promise([(0.5, 1000.0), *[(0.001, 1000.0)] * LONG_NIGHTS]) == pytest.approx((0.001, 0.001)), "long ago"


def test_no_range_goes_beyond_everything() -> None:
    assert (promise([(0.0, 500.0)] * 20 + [(0.9, 1000.0)]) or (0, 0))[1] <= 1.0
    assert (promise([(0.0, 500.0)] * 13 + [(1.0, 9000.0)]) or (0, 0))[1] == 1.0


def test_about_nine_of_ten_months_are_within_it() -> None:
    """Nights that refuse a lognormal share, and events in one of four nights that refuse ten times as much."""
    rng = np.random.default_rng(7)
    within, months = 0, 400
    for _ in range(months):
        nights = np.exp(0.5 * rng.standard_normal(56)) * 0.0005 * np.where(rng.random(56) < 0.25, 10, 1)
        offered = rng.uniform(800, 1200, 56)
        found = promise(list(zip(nights[:28].tolist(), offered[:28].tolist(), strict=True)))
        assert found is not None
        within += found[0] <= (nights[28:] * offered[28:]).sum() / offered[28:].sum() <= found[1]
    assert 0.85 <= within / months <= 0.95, within / months
