"""How long an address that has failed is left alone, on a clock of the test's own."""

from __future__ import annotations

import random

import pytest

from gateway.listeners.hold_down import FORGET_S, GOOD_PROBES, MAX_HOLD_S, MIN_HOLD_S, HoldDown


def hold_after(failures: int, used_s: float) -> list[float]:
    """The holds of an address that is used for so long between two failures."""
    held = HoldDown()
    now = 1000.0
    found = []
    for _ in range(failures):
        held.note_use(now)
        now += used_s
        held.note_failure(now)
        found.append(held.left_s(now))
        now = held.until
    return found


def test_each_failure_doubles_the_hold_up_to_the_most() -> None:
    holds = hold_after(10, used_s=60)
    assert holds[:4] == [MIN_HOLD_S, 2 * MIN_HOLD_S, 4 * MIN_HOLD_S, 8 * MIN_HOLD_S]
    assert holds[-3:] == [MAX_HOLD_S] * 3


def test_failures_are_forgotten_after_a_long_use() -> None:
    assert hold_after(5, used_s=FORGET_S) == [MIN_HOLD_S] * 5
    assert FORGET_S > MAX_HOLD_S


def test_an_address_that_was_never_in_use_is_not_held() -> None:
    held = HoldDown()
    for now in range(30):
        held.note_failure(float(now))
    assert held.left_s(30) == 0
    assert [held.note_answer(30 + n) for n in range(GOOD_PROBES)] == [False] * (GOOD_PROBES - 1) + [True]


def test_it_returns_after_the_hold_and_good_probes_in_a_row_and_not_before() -> None:
    held = HoldDown()
    held.note_use(0)
    held.note_failure(10)
    assert not any(held.note_answer(10 + MIN_HOLD_S * share) for share in (0.2, 0.4, 0.6, 0.99))
    held.note_failure(10 + MIN_HOLD_S)
    assert held.until == 10 + MIN_HOLD_S, "a failure while it is held begins no other hold"
    assert [held.note_answer(30), held.note_answer(31)] == [False, True], "the good ones before the bad one do not count"


def test_further_failures_of_one_outage_are_one_failure() -> None:
    held = HoldDown()
    held.note_use(0)
    for now in range(100, 200):
        held.note_failure(float(now))
    assert held.until == 100 + MIN_HOLD_S


@pytest.mark.parametrize("seed", range(5))
def test_a_broker_that_comes_and_goes_for_an_hour_is_used_a_few_times(seed: int) -> None:
    """Up 3 to 8 s, down 3 to 8 s, probed each second: without a hold-down that is some 300 changes."""
    chance = random.Random(seed)
    held = HoldDown()
    held.note_use(0)
    uses, used, up, change_at = 1, True, True, 3.0
    for second in range(1, 3600):
        now = float(second)
        if now >= change_at:
            up, change_at = not up, now + chance.uniform(3, 8)
        if not up:
            held.note_failure(now)
            used = False
        elif not used and held.note_answer(now):
            held.note_use(now)
            used = True
            uses += 1
    assert 2 <= uses <= 20
