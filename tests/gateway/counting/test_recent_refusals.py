"""What was refused of one connection of late."""

from __future__ import annotations

import pytest

from gateway.counting.recent_refusals import RecentRefusals

SECOND = 1_000_000_000
BEGAN = 7_400_000_000  # within a second


def steady(rate: int, seconds: float) -> tuple[RecentRefusals, int]:
    """`rate` refusals a second for so long, and the time of the last one."""
    refusals = RecentRefusals(BEGAN)
    for number in range(int(rate * seconds)):
        refusals.add(1, now := BEGAN + number * SECOND // rate)
    return refusals, now


@pytest.mark.parametrize("seconds", [1, 2.5, 9.9, 10, 10.5, 37.3])
def test_a_steady_rate_is_told_from_the_first_second_on(seconds: float) -> None:
    refusals, now = steady(100, seconds)
    assert refusals.per_second(now) == pytest.approx(100, rel=0.02)
    assert refusals.total == int(100 * seconds)


def test_after_the_last_refusal_the_rate_goes_down_to_nothing_within_ten_seconds() -> None:
    refusals, now = steady(100, 30)
    rates = [refusals.per_second(now + second * SECOND) for second in range(12)]
    assert rates[:10] == sorted(rates[:10], reverse=True)
    assert 40 < rates[5] < 60
    assert rates[10:] == [0, 0]
    assert refusals.total == 3000


@pytest.mark.parametrize("pause", [10, 11, 25, 1000])
def test_what_was_before_a_pause_is_not_in_the_rate(pause: int) -> None:
    refusals, now = steady(100, 30)
    refusals.add(5, now + pause * SECOND)
    assert refusals.per_second(now + pause * SECOND) == 5
    assert refusals.total == 3005


@pytest.mark.parametrize("pause", [10, 11, 25, 1000])
def test_whoever_looks_on_changes_nothing(pause: int) -> None:
    """A dashboard asks once a second, also while nothing is refused."""
    refusals, now = steady(100, 30)
    for second in range(pause):
        refusals.per_second(now + second * SECOND)
    refusals.add(5, now + pause * SECOND)
    assert refusals.per_second(now + pause * SECOND) == 5


def test_a_batch_counts_with_its_messages() -> None:
    refusals = RecentRefusals(BEGAN)
    refusals.add(30, BEGAN)
    assert refusals.per_second(BEGAN) == 30
    assert "30 in all" in repr(refusals)
