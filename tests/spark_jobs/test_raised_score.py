"""The replay of nights with the intraday raise raises as the gateway does, and counts what it refuses and reserves."""

from __future__ import annotations

import numpy as np
import pytest

from limiter.rules import hourly_raise, surges
from support.quota_weeks.raised import Quotas, held_after, nights_raised, raised

RATE, BURST, PEAK, SURGE_S = 10.0, 100.0, 25, 1200


@pytest.mark.parametrize("asked", [0.0, 12.0, 33.3, 99.0])
@pytest.mark.parametrize(("rate", "hourly", "mean"), [(10.0, 3.0, 5.0), (10.0, 3.0, 1.0), (10.0, 3.0, 500.0), (0.25, 1.5, 0.3)])
def test_the_replay_raises_as_the_gateway_does(rate: float, hourly: float, mean: float, asked: float) -> None:
    own = hourly_raise.raise_rate((rate, 100), hourly, mean, 4.0, asked)
    assert own is not None
    found = raised(np.array([rate]), np.array([100.0]), np.array([hourly]), np.array([mean]), 4.0, asked)
    assert found.rates[0] == pytest.approx(own[0], rel=0.005)  # the gateway rounds to three digits
    assert found.bursts[0] == pytest.approx(own[1], abs=2)


def test_the_replay_holds_what_a_surge_asks_for_as_long_as_the_gateway() -> None:
    peaks = [0.0, 1.0, 10.0, 11.9, 12.1, 8.0, 8.4, 0.0]
    asked, of_many = 0.0, np.zeros(1)
    for peak in peaks:
        asked, of_many = surges.held_after(asked, peak), held_after(of_many, np.array([peak]))
        assert of_many.tolist() == [asked]


def night(most: float, *demand: tuple[int, int]) -> tuple[float, float, float]:
    """(refused, reserved, offered) of a quota of RATE on a day of `demand`: so many a second for so many seconds."""
    counts = np.repeat([each for each, _ in demand], [seconds for _, seconds in demand])
    days = [{"a": (np.arange(len(counts)), counts)}]
    quotas = [Quotas(np.array([[RATE], [np.nan]]), np.array([[BURST], [np.nan]]), np.array([[1.0], [np.nan]]))]
    return tuple(nights_raised(days, ["a", "without"], [len(counts)], quotas, 3600, most)[0, 0].tolist())


def test_an_opening_day_is_refused_less_than_a_hundredth_and_reserves_what_it_is_raised_to() -> None:
    refused, reserved, offered = night(4.0, (6, 600), (PEAK, SURGE_S), (6, 600))
    assert offered == 1200 * 6 + SURGE_S * PEAK
    assert 0 < refused <= 0.01 * SURGE_S * PEAK
    raise_s = SURGE_S + 60
    assert (SURGE_S - 10) * surges.MARGIN / surges.STEP * PEAK < reserved - (2400 - raise_s) * RATE < raise_s * surges.MARGIN * PEAK


def test_without_the_raise_it_refuses_all_above_the_rate_but_the_burst() -> None:
    refused, reserved, _ = night(1.0, (6, 600), (PEAK, SURGE_S), (6, 600))
    assert refused == SURGE_S * (PEAK - RATE) - (BURST - RATE)
    assert reserved == 2400 * RATE
