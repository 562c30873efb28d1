"""One night of one dimension: from a shape that is known to the rates and bursts that are published."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from spark_jobs.method.decide import LARGEST_DAYS, Decided, compute_floors, decide, find_largest
from spark_jobs.method.memory import Floats
from spark_jobs.method.peakiness import Shape
from spark_jobs.parameters import Parameters
from support.quota_weeks.memories import memory_of

NO = np.nan
DEFAULTS = Parameters()


def decided(
    base: Any, mean: Any = 10.0, k: float = 2.0, dimension: str = "messages", live: Any = NO, family: str = "quota", days: int = 10,
    parameters: Parameters = DEFAULTS, pinned: Floats | None = None, more: dict[str, Any] | None = None, **remembered: Any,
) -> Decided:  # fmt: skip
    """Of topics with this `base` per second and the same `mean` on each of `days` days. Their level is half of their base."""
    bases: Floats = np.atleast_1d(np.asarray(base, np.float64))
    means = np.broadcast_to(np.asarray(mean, np.float64).reshape(-1, 1), (len(bases), days)) if np.ndim(mean) < 2 else np.asarray(mean)
    shaped = Shape(bases, bases / 2, np.full(len(bases), 2.0))
    of_live = np.broadcast_to(np.asarray(live, np.float64), bases.shape)
    week_ago = np.full(len(bases), NO)
    return decide(memory_of(means, **remembered), dimension, k, family, of_live, week_ago, parameters, shaped, pinned, **(more or {}))


def test_a_quota_is_k_times_its_base_and_its_burst_ten_seconds_of_it() -> None:
    found = decided([5.0, 0.05, NO], k=3.0)
    np.testing.assert_allclose(found.wanted, [15, 0.15, NO])
    np.testing.assert_allclose(found.rates, found.wanted)
    np.testing.assert_allclose(found.bursts[:2], [150, 3])
    assert found.held.tolist() == [0, 0, 0]


def test_a_topic_seen_on_fewer_days_than_asked_for_is_learning() -> None:
    seen = np.array([[0.0] * 8 + [1.0, 1.0], [0.0] * 7 + [1.0, 1.0, 1.0]])
    found = decided([5.0, 5.0], seen)
    assert found.learning.tolist() == [True, False]
    np.testing.assert_allclose(found.rates, [NO, 10])


def test_the_floor_is_messages_a_minute_and_of_bytes_as_many_of_the_largest() -> None:
    parameters = Parameters(floor_per_minute=6)
    memory = memory_of(np.full((2, 40), 10.0), largest=[[500.0] * 40, [0.25] * 40])
    assert compute_floors(memory, "messages", parameters).tolist() == pytest.approx([0.1, 0.1])
    assert compute_floors(memory, "bytes", parameters).tolist() == pytest.approx([50, 0.1])
    low = decided([1e-6], dimension="bytes", largest=500.0)
    assert low.rates[0] == pytest.approx(500 / 60)
    assert low.bursts[0] == 500


def test_the_largest_message_is_that_of_four_weeks() -> None:
    largest = np.ones((1, 40))
    largest[0, -LARGEST_DAYS] = 700
    largest[0, -LARGEST_DAYS - 1] = 900
    memory = memory_of(np.full((1, 40), 10.0), largest=largest)
    assert find_largest(memory).tolist() == [700]


def test_another_rule_publishes_its_proportions_at_the_reserve_of_the_method() -> None:
    """Its rates are 3 x 10 and 3 x 30; the method wants 60 and 20 together."""
    found = decided([30.0, 10.0], [10.0, 30.0], family="yesterday_max")
    np.testing.assert_allclose(found.wanted, [20, 60])
    idle = decided([30.0, 10.0], np.array([[10.0] * 10, [10.0] * 9 + [0.0]]), family="yesterday_max")
    np.testing.assert_allclose(idle.wanted, [80, 1 / 60])


def test_a_rate_that_a_person_has_set_comes_off_the_capacity_first() -> None:
    shared = Parameters(capacity_messages=40)
    assert decided([30.0, 30.0], parameters=shared).rates.tolist() == pytest.approx([20, 20])
    found = decided([30.0, 30.0], parameters=shared, pinned=np.array([NO, 33.0]), more={"elsewhere": 2.0})
    assert (found.rates[0], found.fixed) == (pytest.approx(5), 35)


def test_a_capacity_is_shared_by_the_level() -> None:
    found = decided([30.0, 10.0], parameters=Parameters(capacity_messages=40, capacity_bytes=1))
    np.testing.assert_allclose(found.wanted, [60, 20])
    np.testing.assert_allclose(found.rates, [30, 10], atol=0.01)  # but for the least rate of each
    np.testing.assert_allclose(found.bursts, [300, 101])
    assert found.rates.sum() == pytest.approx(40)


def test_rails_hold_and_a_topic_limited_on_its_newest_day_grows() -> None:
    found = decided([100.0, 1.0], live=20.0)
    np.testing.assert_allclose(found.rates, [40, 16])
    assert found.held.tolist() == [1, -1]
    limited = np.zeros((2, 10))
    limited[0, -1] = limited[1, -2] = 1
    np.testing.assert_allclose(decided([10.0, 10.0], live=20.0, censored=limited).rates, [25, 20])


@pytest.mark.parametrize(
    ("live", "before", "burst"), [(100, 1039, 1040), (100, 1041, 1041), (100, 2080, 2080), (100, 2081, 1040), (50, 1041, 1040)]
)
def test_a_quota_that_stays_keeps_its_burst_while_that_is_enough_and_not_twice_too_much(live: float, before: float, burst: float) -> None:
    """The burst must hold the largest message, of 1,040 bytes; one that is not kept has its own anew."""
    found = decided([52.0], live=live, dimension="bytes", largest=1040.0, more={"live_bursts": np.array([before])})
    assert (found.rates[0], found.bursts[0]) == (100, burst)


def test_the_factor_of_the_hour_is_that_of_the_day_s_mean_by_its_evenness() -> None:
    """The newest evenness that is known; of a topic that was never seen in hours, all of them are alike."""
    evenness = np.full((2, 10), NO)
    evenness[0, 3], evenness[0, 8] = 0.9, 0.25
    assert decided([5.0, 5.0], k=3.0, evenness=evenness).hourly.tolist() == pytest.approx([2 * 3 * 0.25, 2 * 3])
