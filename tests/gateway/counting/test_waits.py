"""How long messages lately waited for a limit."""

from __future__ import annotations

import random

import pytest

from gateway.counting.waits import BOUNDS_MS, GENERATION_NS, MAX_TOPICS, RecentWaits
from limiter.judge import Judge
from limiter.keys import Key
from limiter.rules.rule_set import RuleSet
from support.models.asking import key_of

MS = 1_000_000
START = 10**15
ORDERS = ("rocketmq", "orders", "produce")


@pytest.fixture
def judge() -> Judge:
    return Judge(RuleSet(()), 1000)


@pytest.fixture
def orders(judge: Judge) -> Key:
    return key_of(judge, "orders")


def test_none_has_waited() -> None:
    assert RecentWaits().p99_ms(ORDERS, START) is None


@pytest.mark.parametrize("milliseconds", [0.2, 1, 3, 250, 1700, 60_000])
def test_it_is_at_most_a_fifth_above_what_all_waited(orders: Key, milliseconds: float) -> None:
    waits = RecentWaits()
    waits.note(orders, int(milliseconds * MS), 5, START)
    found = waits.p99_ms(ORDERS, START)
    assert found is not None
    assert max(milliseconds, 1) <= found <= max(milliseconds * 1.2, 1)


def test_it_is_the_99th_of_a_hundred_sorted(orders: Key) -> None:
    draw = random.Random(7)
    waited = [draw.expovariate(1 / 80) for _ in range(5000)]
    waits = RecentWaits()
    for each in waited:
        waits.note(orders, int(each * MS), 1, START)
    exact = sorted(waited)[int(0.99 * len(waited))]
    found = waits.p99_ms(ORDERS, START)
    assert found is not None
    assert exact / 1.05 <= found <= 1.2 * exact


def test_what_is_longer_than_all_bounds_is_the_last(orders: Key) -> None:
    waits = RecentWaits()
    waits.note(orders, 10**15, 1, START)
    assert waits.p99_ms(ORDERS, START) == BOUNDS_MS[-1]


def test_half_a_minute_to_a_minute_counts(orders: Key) -> None:
    waits = RecentWaits()
    waits.note(orders, 500 * MS, 99, START)
    waits.note(orders, 5 * MS, 1, START + GENERATION_NS)
    assert (waits.p99_ms(ORDERS, START + GENERATION_NS) or 0) >= 500
    assert (waits.p99_ms(ORDERS, START + 2 * GENERATION_NS) or 999) < 10
    assert waits.p99_ms(ORDERS, START + 3 * GENERATION_NS) is None


def test_after_a_pause_nothing_of_before_counts(orders: Key) -> None:
    waits = RecentWaits()
    waits.note(orders, 500 * MS, 99, START)
    assert waits.p99_ms(ORDERS, START + 5 * GENERATION_NS) is None


def test_names_that_are_made_up_are_bounded(judge: Judge) -> None:
    waits = RecentWaits()
    for number in range(MAX_TOPICS + 50):
        waits.note(key_of(judge, f"t{number}"), MS, 1, START)
    assert repr(waits) == f"<RecentWaits of {MAX_TOPICS} and 0 topics>"
