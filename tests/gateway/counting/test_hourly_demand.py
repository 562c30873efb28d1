"""The demand of an hour: what counts, what a storm of retries does to it, and workers that come, go, or do not answer."""

from __future__ import annotations

import pytest

from gateway.counting.accounts import OTHER, SLICE_KEYS, Accounts, TopicTotals
from gateway.counting.hourly_demand import HourlyDemand, Reading, readings_of
from limiter.keys import Key, Origin
from limiter.rules.sender import Sender
from limiter.topics import rocketmq_topic

ORIGIN = Origin("rocketmq", Sender("rocket", "10.0.0.7", None), b"")
ORDERS = ("rocketmq", "orders")
HOUR = 3600 * 1_000_000_000


def second(accounts: Accounts, key: Key, *, passed: int = 0, refused: int = 0, dropped: int = 0, size: int = 10) -> None:
    tally = accounts.tally_of(key)
    tally.messages += passed
    tally.bytes += passed * size
    tally.refused += refused
    tally.refused_bytes += refused * size
    tally.dropped += dropped
    accounts.fold(0)
    list(accounts.tick(1.0))


def orders(operation: str = "produce") -> Key:
    return Key(ORIGIN, rocketmq_topic(b"orders"), None, operation)


def means(
    sources: dict[str, list[Reading] | None], now: int, demand: HourlyDemand | None = None
) -> dict[tuple[str, str], tuple[float, float]]:
    demand = demand or HourlyDemand(0)
    list(demand.look(sources, now))
    return demand.means


def test_refused_and_dropped_messages_count_up_to_what_passed_in_the_same_second() -> None:
    accounts = Accounts()
    key = orders()
    second(accounts, key, passed=10)
    second(accounts, key, passed=10, refused=4)
    second(accounts, key, passed=10, dropped=3)
    second(accounts, key, refused=50)  # the second before has used the bucket up
    totals = accounts.topics["rocketmq", "orders", "produce"]
    assert (totals.demand, totals.demand_bytes) == (37, 340)


def test_a_storm_of_retries_counts_as_twice_the_limit_while_it_lasts() -> None:
    accounts = Accounts()
    key = orders()
    for at in range(3600):
        second(accounts, key, passed=10, refused=5000 if 600 <= at < 900 else 0)
    found = means({"": readings_of(accounts)}, HOUR)
    assert found[ORDERS][0] == pytest.approx(10 * (1 + 300 / 3600))


def test_an_idle_second_adds_nothing() -> None:
    accounts = Accounts()
    second(accounts, orders(), passed=10, refused=10)
    for _ in range(5):
        list(accounts.tick(1.0))
    assert accounts.topics["rocketmq", "orders", "produce"].demand == 20


def test_deliveries_and_topics_that_share_totals_are_left_out() -> None:
    accounts = Accounts()
    second(accounts, orders("consume"), passed=10)
    other = accounts.topics["rocketmq", OTHER, "produce"] = TopicTotals("rocketmq", OTHER)
    other.demand = 5
    assert readings_of(accounts) == []


def test_a_topic_that_was_forgotten_and_begins_anew_has_no_negative_mean() -> None:
    demand = HourlyDemand(0)
    means({"": [(*ORDERS, 36_000, 36_000)]}, HOUR, demand)
    assert means({"": [(*ORDERS, 3600, 3600)]}, 2 * HOUR, demand) == {ORDERS: (1.0, 1.0)}


def test_each_hour_has_its_own_mean() -> None:
    demand = HourlyDemand(0)
    assert means({"": [(*ORDERS, 3600, 36_000)]}, HOUR, demand) == {ORDERS: (1.0, 10.0)}
    assert means({"": [(*ORDERS, 3600 * 3, 36_000)]}, 2 * HOUR, demand) == {ORDERS: (2.0, 0.0)}
    assert means({"": [(*ORDERS, 3600 * 3, 36_000)]}, 3 * HOUR, demand) == {}


def test_workers_are_added_up_and_one_that_ended_is_not_taken_away() -> None:
    demand = HourlyDemand(0)
    assert means({"1.0": [(*ORDERS, 3600, 0)], "2.0": [(*ORDERS, 7200, 0)]}, HOUR, demand) == {ORDERS: (3.0, 0.0)}
    found = means({"1.0": [(*ORDERS, 7200, 0)], "2.1": [(*ORDERS, 1800, 0)]}, 2 * HOUR, demand)  # 2.0 has been replaced
    assert found == {ORDERS: (1.5, 0.0)}


def test_a_worker_that_did_not_answer_is_averaged_over_both_hours() -> None:
    demand = HourlyDemand(0)
    assert means({"1.0": [(*ORDERS, 3600, 0)]}, HOUR, demand) == {ORDERS: (1.0, 0.0)}
    assert means({"1.0": None, "1.1": None}, 2 * HOUR, demand) == {}
    assert means({"1.0": [(*ORDERS, 3 * 3600, 0)], "1.1": [(*ORDERS, 7200, 0)]}, 3 * HOUR, demand) == {ORDERS: (2.0, 0.0)}


def test_many_topics_are_looked_at_in_slices() -> None:
    readings: list[Reading] = [("rocketmq", f"t{number}", 3600, 0) for number in range(2 * SLICE_KEYS + 1)]
    demand = HourlyDemand(0)
    assert len(list(demand.look({"": readings}, HOUR))) == 3
    assert len(demand.means) == len(readings)
