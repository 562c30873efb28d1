"""Guard rails of a night."""

from __future__ import annotations

import numpy as np
import pytest

from spark_jobs.method.rails import apply_rails
from spark_jobs.parameters import Parameters

NO = np.nan


@pytest.mark.parametrize(
    ("wanted", "live", "week_ago", "censored", "rate", "held"),
    [
        (150.0, 100.0, NO, False, 150.0, 0),
        (500.0, 100.0, NO, False, 200.0, 1),
        (10.0, 100.0, NO, False, 80.0, -1),
        (104.0, 100.0, NO, False, 100.0, 0),  # below the hysteresis
        (500.0, NO, NO, False, 500.0, 0),  # the first quota
        (500.0, 0.0, NO, False, 500.0, 0),  # twice nothing is nothing
        (NO, 100.0, NO, False, NO, 0),  # learning
        (NO, 100.0, NO, True, NO, 0),  # also while it is limited
        (50.0, 100.0, 45.0, False, 50.0, 0),  # Saturday: as low as last Saturday
        (210.0, 100.0, 200.0, False, 210.0, 0),  # and back on Monday
        (90.0, 100.0, NO, True, 125.0, 0),  # demand is a lower bound: grow by a quarter
        (180.0, 100.0, NO, True, 180.0, 0),  # or by what was seen, if that is more
        (0.001, 0.02, NO, False, 1 / 60, 0),  # the floor
    ],
)
def test_a_quota_moves_within_its_rails(wanted: float, live: float, week_ago: float, censored: bool, rate: float, held: int) -> None:
    found = apply_rails(
        np.array([wanted]), np.array([live]), np.array([week_ago]), np.array([censored]), np.array([1 / 60]), 0, Parameters()
    )  # fmt: skip
    assert found.rates[0] == pytest.approx(rate, nan_ok=True)
    assert np.sign(found.held[0]) == held or rate == pytest.approx(1 / 60)


@pytest.mark.parametrize("floor", [1.0, 350.0])
def test_the_ceiling_is_above_no_rail_and_no_floor(floor: float) -> None:
    wanted, live, week_ago = np.array([500.0]), np.array([400.0]), np.array([NO])
    found = apply_rails(wanted, live, week_ago, np.array([False]), np.array([floor]), 300, Parameters())
    assert found.rates[0] == 300


def test_a_quota_at_either_bound_of_its_hysteresis_stays_as_it_is() -> None:
    def of(live: float) -> tuple[float, bool, float, float]:
        found = apply_rails(np.array([100.0]), np.array([live]), np.array([NO]), np.array([False]), np.array([1.0]), 0, Parameters())
        return float(found.rates[0]), bool(found.kept[0]), float(found.lower[0]), float(found.upper[0])

    _, _, lower, upper = of(100.0)
    assert lower < 100 < upper
    for bound in (lower, upper):
        assert of(bound)[:2] == (bound, True)
    for beyond in (np.nextafter(lower, 0), np.nextafter(upper, np.inf)):
        assert not of(float(beyond))[1]
