"""Rates and limits."""

from __future__ import annotations

from typing import Any

import pytest

from limiter.limits import Adapt, Limit, Rate, per_second

SECOND = 1_000_000_000


def test_equal_rates_are_equal() -> None:
    assert Rate(30_000, 60 * SECOND) == Rate(500)
    assert (Rate(0, 5 * SECOND).amount, Rate(0)) == (0, Rate(0, 7))


@pytest.mark.parametrize(("amount", "per_ns"), [(-1, SECOND), (1, 0), (1, -5), (10**15 + 1, SECOND)])
def test_an_invalid_rate_is_refused(amount: int, per_ns: int) -> None:
    with pytest.raises(ValueError, match="rate"):
        Rate(amount, per_ns)


def test_rates_are_immutable() -> None:
    with pytest.raises(AttributeError):
        Rate(5).amount = 6  # type: ignore[misc]


@pytest.mark.parametrize(
    ("number", "rate"), [(500, Rate(500)), (0.1, Rate(1, 10 * SECOND)), (12.5, Rate(25, 2 * SECOND)), (0, Rate(0)), (1e3, Rate(1000))]
)
def test_rates_from_json_numbers_are_exact(number: float, rate: Rate) -> None:
    assert per_second(number) == rate


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf"), -1, -0.5, 1e300])
def test_json_numbers_that_are_no_rate_are_refused(number: float) -> None:
    with pytest.raises(ValueError, match="rate"):
        per_second(number)


@pytest.mark.parametrize(
    ("limit", "messages", "size"),
    [
        (Limit(messages=Rate(500)), 500, 0),
        (Limit(messages=Rate(500), burst_ns=2 * SECOND), 1000, 0),
        (Limit(messages=Rate(500), bytes=Rate(2**20), burst_ns=SECOND // 2), 250, 2**19),
        (Limit(messages=Rate(500), messages_burst=7, burst_ns=2 * SECOND), 7, 0),
        (Limit(messages=Rate(1, 10 * SECOND)), 1, 0),
        (Limit(messages=Rate(3, 2 * SECOND)), 1, 0),
        (Limit(messages=Rate(0), messages_burst=50), 0, 0),
        (Limit(), 0, 0),
    ],
)
def test_capacity_is_whole_tokens_and_at_least_one(limit: Limit, messages: int, size: int) -> None:
    assert (limit.messages_capacity(), limit.bytes_capacity()) == (messages, size)


@pytest.mark.parametrize("burst", [{"messages_burst": 0}, {"bytes_burst": -1}, {"burst_ns": 0}])
def test_a_burst_of_nothing_is_an_error_with_its_remedy(burst: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="say a rate of 0 where that is meant"):
        Limit(messages=Rate(5), **burst)


def test_per_second_and_text() -> None:
    assert Rate(1, 4 * SECOND).per_second == 0.25
    assert (str(Rate(500)), str(Rate(1, 4 * SECOND))) == ("500/s", "0.25/s")


@pytest.mark.parametrize(
    "numbers",
    [{"floor": 0}, {"floor": 1001}, {"tighten": 0}, {"tighten": 1000}, {"recover": 0}, {"recover": 1001}, {"every_ns": 0}],
)
def test_a_cap_that_adapts_leaves_something(numbers: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="parts of a cap"):
        Adapt(**numbers)
    assert Adapt(floor=1, tighten=1, recover=1, every_ns=1) != Adapt(floor=1000, tighten=999, recover=1000)
