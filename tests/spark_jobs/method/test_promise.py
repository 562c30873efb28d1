"""The range that a report promises: from how much past nights differed, and honest about months of few events."""

from __future__ import annotations

import numpy as np
import pytest

from spark_jobs.method.promise import LEAST_EVIDENCE, LEAST_NIGHTS, LONG_NIGHTS, NightShare, predict_interval


def promised(nights: list[tuple[float, float]], topics: float = 10.0) -> tuple[float, float] | None:
    return predict_interval([NightShare(share, offered, topics) for share, offered in nights])


def test_nights_alike_promise_what_they_did() -> None:
    assert promised([(0.001, 1000.0)] * 28) == pytest.approx((0.001, 0.001))


def test_a_month_of_one_event_promises_little_and_may_be_one_without() -> None:
    found = promised([(0.0, 1000.0)] * 27 + [(0.028, 1000.0)])
    assert found is not None
    low, high = found
    assert low == 0
    assert 0.004 < high < 0.03


def test_few_topics_promise_nothing() -> None:
    """A month of one topic with events refused up to 70 times what the one before did."""
    nights = [(0.001, 1000.0)] * 28
    assert promised(nights, LEAST_EVIDENCE / 28 - 0.01) is None
    assert promised(nights, LEAST_EVIDENCE / 28 + 0.01) is not None


def test_the_range_reaches_as_far_as_k_will_have_moved() -> None:
    """Sixty sparse topics refused 0.29 % while k went from 2 to 3, and were promised no less than 0.19 %: then 0.17 % came."""
    nights = [NightShare(0.001, 1000.0, 10.0)] * 28
    assert predict_interval(nights, (0.5, 0.9)) == pytest.approx((0.0005, 0.0009))


def test_what_is_not_known_is_not_promised() -> None:
    assert promised([]) is None
    assert promised([(0.001, 1000.0)] * (LEAST_NIGHTS - 1)) is None
    assert promised([(0.0, 1000.0)] * 28) is None, "no night has refused anything"
    assert promised([(0.001, 1000.0)] * 27 + [(0.5, 0.0)]) == pytest.approx((0.001, 0.001)), "a night without traffic"
    assert promised([(0.5, 1000.0), *[(0.001, 1000.0)] * LONG_NIGHTS]) == pytest.approx((0.001, 0.001)), "long ago"


def test_no_range_goes_beyond_everything() -> None:
    assert (promised([(0.0, 500.0)] * 20 + [(0.9, 1000.0)]) or (0, 0))[1] <= 1.0
    assert (promised([(0.0, 500.0)] * 13 + [(1.0, 9000.0)]) or (0, 0))[1] == 1.0


def test_about_nine_of_ten_months_are_within_it() -> None:
    """Nights that refuse a lognormal share, and events in one of four nights that refuse ten times as much."""
    rng = np.random.default_rng(7)
    within, months = 0, 400
    for _ in range(months):
        nights = np.exp(0.5 * rng.standard_normal(56)) * 0.0005 * np.where(rng.random(56) < 0.25, 10, 1)
        offered = rng.uniform(800, 1200, 56)
        found = promised(list(zip(nights[:28].tolist(), offered[:28].tolist(), strict=True)))
        assert found is not None
        within += found[0] <= (nights[28:] * offered[28:]).sum() / offered[28:].sum() <= found[1]
    assert 0.85 <= within / months <= 0.95, within / months
