"""Capacity, shared by weighted max-min."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.method.capacity import share_capacity, share_rest


def test_what_fits_stays_as_it_is() -> None:
    wanted = np.array([5.0, np.nan, 3.0])
    assert share_capacity(wanted, np.ones(3), 0) is wanted
    assert share_capacity(wanted, np.ones(3), 8) is wanted


def test_small_topics_keep_all_and_the_others_share_by_weight() -> None:
    found = share_capacity(np.array([1.0, 100.0, np.nan, 100.0]), np.array([1.0, 1.0, 1.0, 3.0]), 41)
    assert list(found[[0, 1, 3]]) == pytest.approx([1, 10, 30])
    assert np.isnan(found[2])


def test_a_topic_of_which_nothing_is_expected_gets_what_the_others_leave() -> None:
    assert share_capacity(np.array([10.0, 10.0]), np.array([0.0, 1.0]), 10) == pytest.approx([0, 10], abs=1e-6)
    assert share_capacity(np.array([10.0, 10.0]), np.array([0.0, 1.0]), 15) == pytest.approx([5, 10])


@given(st.lists(st.tuples(st.floats(0.01, 1000), st.floats(0.01, 100)), min_size=1, max_size=20), st.floats(0.05, 0.99))
def test_there_is_one_level_for_all(topics: list[tuple[float, float]], part: float) -> None:
    wanted, weights = (np.array(each) for each in zip(*topics, strict=True))
    capacity = part * wanted.sum()
    found = share_capacity(wanted, weights, capacity)
    assert found.sum() == pytest.approx(capacity)
    assert (found <= wanted * (1 + 1e-9)).all()
    cut = found < wanted * (1 - 1e-9)
    levels = found / weights
    if cut.any() and not cut.all():
        assert levels[~cut].max() <= levels[cut].min() * (1 + 1e-6)
    if cut.sum() > 1:
        assert levels[cut].min() == pytest.approx(levels[cut].max(), rel=1e-6)


def test_nobody_is_left_with_nothing() -> None:
    assert share_capacity(np.array([10.0, 10.0]), np.array([0.0, 1.0]), 10, np.array([1.0, 1.0])) == pytest.approx([1, 9], abs=1e-6)
    assert share_capacity(np.array([10.0, 0.5, 10.0]), np.ones(3), 2, np.array([3.0, 3.0, 3.0])) == pytest.approx(
        [6 / 6.5, 1 / 6.5, 6 / 6.5]
    )


NO = np.nan
LEAST = np.full(3, 0.1)


@pytest.mark.parametrize(
    ("capacity", "elsewhere", "others"),
    [
        (0, 5.0, (10, 30)),  # no capacity
        (102, 5.0, (10, 30)),
        (57 + 5 + 21, 5.0, (10, 11)),  # the pin and what others have come first
        (57, 5.0, (0.1, 0.1)),
        (10, 0.0, (0.1, 0.1)),  # less than the pin alone
    ],
)
def test_what_is_pinned_comes_off_the_capacity_first(capacity: float, elsewhere: float, others: tuple[float, float]) -> None:
    wanted = np.array([80.0, 10.0, 30.0])
    found = share_rest(wanted, np.ones(3), capacity, LEAST, np.array([57.0, NO, NO]), elsewhere)
    assert found == pytest.approx([80, *others])  # the first one's is replaced by its pin
