"""Accounts: what slices of a fold and of a tick leave as it is, and what they cost."""

from __future__ import annotations

from gateway.counting.accounts import SLICE_KEYS, Accounts
from gateway.counting.recent_rates import TICKS
from limiter.keys import Key, Origin
from limiter.topics import rocketmq_topic

ORIGIN = Origin("rocketmq", "rocket", "10.0.0.7", None, b"")
MANY = 2 * SLICE_KEYS + 1


def key(number: int) -> Key:
    return Key(ORIGIN, rocketmq_topic(b"t%d" % number), None, "produce")


def offer(accounts: Accounts, keys: list[Key], messages: int = 1) -> None:
    for each in keys:
        each.tally.received += messages
        each.tally.messages += messages
        if not each.dirty:
            accounts.note(each)


def received(accounts: Accounts) -> int:
    return sum(totals.received for totals in accounts.topics.values())


def test_slices_fold_everything_in_order() -> None:
    accounts = Accounts()
    heard: list[Key] = []
    accounts.observers.append(lambda key, _: heard.append(key))
    keys = [key(number) for number in range(MANY)]
    offer(accounts, keys)
    folded = [received(accounts) for _ in accounts.slices(5)]
    assert folded == [SLICE_KEYS, 2 * SLICE_KEYS, MANY]
    assert heard == keys
    assert not any(each.dirty for each in keys)
    assert {totals.last_seen for totals in accounts.topics.values()} == {5}
    assert list(accounts.slices(6)) == []


def test_messages_between_two_slices_are_counted_once() -> None:
    """Keys folded already are noted again, those not folded yet take it along; a scrape that folds meanwhile leaves nothing to do."""
    accounts = Accounts()
    keys = [key(number) for number in range(MANY)]
    offer(accounts, keys)
    slices = accounts.slices(5)
    next(slices)
    offer(accounts, keys, 10)
    accounts.fold(6)
    assert received(accounts) == 11 * MANY
    offer(accounts, keys[:3], 100)
    assert len(list(slices)) <= 2
    accounts.fold(7)
    assert received(accounts) == 11 * MANY + 300


def test_traffic_that_does_not_end_does_not_keep_a_fold_from_its_end() -> None:
    accounts = Accounts()
    keys = [key(number) for number in range(MANY)]
    offer(accounts, keys)
    for turns, _ in enumerate(accounts.slices(5)):
        offer(accounts, keys)
        assert turns < 3
    accounts.fold(6)
    assert received(accounts) == 4 * MANY


def test_rates_are_means_and_of_the_last_tick_and_idle_topics_cost_nothing() -> None:
    accounts = Accounts()
    keys = [key(number) for number in range(MANY)]
    offer(accounts, keys, 4)
    accounts.fold(1)
    assert len(list(accounts.tick(2.0))) == 3
    assert {(totals.rates, totals.last_rates) for totals in accounts.topics.values()} == {((2.0, 2.0, 0.0, 0.0),) * 2}
    offer(accounts, keys[:1], 5)
    accounts.fold(2)
    assert len(list(accounts.tick(2.0))) == 3, "rates that were not zero become so"
    assert [totals.last_rates[0] for totals in accounts.topics.values()] == [2.5] + [0.0] * (MANY - 1)
    assert [totals.rates[0] for totals in accounts.topics.values()] == [2.25] + [1.0] * (MANY - 1)
    for _ in range(TICKS - 2):
        assert len(list(accounts.tick(2.0))) == 3, "what happened is still within the window"
    assert len(list(accounts.tick(2.0))) == 3
    assert [totals.rates[0] for totals in accounts.topics.values()] == [0.25] + [0.0] * (MANY - 1)
    assert len(list(accounts.tick(2.0))) == 1
    assert list(accounts.tick(2.0)) == []
    offer(accounts, keys[1:2], 5)
    accounts.fold(3)
    assert len(list(accounts.tick(1.0))) == 1
    assert [totals.rates[0] for totals in accounts.topics.values()][:3] == [0.0, 5.0, 0.0]


def test_a_fold_between_the_slices_of_a_tick_loses_no_rate() -> None:
    accounts = Accounts()
    keys = [key(number) for number in range(MANY)]
    offer(accounts, keys)
    accounts.fold(1)
    slices = accounts.tick(1.0)
    next(slices)
    offer(accounts, keys, 2)
    accounts.fold(2)
    list(slices)
    list(accounts.tick(1.0))
    assert {totals.rates[0] for totals in accounts.topics.values()} == {1.5}
    assert sorted({totals.last_rates[0] for totals in accounts.topics.values()}) == [0.0, 2.0]
    for _ in range(TICKS):
        list(accounts.tick(1.0))
    assert {totals.rates[0] for totals in accounts.topics.values()} == {0.0}
    assert list(accounts.tick(1.0)) == []
