"""The simple rules that the method is compared with, and what they take from the memory: the newest days that are known."""

from __future__ import annotations

import numpy as np
import pytest

from spark_jobs.method.families import QUOTA_RULES
from spark_jobs.method.memory import Floats, Memory, find_greatest, find_newest, mean_of
from spark_jobs.state.loss_surface import OVERLOADS

NO = np.nan
DAYS = 9
ROWS = [
    [90.0, 80.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0],  # the first two are older than a week
    [NO, NO, NO, NO, 2.0, NO, 4.0, 0.0, NO],  # the newest day is not known, and a silent one is no load
    [NO] * DAYS,  # of this nothing is known
]


def memory_of(busiest: Floats, mean: Floats, p99: Floats) -> Memory:
    empty = np.full(mean.shape, NO)
    return Memory(
        tuple(("p", f"t{at}") for at in range(len(mean))), np.arange(mean.shape[1] + 1) % 7, mean=mean, messages=empty, need=empty,
        busiest=busiest, p99=p99, largest=empty, evenness=empty, overloaded=np.full((*mean.shape, len(OVERLOADS)), NO),
        censored=np.zeros(mean.shape, np.bool_),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "times", "expected"),
    [
        ("yesterday_max", (3.0, 1.0, 1.0), [3.0, 0.0, NO]),
        ("max_7", (3.0, 1.0, 1.0), [21.0, 12.0, NO]),
        ("mean_7", (1.0, 3.0, 1.0), [12.0, 6.0, NO]),
        ("p99", (1.0, 1.0, 3.0), [12.0, 6.0, NO]),
    ],
)
def test_a_rule_looks_at_the_last_seven_days_that_are_known(name: str, times: tuple[float, float, float], expected: list[float]) -> None:
    found = QUOTA_RULES[name](memory_of(*(each * np.array(ROWS) for each in times)))
    np.testing.assert_allclose(found, expected)


def test_every_rule_stands_in_a_test() -> None:
    assert set(QUOTA_RULES) == {"yesterday_max", "max_7", "mean_7", "p99"}


@pytest.mark.parametrize("name", QUOTA_RULES)
def test_without_a_day_no_topic_has_a_rate(name: str) -> None:
    nothing = np.zeros((2, 0))
    np.testing.assert_array_equal(QUOTA_RULES[name](memory_of(nothing, nothing, nothing)), [NO, NO])


def test_what_is_not_known_is_passed_over() -> None:
    values = np.array(ROWS)
    np.testing.assert_array_equal(find_newest(values), [1.0, 0.0, NO])
    np.testing.assert_array_equal(find_greatest(values), [90.0, 4.0, 0.0])
    np.testing.assert_allclose(mean_of(values), [22.0, 2.0, NO])
    np.testing.assert_allclose(mean_of(values[:, 5:7]), [3.5, 4.0, NO], err_msg="one day is enough")


def test_a_memory_until_a_day_has_nothing_of_that_day_or_later() -> None:
    memory = memory_of(np.array(ROWS), np.array(ROWS), np.array(ROWS))
    earlier = memory.cut_before(6)
    np.testing.assert_array_equal(earlier.mean, np.array(ROWS)[:, :6])
    assert (earlier.days, len(earlier.weekdays), earlier.weekdays[-1]) == (6, 7, 6)
    np.testing.assert_array_equal(earlier.count_active_days(), [6, 1, 0])
    np.testing.assert_array_equal(memory.count_active_days(), [9, 2, 0])
