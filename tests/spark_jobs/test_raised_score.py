"""What the intraday raise is worth on generated weeks, and that the replay raises as the gateway does."""

from __future__ import annotations

import numpy as np
import pytest

from limiter.rules import hourly_raise
from support.quota_weeks.raised import curve, raised
from support.quota_weeks.score import series_of
from support.quota_weeks.weeks import kinds, weeks

PER_HOUR = 60  # observed seconds of each hour
FACTORS = (1.0, 1.2)  # k, about where a percent is refused, and half of that


@pytest.mark.parametrize(("rate", "hourly", "mean"), [(10.0, 3.0, 5.0), (10.0, 3.0, 1.0), (10.0, 3.0, 500.0), (0.25, 1.5, 0.3)])
def test_the_replay_raises_as_the_gateway_does(rate: float, hourly: float, mean: float) -> None:
    own = hourly_raise.raised((rate, 100), hourly, mean, 4.0)
    assert own is not None
    found = raised(np.array([rate]), np.array([100.0]), np.array([hourly]), np.array([mean]), 4.0)
    assert found.rates[0] == pytest.approx(own[0], rel=0.005)  # the gateway rounds to three digits
    assert found.bursts[0] == pytest.approx(own[1], abs=2)


@pytest.mark.slow
def test_topics_that_change_are_refused_half_as_much_for_a_twentieth_more_reserve() -> None:
    days = list(weeks(kinds(1)["changing"], 1, 24, PER_HOUR))
    series = series_of(days)
    nightly, with_raise = (curve(series, days, PER_HOUR, most, FACTORS) for most in (1.0, 4.0))
    assert np.all(nightly.refused > 0.001)
    assert np.all(with_raise.refused < 0.5 * nightly.refused), (nightly, with_raise)
    assert np.all(with_raise.reserved < 1.05 * nightly.reserved)
